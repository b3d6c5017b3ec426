//! Commands for the whole cluster: its state, truncation, logs.

use zodium_neo::messages::FlushLog;
use zodium_neo::{ClusterState, ConnectionId, NodeType};
use zodium_types::Tid;

use crate::Master;
use crate::handling::{Handled, Refusal};
use crate::peer::Role;
use crate::{Phase, Stop};

const CHANGED: &str = "Cluster state changed";

impl Master {
    pub(super) fn set_cluster_state(
        &mut self,
        connection: ConnectionId,
        id: u32,
        state: ClusterState,
    ) -> Handled {
        match state {
            ClusterState::Verifying => {
                if !matches!(self.phase, Phase::Recovery) {
                    return Err(Refusal::denied("Can not switch to this state"));
                }
                self.allow_start()?;
                self.acknowledge(connection, id, CHANGED);
            }
            ClusterState::Stopping => {
                self.acknowledge(connection, id, CHANGED);
                self.begin_stopping();
            }
            ClusterState::StartingBackup if matches!(self.phase, Phase::Service) => {
                self.become_backup()?;
                self.acknowledge(connection, id, CHANGED);
            }
            ClusterState::StoppingBackup
                if matches!(self.phase, Phase::Backup) && self.cluster.state() != state =>
            {
                self.backup.require_complete(&self.cluster)?;
                self.acknowledge(connection, id, CHANGED);
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
        Ok(())
    }

    /// The cluster starts with the storages that are there, if that is enough.
    fn allow_start(&mut self) -> Handled {
        let storages = self.cluster.members.identified(NodeType::Storage);
        if storages.is_empty() {
            return Err(Refusal::denied("Cannot exit recovery without any storage node"));
        }
        let entering = storages.iter().find(|(_, connection)| self.links.is_asked(*connection));
        if let Some((storage, _)) = entering {
            return Err(Refusal::denied(format!(
                "Cannot exit recovery now: node {storage} is entering cluster"
            )));
        }
        self.recovery.allow_start();
        Ok(())
    }

    pub(super) fn truncate(&mut self, connection: ConnectionId, id: u32, tid: Tid) -> Handled {
        self.require_running("truncate")?;
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
        self.acknowledge(connection, id, "");
        self.stops = Some(Stop::Truncate(tid));
        Ok(())
    }

    /// Has all nodes write out their logs.
    pub(super) fn flush_logs(&mut self, connection: ConnectionId) {
        let is_node = |role: &Role| {
            matches!(
                role,
                Role::Secondary { .. } | Role::Storage(_) | Role::Client(_) | Role::Admin(_)
            )
        };
        for node in self.links.with(is_node) {
            if node != connection {
                self.links.notify(node, FlushLog {});
            }
        }
    }
}
