//! The peers of a node: one for each connection.

use zodium_neo::{Address, NodeId};
use zodium_types::Tid;

use crate::ConnectionId;

/// The other end of a connection.
pub(crate) type Peer = zodium_neo::Peer<Role, Asked>;

/// All peers.
pub(crate) type Peers = zodium_neo::Peers<Role, Asked>;

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
    /// The connection is being closed: what comes is ignored.
    Leaving,
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

/// The connection to the primary master.
pub(crate) fn primary(peers: &Peers) -> Option<ConnectionId> {
    peers.with(|role| matches!(role, Role::Master { is_primary: true, .. })).first().copied()
}

/// The newest connection of a client.
pub(crate) fn client(peers: &Peers, id: NodeId) -> Option<ConnectionId> {
    peers.with(|role| *role == Role::Client { node: id }).last().copied()
}

/// Whether another storage has accepted a connection, or has made it.
pub(crate) fn is_ready(peers: &Peers, connection: ConnectionId) -> bool {
    let role = peers.get(connection).map(|peer| &peer.role);
    matches!(role, Some(Role::Source { is_ready: true, .. } | Role::Storage { .. }))
}
