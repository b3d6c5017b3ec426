//! What the peers of a node are, and what they are asked.

use zodium_neo::{Address, NodeId};
use zodium_types::Tid;

/// What a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A master that this node dialled; identified when `is_primary`.
    Master { address: Address, is_primary: bool },
    /// It has not identified itself.
    Stranger,
    /// A client.
    Client { node: NodeId },
    /// A storage that dialled this node; without an id it is one of a backup cluster.
    Storage { node: Option<NodeId> },
    /// A storage that this node dialled; `is_ready` when it has accepted.
    Source { address: Address, is_ready: bool },
}

/// A request of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// RequestIdentification.
    Identification,
    /// AskUnfinishedTransactions; the partitions are those that were asked for by then.
    Unfinished(u64),
    /// AskPackOrders, after this pack.
    PackOrders(Tid),
    /// AskFetchTransactions or AskFetchObjects, of this replication.
    Fetch,
    /// AskCheckTIDRange or AskCheckSerialRange.
    Check,
}
