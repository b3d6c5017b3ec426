//! The nodes of a cluster and their states.

use crate::values::{Address, NodeId, NodeState, NodeType};
use crate::wire::record;

record! {
    /// What the primary master knows of a node.
    pub struct NodeInformation {
        /// Its kind.
        node_type: NodeType,
        /// Where it listens; clients do not.
        address: Option<Address>,
        /// Its id; `None` of a master that has not been met.
        id: Option<NodeId>,
        /// Its state.
        state: NodeState,
        /// When the master identified it, in seconds since 1970. The node says it when it
        /// connects to others.
        id_timestamp: Option<f64>,
    }

    /// Tells of nodes: all that the receiver may know first, itself at the head, then only
    /// changes. M to any.
    pub struct NotifyNodeInformation {
        /// When the master sent it, in seconds since 1970; strictly increasing.
        timestamp: f64,
        /// The nodes.
        nodes: Vec<NodeInformation>,
    }

    /// Asks for the nodes. ctl to A.
    pub struct AskNodeList {
        /// Of this kind only.
        node_type: Option<NodeType>,
    }

    /// The nodes.
    pub struct AnswerNodeList {
        /// The nodes.
        nodes: Vec<NodeInformation>,
    }

    /// Stops a storage or a secondary master ([`NodeState::Down`]), or drops a stopped storage
    /// ([`NodeState::Unknown`]). ctl to A to M.
    pub struct SetNodeState {
        /// The node.
        id: NodeId,
        /// Its new state.
        state: NodeState,
    }

    /// Makes pending storages running, for the next tweak of the partition table. ctl to A to M.
    pub struct AddPendingNodes {
        /// The storages.
        ids: Vec<NodeId>,
    }
}
