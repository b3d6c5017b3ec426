//! What the peers of a master are, and what they are asked.

use zodium_neo::{Address, NodeId, Output, TableId};
use zodium_types::Tid;

/// The connections of a master.
pub(crate) type Links = zodium_neo::Links<Role, Asked, Output>;

/// What a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A node that has not identified itself.
    Stranger,
    /// A secondary master, which has identified itself.
    Secondary { address: Address },
    /// A master that this one dialled in an election.
    Rival { address: Address },
    /// The primary master, which this secondary master dialled.
    Primary { address: Address, is_accepted: bool },
    /// A master of the upstream cluster, which this one dialled.
    Upstream,
    /// A storage that has identified itself.
    Storage(NodeId),
    /// A client that has identified itself.
    Client(NodeId),
    /// An admin that has identified itself.
    Admin(NodeId),
}

/// A request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// RequestIdentification.
    Identification,
    /// AskRecovery, in the recovery with this number.
    Recovery(u64),
    /// AskPartitionTable, in the recovery with this number.
    Table(u64),
    /// Ping, after this version of the table was sent.
    Known(TableId),
    /// AskLockedTransactions.
    Locked,
    /// Ping, to see whether the storage answers.
    Alive,
    /// AskFinalTID.
    FinalTid(Tid),
    /// Ping, after ValidateTransaction.
    Committed,
    /// AskLastIDs.
    LastIds,
    /// AskLastIDs, to a storage without cells: it is cut if that was ordered, and decides nothing.
    Cut,
    /// AskPackOrders, in the verification.
    Packs,
    /// AskPackOrders, of packs that are completed, for the question with this number.
    OldPacks(u64),
    /// AskLastTransaction, to the upstream cluster.
    UpstreamLast,
    /// AskPackOrders, to the upstream cluster; storages hear of those from this one on.
    UpstreamPacks(Tid),
}
