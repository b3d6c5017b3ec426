//! What masters say: those of this cluster, and those of the upstream one.

use tracing::{error, info, warn};
use zodium_neo::{Address, ClusterState, ConnectionId, Message, NodeState, NodeType, Request};
use zodium_types::Tid;

use super::Master;
use crate::Phase;
use crate::election;
use crate::handling::{Handled, Refusal};
use crate::identification::Newcomer;
use crate::peer::{Asked, Role};

impl Master {
    /// A master introduces itself: the one that was primary for longer wins.
    pub(super) fn identify_master(&mut self, newcomer: &Newcomer<'_>) -> Handled {
        let address = newcomer.master_address(&self.cluster)?;
        let election = newcomer.request.id_timestamp;
        if matches!(self.phase, Phase::Recovery)
            && self.election.is_won_by(&self.cluster, election, &address)
        {
            self.become_secondary(address, None);
            return Ok(());
        }
        let told = newcomer.admit_master(&mut self.cluster, &mut self.links, &address);
        let Some(told) = told else { return Ok(()) };
        // The connection that this one has made to it is not needed.
        let is_rival =
            |role: &Role| matches!(role, Role::Rival { address: other } if *other == address);
        self.links.with(is_rival).into_iter().for_each(|rival| self.close(rival));
        newcomer.accept_master(&mut self.cluster, &mut self.links, address, told);
        Ok(())
    }

    /// Handles a message of a master that this one dialled in an election.
    pub(super) fn rival_says(&mut self, from: Request, message: Message<'_>) -> Handled {
        let Some(Role::Rival { address }) = self.links.role(from.connection) else { return Ok(()) };
        let address = address.clone();
        match message {
            Message::AcceptIdentification(accepted) => {
                if accepted.node_type != NodeType::Master || accepted.your_id.is_none() {
                    return Err(Refusal::protocol("the identification was accepted by no master"));
                }
                info!(primary = %address, "accepted by the primary master");
                let role = Role::Primary { address: address.clone(), is_accepted: false };
                self.links.set_role(from.connection, role);
                self.become_secondary(address, Some(from.connection));
                self.primary_says(from, accepted.into())
            }
            Message::NotPrimaryMaster(message) => {
                let members = &mut self.cluster.members;
                message.masters.iter().for_each(|known| members.add_master(known));
                let primary = message.primary.and_then(|at| message.masters.get(at as usize));
                let primary = primary.filter(|primary| {
                    let known = members.master(primary);
                    // It may not know yet that this one has won against its primary.
                    **primary != self.cluster.settings.address
                        && known.is_none_or(|master| master.connection.is_none())
                });
                match primary.cloned() {
                    Some(primary) => self.become_secondary(primary, None),
                    None => self.close(from.connection),
                }
                Ok(())
            }
            Message::Error(error) => {
                let refusals = &mut self.election.refusals;
                refusals.log(&address.to_string(), error.code, error.for_log());
                self.close(from.connection);
                Ok(())
            }
            other => self.any_says(from, &other),
        }
    }

    /// Masters that were not met are dialled again while the election goes on.
    pub(super) fn challenge_again(&mut self) {
        if matches!(self.phase, Phase::Recovery) {
            election::challenge_again(&self.cluster, &mut self.links);
        }
    }

    /// A secondary master has left.
    pub(super) fn secondary_left(&mut self, address: &Address) {
        let Some(master) = self.cluster.members.master_mut(address) else { return };
        (master.connection, master.state) = (None, NodeState::Down);
        let told = master.told();
        if !matches!(self.phase, Phase::Secondary(_)) {
            self.cluster.tell_nodes(&mut self.links, &[told]);
            self.challenge_again();
        }
    }

    /// Handles a message of the master that may be primary.
    pub(super) fn primary_says(&mut self, from: Request, message: Message<'_>) -> Handled {
        let Phase::Secondary(secondary) = &mut self.phase else { return Ok(()) };
        let (cluster, links) = (&mut self.cluster, &mut self.links);
        match secondary.primary_says(cluster, links, from.connection, message)? {
            Some(other) => self.any_says(from, &other),
            None => Ok(()),
        }
    }

    /// The connection to the master that may be primary has ended.
    pub(super) fn primary_left(&mut self, connection: ConnectionId, was_accepted: bool) {
        let Phase::Secondary(secondary) = &mut self.phase else { return };
        if !secondary.primary_left(&self.cluster, &mut self.links, connection, was_accepted) {
            self.play_primary();
        }
    }

    /// Handles a message of a master of the upstream cluster.
    pub(super) fn upstream_says(&mut self, from: Request, message: Message<'_>) -> Handled {
        let Master { cluster, links, packs, backup, .. } = self;
        let left = backup.upstream_says(cluster, links, packs, from.connection, message)?;
        let Some(message) = left else { return Ok(()) };
        match (links.answered(from), message) {
            (Some(Asked::UpstreamLast), Message::AnswerLastTransaction(answer)) => {
                if answer.tid < cluster.last_tid {
                    let (upstream, here) = (answer.tid, cluster.last_tid);
                    warn!(%upstream, %here, "the upstream cluster was truncated, or this one was \
                        none of its backups: leaving backup mode, since this one has more");
                    self.leave_backup(Some(upstream));
                } else {
                    backup.upstream_is_at(cluster, links, answer.tid);
                }
                Ok(())
            }
            (Some(Asked::UpstreamPacks(from)), Message::AnswerPackOrders(answer)) => {
                let told = (from, answer.orders);
                backup.upstream_packs_told(cluster, links, packs, told);
                Ok(())
            }
            (_, other) => self.any_says(from, &other),
        }
    }

    /// The connection to the upstream cluster has ended. Clients would not notice that they read
    /// old data.
    pub(super) fn upstream_left(&mut self, connection: ConnectionId) {
        if self.backup.upstream_left(connection) && self.cluster.state() == ClusterState::BackingUp
        {
            error!("the connection to the upstream cluster has ended, connecting again");
            self.close_clients();
            self.backup.begin(&mut self.cluster, &mut self.links);
        }
    }

    /// The upstream cluster, whose last transaction may be known, lacks what this one has: the
    /// cluster will not be a backup any more. But it stays one if that would remove everything.
    pub(super) fn leave_backup(&mut self, upstream: Option<Tid>) {
        match self.backup.require_complete(&self.cluster) {
            Ok(()) => {
                self.troubles.left_backup(upstream, self.cluster.last_tid);
                self.stop_backup();
            }
            Err(refusal) => error!(reason = refusal.text, "the cluster stays a backup"),
        }
    }

    /// The cluster will not be a backup any more. Cells that are behind others catch up first.
    pub(super) fn stop_backup(&mut self) {
        self.backup.begin_stop(&self.cluster, &mut self.links);
        self.close_clients();
        self.cluster.set_state(&mut self.links, ClusterState::StoppingBackup);
        self.order_all();
    }

    /// Orders what storages of a backup lack, in all partitions.
    pub(super) fn order_all(&mut self) {
        self.backup.order_all(&self.cluster, &mut self.links);
    }

    fn close_clients(&mut self) {
        for (_, client) in self.cluster.members.identified(NodeType::Client) {
            self.close(client);
        }
    }
}
