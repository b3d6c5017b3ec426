//! The nodes of the cluster, as the primary master tells.

use rustc_hash::FxHashMap;
use zodium_neo::messages::NodeInformation;
use zodium_neo::{Address, NodeId, NodeState, NodeType};

/// The nodes of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Members {
    nodes: FxHashMap<NodeId, NodeInformation>,
    /// The time of the last message about nodes.
    timestamp: Option<f64>,
}

/// What a node says of itself, compared with what the master says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The master says the same.
    Yes,
    /// The master has not said so yet.
    NotYet,
    /// The master says something else.
    No,
}

impl Members {
    /// Notes what the master says.
    pub(crate) fn note(&mut self, timestamp: f64, nodes: &[NodeInformation]) {
        self.timestamp = Some(timestamp);
        for node in nodes {
            let Some(id) = node.id else { continue };
            if node.state == NodeState::Unknown {
                self.nodes.remove(&id);
            } else {
                self.nodes.insert(id, node.clone());
            }
        }
    }

    /// Compares what a node says of itself.
    pub(crate) fn knows(&self, id: NodeId, kind: NodeType, id_timestamp: Option<f64>) -> Known {
        let known = self.nodes.get(&id).filter(|node| {
            node.node_type == kind && node.id_timestamp == id_timestamp && id_timestamp.is_some()
        });
        match (known, self.timestamp, id_timestamp) {
            (Some(_), ..) => Known::Yes,
            (None, Some(heard), Some(said)) if heard < said => Known::NotYet,
            (None, None, Some(_)) => Known::NotYet,
            _ => Known::No,
        }
    }

    /// What the master gave this node as its time of identification.
    pub(crate) fn id_timestamp(&self, id: NodeId) -> Option<f64> {
        self.nodes.get(&id).and_then(|node| node.id_timestamp)
    }

    /// Where a node listens, if it is running.
    pub(crate) fn running_address(&self, id: NodeId) -> Option<&Address> {
        let node = self.nodes.get(&id).filter(|node| node.state == NodeState::Running)?;
        node.address.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32, state: NodeState, id_timestamp: f64) -> NodeInformation {
        NodeInformation {
            node_type: NodeType::Client,
            address: None,
            id: NodeId::of(NodeType::Client, number),
            state,
            id_timestamp: Some(id_timestamp),
        }
    }

    #[test]
    fn a_node_is_known_by_its_time() {
        let (mut members, kind) = (Members::default(), NodeType::Client);
        let one = NodeId::of(kind, 1).unwrap();
        assert_eq!(members.knows(one, kind, Some(1.5)), Known::NotYet);
        members.note(2.0, &[node(1, NodeState::Running, 1.5)]);
        assert_eq!(members.knows(one, kind, Some(1.5)), Known::Yes);
        assert_eq!(members.knows(one, NodeType::Storage, Some(1.5)), Known::No);
        assert_eq!(members.knows(one, kind, Some(1.0)), Known::No);
        assert_eq!(members.knows(one, kind, None), Known::No);
        assert_eq!(members.knows(one, kind, Some(2.5)), Known::NotYet);
        members.note(3.0, &[node(1, NodeState::Unknown, 1.5)]);
        assert_eq!(members.knows(one, kind, Some(1.5)), Known::No);
    }
}
