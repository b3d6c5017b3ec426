//! The commands of operators, which admins relay.

mod checks;
mod cluster;
mod nodes;
mod table;

use zodium_neo::messages::Error as ErrorMessage;
use zodium_neo::{ClusterState, ConnectionId, ErrorCode, Message};

use crate::Master;
use crate::handling::{Handled, Refusal};

impl Master {
    /// Handles a message of an admin.
    pub(crate) fn admin_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        match message {
            Message::SetClusterState(message) => {
                self.set_cluster_state(connection, id, message.state)
            }
            Message::SetNodeState(message) => self.set_node_state(connection, id, &message),
            Message::AddPendingNodes(message) => self.add_nodes(connection, id, &message.ids),
            Message::TweakPartitionTable(message) => self.tweak_table(connection, id, &message),
            Message::SetNumReplicas(message) => {
                self.set_num_replicas(connection, id, message.replicas)
            }
            Message::CheckReplicas(message) => self.check_replicas(connection, id, &message),
            Message::Repair(message) => self.repair(connection, id, &message),
            Message::Truncate(message) => self.truncate(connection, id, message.tid),
            Message::FlushLog(_) => {
                self.flush_logs(connection);
                Ok(())
            }
            other => self.any_says(connection, id, &other),
        }
    }

    /// A command is carried out.
    fn acknowledge(&mut self, connection: ConnectionId, id: u32, text: &str) {
        self.links.answer(connection, id, ErrorMessage { code: ErrorCode::Ack, message: text });
    }

    /// Refuses a command for storages while they do not operate.
    fn require_operating(&self, command: &str) -> Handled {
        match self.cluster.state() {
            ClusterState::StartingBackup | ClusterState::BackingUp => Ok(()),
            _ => self.require_running(command),
        }
    }

    /// Refuses a command while the cluster does not run.
    fn require_running(&self, command: &str) -> Handled {
        if self.cluster.state() == ClusterState::Running {
            return Ok(());
        }
        Err(Refusal::denied(format!(
            "{command} RPC can not be used in {} state",
            self.cluster.state()
        )))
    }
}
