//! Operation: its begin and end, and which storages take part in it.

use tracing::{info, warn};
use zodium_neo::messages::{StopOperation, Truncate};
use zodium_neo::{ClusterState, ConnectionId, NodeId, NodeState, NodeType};
use zodium_types::Tid;

use crate::Master;
use crate::{Phase, Stop};

impl Master {
    /// Clients are served from now on, or the cluster follows another one.
    pub(crate) fn begin_operation(&mut self) {
        let is_empty = self.cluster.last_tid == Tid::ZERO;
        if !self.backup.is_there() && self.cluster.settings.begins_as_backup && is_empty {
            self.backup.become_empty(&self.cluster.table);
        }
        if self.backup.is_there() {
            self.phase = Phase::Backup;
            self.backup.begin(&mut self.cluster, &mut self.links);
        } else {
            info!(last_tid = %self.cluster.last_tid, "the cluster is running");
            self.phase = Phase::Service;
            self.cluster.set_state(&mut self.links, ClusterState::Running);
        }
        for (storage, _) in self.cluster.members.identified(NodeType::Storage) {
            if self.cluster.members.is_running(storage) {
                self.start_storage(storage);
            }
        }
        // The table that was found may have some. Storages may have said before now that they know
        // it, and do not say so again.
        self.drop_fed_cells();
    }

    /// Tells a storage to operate.
    pub(crate) fn start_storage(&mut self, storage: NodeId) {
        if self.cluster.members.connection_of(storage).is_some() {
            self.readiness.start(storage);
            self.backup.tell_operation(&self.cluster, &mut self.links, storage);
        }
    }

    /// A storage operates.
    pub(crate) fn storage_ready(&mut self, storage: NodeId) {
        if !self.readiness.set_ready(storage) {
            return;
        }
        self.packs.tell_signed_to(&self.cluster, &mut self.links, storage, Tid::ZERO);
        self.retry_delayed();
        self.order_all();
    }

    /// A storage does not take part any more. The table says so already.
    pub(crate) fn storage_gone(&mut self, connection: ConnectionId, storage: NodeId) {
        self.readiness.remove(storage);
        self.transactions.storage_left(storage);
        self.commit_locked();
        self.packs.left(&self.cluster, &mut self.links, connection);
        self.packs.may_be_completed(&self.cluster, &mut self.links);
        self.retry_delayed();
        self.order_all();
    }

    /// Ends operation, and recovers the cluster again.
    pub(crate) fn stop_operation(&mut self, stop: Stop) {
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
        // But not if storages that are away could keep what is cut.
        self.may_start = match stop {
            Stop::NotOperational => self.truncate_tid.is_none(),
            Stop::Truncate(_) | Stop::Unsettled => false,
            Stop::LeaveBackup(tid) => tid >= self.cluster.last_tid,
        };
        self.may_create = false;
        self.last_table = self.cluster.table.id();
        self.packs = Default::default();
        self.readiness.reset();
        self.transactions.reset();
        for (_, client) in self.cluster.members.identified(NodeType::Client) {
            self.links.notify(client, StopOperation {});
            self.close(client);
        }
        let mut told = Vec::new();
        for (id, connection) in self.cluster.members.identified(NodeType::Storage) {
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
}
