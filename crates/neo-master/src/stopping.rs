//! The shutdown of the cluster: transactions that are being committed are, and then all nodes end.

use tracing::info;
use zodium_neo::messages::{NodeInformation, NotifyNodeInformation};
use zodium_neo::{ClusterState, NodeState, NodeType};

use crate::Master;
use crate::Phase;

impl Master {
    pub(crate) fn begin_stopping(&mut self) {
        info!("an operator stops the cluster");
        self.phase = Phase::Stopping;
        self.cluster.set_state(&mut self.links, ClusterState::Stopping);
        // An error would only make clients try again.
        self.readiness.close();
    }

    /// Ends all nodes when nothing is being committed any more.
    pub(crate) fn advance_stopping(&mut self) -> bool {
        if !self.transactions.is_empty() || self.links.is_exiting() {
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
        self.links.exit();
        false
    }
}
