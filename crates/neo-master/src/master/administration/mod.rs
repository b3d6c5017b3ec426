//! The commands of operators, which admins relay.

mod checks;
mod cluster;
mod nodes;
mod table;

use zodium_neo::messages::{Error as ErrorMessage, SetNodeState};
use zodium_neo::{ClusterState, ConnectionId, ErrorCode, Message, NodeId, NodeType, Request};
use zodium_types::Tid;

use self::nodes::StorageChange;
use super::Master;
use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::peer::Links;
use crate::{Phase, Stop};

const CHANGED: &str = "Cluster state changed";

impl Master {
    /// Handles a message of an admin.
    pub(super) fn admin_says(&mut self, from: Request, message: Message<'_>) -> Handled {
        let Master { cluster, links, backup, .. } = self;
        match message {
            Message::SetClusterState(message) => self.set_cluster_state(from, message.state),
            Message::SetNodeState(message) => self.set_node_state(from, &message),
            Message::AddPendingNodes(message) => {
                nodes::add(cluster, links, backup, from, &message.ids)
            }
            Message::TweakPartitionTable(message) => {
                table::tweak(cluster, links, backup, from, &message)
            }
            Message::SetNumReplicas(message) => {
                table::set_replicas(cluster, links, from, message.replicas)
            }
            Message::CheckReplicas(message) => {
                let order = (&message, self.troubles.given_up_until());
                let untold = checks::check_replicas(cluster, links, backup, from, order)?;
                let partitions = message.references.0.iter().map(|(partition, _)| *partition);
                self.troubles.check(partitions);
                untold.iter().for_each(|checked| self.troubles.same(&self.cluster, checked));
                Ok(())
            }
            Message::Repair(message) => nodes::repair(cluster, links, from, &message),
            Message::Truncate(message) => self.truncate(from, message.tid),
            Message::FlushLog(_) => {
                cluster::flush_logs(links, from.connection);
                Ok(())
            }
            other => self.any_says(from, &other),
        }
    }

    fn set_cluster_state(&mut self, request: Request, state: ClusterState) -> Handled {
        match state {
            ClusterState::Verifying => {
                if !matches!(self.phase, Phase::Recovery) {
                    return Err(Refusal::denied("Can not switch to this state"));
                }
                cluster::require_storages(&self.cluster, &self.links)?;
                self.recovery.allow_start();
                acknowledge(&mut self.links, request, CHANGED);
            }
            ClusterState::Stopping => {
                acknowledge(&mut self.links, request, CHANGED);
                self.begin_stopping();
            }
            ClusterState::StartingBackup if matches!(self.phase, Phase::Service) => {
                self.become_backup()?;
                acknowledge(&mut self.links, request, CHANGED);
            }
            ClusterState::StoppingBackup
                if matches!(self.phase, Phase::Backup) && self.cluster.state() != state =>
            {
                self.backup.require_complete(&self.cluster)?;
                acknowledge(&mut self.links, request, CHANGED);
                self.stop_backup();
            }
            ClusterState::StartingBackup | ClusterState::StoppingBackup => {
                return Err(Refusal::denied("Can not switch to this state"));
            }
            ClusterState::Recovering | ClusterState::Running | ClusterState::BackingUp => {
                return Err(Refusal::denied("Invalid state requested"));
            }
        }
        Ok(())
    }

    /// The running cluster becomes a backup.
    fn become_backup(&mut self) -> Handled {
        let has_clients = !self.cluster.members.identified(NodeType::Client).is_empty();
        if has_clients || !self.transactions.is_empty() {
            return Err(Refusal::denied(
                "Can not switch to STARTING_BACKUP state with pending transactions or connected \
                 clients",
            ));
        }
        self.backup.become_running(&mut self.cluster, &mut self.links)?;
        self.phase = Phase::Backup;
        self.troubles.follows();
        Ok(())
    }

    /// All storages cut their databases after a transaction.
    fn truncate(&mut self, request: Request, tid: Tid) -> Handled {
        require_running(&self.cluster, "truncate")?;
        if self.cluster.last_tid <= tid {
            return Err(Refusal::denied("Truncating after last transaction does nothing"));
        }
        if self.transactions.first_tid() > tid {
            return Err(Refusal::denied(
                "Truncating before first transaction is probably not what you intended to do",
            ));
        }
        if !self.packs.signed(tid.next()).approved.is_empty() {
            return Err(Refusal::denied("Can not truncate before an approved pack"));
        }
        acknowledge(&mut self.links, request, "");
        self.stops = Some(Stop::Truncate(tid));
        Ok(())
    }

    fn set_node_state(&mut self, request: Request, message: &SetNodeState) -> Handled {
        let SetNodeState { id: node, state } = *message;
        let Master { cluster, links, .. } = self;
        if cluster.members.master_with_id(node).is_some() {
            return nodes::set_master_state(cluster, links, request, node, state);
        }
        let mut change = StorageChange::new(cluster, node, state)?;
        if let Some(connection) = change.carry_out(cluster, links) {
            self.storage_ended(connection, node);
        }
        change.acknowledge(&mut self.cluster, &mut self.links, request);
        Ok(())
    }

    /// What the end of a storage means for the recovery, and for transactions.
    fn storage_ended(&mut self, connection: ConnectionId, storage: NodeId) {
        self.left_verification(connection);
        if matches!(self.phase, Phase::Recovery) {
            return self.recovery.without(&self.cluster, &mut self.links, storage);
        }
        // Also while the cluster stops: it waits for the transactions that are open.
        if self.cluster.is_operational() {
            self.storage_gone(connection, storage);
        } else {
            self.stops = Some(Stop::NotOperational);
        }
    }
}

/// A command is carried out.
fn acknowledge(links: &mut Links, request: Request, text: &str) {
    links.answer(request, ErrorMessage { code: ErrorCode::Ack, message: text });
}

/// Refuses a command for storages while they do not operate.
fn require_operating(cluster: &Cluster, command: &str) -> Handled {
    match cluster.state() {
        ClusterState::StartingBackup | ClusterState::BackingUp => Ok(()),
        _ => require_running(cluster, command),
    }
}

/// Refuses a command while the cluster does not run.
fn require_running(cluster: &Cluster, command: &str) -> Handled {
    if cluster.state() == ClusterState::Running {
        return Ok(());
    }
    Err(Refusal::denied(format!("{command} RPC can not be used in {} state", cluster.state())))
}
