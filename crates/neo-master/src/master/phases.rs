//! The phases of a primary master: how each begins, and when it ends.

use std::time::Duration;

use tracing::{info, warn};
use zodium_neo::messages::{NodeInformation, NotifyNodeInformation, StopOperation, Truncate};
use zodium_neo::{Address, ClusterState, ConnectionId, NodeState, NodeType};
use zodium_types::Tid;

use super::Master;
use crate::election;
use crate::packs::Packs;
use crate::secondary::Secondary;
use crate::troubles::Troubles;
use crate::verification::Verification;
use crate::{Output, Phase, Stop};

/// The alarm that ends waiting for clients. Those for looks at storages have the number of the
/// recovery.
const STOPPING_ALARM: u64 = 0;
/// How long a cluster that stops waits for transactions that clients have not asked to finish.
const OPEN_TIME_MAX: Duration = Duration::from_secs(30);

impl Master {
    /// Handles the ends of connections, and goes on to other phases when their time has come.
    pub(super) fn settle(&mut self) {
        loop {
            self.handle_lost();
            if !self.settle_once() && !self.links.has_lost() {
                break;
            }
        }
        self.troubles.tell(&self.cluster, &mut self.links);
    }

    /// One step of that; whether there may be another.
    fn settle_once(&mut self) -> bool {
        if let Some(stop) = self.stops.take() {
            self.stop_operation(stop);
            return true;
        }
        match self.phase {
            Phase::Recovery => self.advance_recovery(),
            Phase::Verification(_) => self.advance_verification(),
            Phase::Backup => self.advance_backup(),
            Phase::Stopping => self.advance_stopping(),
            Phase::Secondary(_) | Phase::Service => false,
        }
    }

    /// Begins to be primary. No node is connected then.
    pub(super) fn play_primary(&mut self) {
        self.links.forget_all_but(None);
        self.election.begin(&mut self.cluster);
        // With a partition of the network in two, each part would start without the other.
        self.recovery.forbid_start();
        info!(master = ?self.cluster.id, "playing the primary master, recovering the cluster");
        self.begin_recovery();
        election::dial_rivals(&self.cluster, &mut self.links);
    }

    /// Another master is primary. `connection` leads to it, if there is one.
    pub(super) fn become_secondary(&mut self, primary: Address, connection: Option<ConnectionId>) {
        info!(%primary, "playing a secondary master");
        self.links.forget_all_but(connection);
        self.cluster.forget_nodes();
        self.cluster.members.add_master(&primary);
        self.transactions.reset();
        self.cluster.readiness.reset();
        self.packs = Packs::default();
        self.recovery.forget_run();
        self.troubles = Troubles::default();
        self.stops = None;
        self.backup.forget(&mut self.links);
        let secondary = Secondary::new(&self.cluster, &mut self.links, primary, connection);
        self.phase = Phase::Secondary(secondary);
    }

    /// Finds the newest partition table.
    fn begin_recovery(&mut self) {
        self.phase = Phase::Recovery;
        self.recovery.begin();
        self.troubles.begin_recovery(&mut self.links, self.recovery.number());
        self.backup.forget(&mut self.links);
        self.cluster.forget_table();
        self.cluster.set_state(&mut self.links, ClusterState::Recovering);
        for (_, connection) in self.cluster.members.identified(NodeType::Storage) {
            self.recovery.ask(&mut self.links, connection);
        }
    }

    fn advance_recovery(&mut self) -> bool {
        let Master { cluster, links, recovery, backup, .. } = self;
        let is_ended = recovery.advance(cluster, links, backup);
        if is_ended {
            self.begin_verification();
        }
        is_ended
    }

    /// Finds out what was being committed.
    fn begin_verification(&mut self) {
        info!("verifying what was being committed");
        self.cluster.set_state(&mut self.links, ClusterState::Verifying);
        self.transactions.reset();
        let Master { cluster, links, recovery, backup, .. } = self;
        let tables = recovery.take_tables();
        let verification = Verification::begin(cluster, links, backup.is_there(), tables);
        self.phase = Phase::Verification(verification);
    }

    fn advance_verification(&mut self) -> bool {
        let Master { phase: Phase::Verification(verification), cluster, links, .. } = self else {
            return false;
        };
        if verification.is_waiting() {
            return false;
        }
        let parts = (&mut self.transactions, &mut self.packs);
        if !verification.advance(cluster, links, parts) {
            self.begin_operation();
        } else if verification.knows_last_ids() {
            let found = verification.take_old_copies();
            self.troubles.old_copies_found(found, self.recovery.truncate_tid());
            self.recovery.truncated();
            if !self.backup.is_there() {
                self.troubles.started_after(&self.cluster, self.recovery.last_tid());
            }
        }
        true
    }

    /// Clients are served from now on, or the cluster follows another one.
    fn begin_operation(&mut self) {
        let is_empty = self.cluster.last_tid == Tid::ZERO;
        if !self.backup.is_there() && self.cluster.settings.begins_as_backup && is_empty {
            self.backup.become_empty(&self.cluster.table);
        }
        if self.backup.is_there() {
            self.phase = Phase::Backup;
            self.troubles.follows();
            self.backup.begin(&mut self.cluster, &mut self.links);
        } else {
            info!(last_tid = %self.cluster.last_tid, "the cluster is running");
            self.phase = Phase::Service;
            self.cluster.set_state(&mut self.links, ClusterState::Running);
        }
        self.troubles.begin_operation();
        for (storage, _) in self.cluster.members.identified(NodeType::Storage) {
            if self.cluster.members.is_running(storage) {
                let Master { cluster, links, backup, .. } = &mut *self;
                backup.start_storage(cluster, links, storage);
            }
        }
        if self.cluster.table.is_unused() {
            // From now on a storage without a table is none of those that this one has cells of.
            self.cluster.tell_cells(&mut self.links, Vec::new(), true);
        }
        // The table that was found may have some. Storages may have said before now that they know
        // it, and do not say so again.
        self.drop_fed_cells();
    }

    /// Ends operation, and recovers the cluster again.
    fn stop_operation(&mut self, stop: Stop) {
        let truncate = match stop {
            Stop::Truncate(tid) | Stop::LeaveBackup(tid) => Some(tid),
            Stop::NotOperational | Stop::Unsettled => None,
        };
        match stop {
            Stop::NotOperational => {
                warn!("partitions cannot be read any more, the cluster stops operating");
            }
            Stop::Unsettled => warn!(
                "a storage was lost that does not know which others are up to date: the cluster \
                 stops operating until it is back, or an operator starts it"
            ),
            Stop::Truncate(_) | Stop::LeaveBackup(_) => {}
        }
        if matches!(self.phase, Phase::Stopping) {
            // What is being committed cannot be any more.
            return self.transactions.reset();
        }
        if !matches!(self.phase, Phase::Service | Phase::Backup | Phase::Verification(_)) {
            return;
        }
        self.recovery.operation_stopped(&self.cluster, stop);
        self.packs = Packs::default();
        self.cluster.readiness.reset();
        self.transactions.reset();
        for (_, client) in self.cluster.members.identified(NodeType::Client) {
            self.links.notify(client, StopOperation {});
            self.close(client);
        }
        let mut told = Vec::new();
        for (id, connection) in self.cluster.members.identified(NodeType::Storage) {
            // A storage drops what it was about to answer.
            self.links.give_up_answers(connection);
            self.links.notify(connection, StopOperation {});
            if let Some(tid) = truncate {
                self.links.notify(connection, Truncate { tid });
            }
            if let Some(node) = self.cluster.members.get_mut(id)
                && node.state == NodeState::Running
            {
                node.state = NodeState::Pending;
                told.push(node.told(id));
            }
        }
        self.cluster.tell_nodes(&mut self.links, &told);
        self.begin_recovery();
        self.challenge_again();
    }

    fn advance_backup(&mut self) -> bool {
        let Master { cluster, links, backup, .. } = self;
        self.stops = backup.advance(cluster, links).map(Stop::LeaveBackup);
        self.stops.is_some()
    }

    /// The cluster shuts down: what is being committed is, and then all nodes end.
    pub(super) fn begin_stopping(&mut self) {
        info!("an operator stops the cluster");
        self.phase = Phase::Stopping;
        self.cluster.set_state(&mut self.links, ClusterState::Stopping);
        // An error would only make clients try again.
        self.cluster.readiness.close();
        self.links.push(Output::Wake { alarm: STOPPING_ALARM, after: OPEN_TIME_MAX });
    }

    /// The time of an alarm has come: storages are looked at. Or clients have had enough time to
    /// end their transactions before the cluster stops.
    pub fn woken(&mut self, alarm: u64) {
        self.troubles.look(&mut self.cluster, &mut self.links, alarm);
        if alarm == STOPPING_ALARM && matches!(self.phase, Phase::Stopping) {
            for ttid in self.transactions.unfinished() {
                warn!(%ttid, "the cluster stops, dropping a transaction that a client leaves open");
                self.abort(ttid, Vec::new());
            }
        }
        self.settle();
    }

    /// Ends all nodes when nothing is being committed any more.
    fn advance_stopping(&mut self) -> bool {
        if !self.transactions.is_empty() || self.links.outputs().contains(&Output::Exit) {
            return false;
        }
        for (id, connection) in self.cluster.members.identified(NodeType::Storage) {
            let Some(node) = self.cluster.members.get(id) else { continue };
            let information = NodeInformation {
                node_type: NodeType::Storage,
                address: node.address.clone(),
                id: Some(id),
                state: NodeState::Down,
                id_timestamp: None,
            };
            let timestamp = self.cluster.clock.stamp();
            self.links
                .notify(connection, NotifyNodeInformation { timestamp, nodes: vec![information] });
        }
        self.links.forget_all_but(None);
        self.links.push(Output::Exit);
        false
    }
}
