//! What the master says of nodes and of the cluster.

use tracing::info;
use zodium_neo::messages::NotifyNodeInformation;
use zodium_neo::{ClusterState, NodeState, NodeType};

use crate::handling::Handled;
use crate::peer::Role;
use crate::{Exit, Node};

impl Node {
    pub(super) fn nodes_told(&mut self, message: NotifyNodeInformation) -> Handled {
        let NotifyNodeInformation { timestamp, nodes } = message;
        self.members.note(timestamp, &nodes);
        for node in nodes {
            if let (NodeType::Master, Some(address)) = (node.node_type, &node.address) {
                match node.state {
                    NodeState::Unknown => self.masters.remove(address),
                    NodeState::Down | NodeState::Running | NodeState::Pending => {
                        self.masters.add(address);
                    }
                }
            }
            let Some(id) = node.id else { continue };
            if Some(id) == self.id {
                match node.state {
                    NodeState::Down => self.exit(Exit::Stopped),
                    NodeState::Unknown => self.exit(Exit::Erase),
                    NodeState::Running | NodeState::Pending => {}
                }
            } else if node.node_type == NodeType::Client && node.state != NodeState::Running {
                // The client does not come back under this id: its votes are worth nothing.
                self.abort_for(id);
            }
            if node.state == NodeState::Unknown {
                self.close_connections_of(id);
            }
        }
        self.identify_waiting();
        self.nodes_changed();
        Ok(())
    }

    fn close_connections_of(&mut self, id: zodium_neo::NodeId) {
        let is_its = |role: &Role| match role {
            Role::Client { node } => *node == id,
            Role::Storage { node } => *node == Some(id),
            _ => false,
        };
        for connection in self.peers.with(is_its) {
            self.close(connection);
        }
    }

    pub(super) fn cluster_state_told(&mut self, state: ClusterState) {
        info!(%state, "the state of the cluster");
        if state == ClusterState::StoppingBackup {
            self.stop_backup();
        }
    }
}
