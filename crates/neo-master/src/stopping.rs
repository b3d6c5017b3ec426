//! The shutdown of the cluster: transactions that are being committed are, and then all nodes end.

use tracing::info;
use zodium_neo::messages::{NodeInformation, NotifyNodeInformation};
use zodium_neo::{ClusterState, NodeState, NodeType};

use crate::Master;
use crate::Output;
use crate::Phase;
use crate::peer::Role;

impl Master {
    pub(crate) fn begin_stopping(&mut self) {
        info!("an operator stops the cluster");
        self.phase = Phase::Stopping;
        self.set_state(ClusterState::Stopping);
        // An error would only make clients try again.
        self.readiness.close();
    }

    /// Ends all nodes when nothing is being committed any more.
    pub(crate) fn advance_stopping(&mut self) -> bool {
        if !self.transactions.is_empty() || self.outputs.contains(&Output::Exit) {
            return false;
        }
        for (id, connection) in self.members.identified(NodeType::Storage) {
            let Some(node) = self.members.get(id) else { continue };
            let information = NodeInformation {
                node_type: NodeType::Storage,
                address: node.address.clone(),
                id: Some(id),
                state: NodeState::Down,
                id_timestamp: None,
            };
            let timestamp = self.clock.stamp();
            self.notify(connection, NotifyNodeInformation { timestamp, nodes: vec![information] });
        }
        for connection in self.peers.with(|role| *role != Role::Leaving) {
            if let Some(peer) = self.peers.get_mut(connection) {
                peer.role = Role::Leaving;
            }
            self.outputs.push(Output::Close { connection });
        }
        self.outputs.push(Output::Exit);
        false
    }
}
