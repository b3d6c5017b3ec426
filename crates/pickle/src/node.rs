//! Nodes of the pickle machine's arena: values whose parts are other nodes, by index.

use crate::{Construction, Value};

/// A node's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(pub(crate) u32);

/// A value whose parts are other nodes.
pub(crate) enum Node<'a> {
    /// Anything without parts.
    Leaf(Value<'a>),
    List(Vec<NodeId>),
    Tuple(Vec<NodeId>),
    /// Keys and values in turn.
    Dict(Vec<NodeId>),
    Object(Box<ObjectNode>),
    Persistent(NodeId),
}

/// The parts of an [`Object`](crate::Object).
pub(crate) struct ObjectNode {
    pub(crate) construction: Construction,
    pub(crate) callable: NodeId,
    pub(crate) arguments: NodeId,
    pub(crate) items: Vec<NodeId>,
    /// Keys and values in turn.
    pub(crate) entries: Vec<NodeId>,
    pub(crate) state: Option<NodeId>,
}
