//! The peers of a node: one for each connection.

use rustc_hash::FxHashMap;
use zodium_neo::{Address, MessageIds, NodeId};
use zodium_types::Tid;

use crate::ConnectionId;

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its address, for log lines.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The ids of what is sent to it.
    pub(crate) ids: MessageIds,
    /// Requests that it has not answered.
    pub(crate) asked: FxHashMap<u32, Asked>,
}

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

impl Peer {
    pub(crate) fn new(name: String, role: Role) -> Peer {
        Peer { name, role, ids: MessageIds::default(), asked: FxHashMap::default() }
    }
}

/// All peers, by connection.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    all: FxHashMap<ConnectionId, Peer>,
    last: u64,
}

impl Peers {
    /// Adds a peer.
    pub(crate) fn add(&mut self, peer: Peer) -> ConnectionId {
        self.last += 1;
        let connection = ConnectionId::new(self.last);
        self.all.insert(connection, peer);
        connection
    }

    pub(crate) fn get(&self, connection: ConnectionId) -> Option<&Peer> {
        self.all.get(&connection)
    }

    pub(crate) fn get_mut(&mut self, connection: ConnectionId) -> Option<&mut Peer> {
        self.all.get_mut(&connection)
    }

    /// Whether another storage has accepted a connection, or has made it.
    pub(crate) fn is_ready(&self, connection: ConnectionId) -> bool {
        let role = self.get(connection).map(|peer| &peer.role);
        matches!(role, Some(Role::Source { is_ready: true, .. } | Role::Storage { .. }))
    }

    pub(crate) fn remove(&mut self, connection: ConnectionId) -> Option<Peer> {
        self.all.remove(&connection)
    }

    /// The connections whose peers are like that.
    pub(crate) fn like(&self, is_like: impl Fn(&Role) -> bool) -> Vec<ConnectionId> {
        let found = self.all.iter().filter(|(_, peer)| is_like(&peer.role));
        let mut found: Vec<_> = found.map(|(connection, _)| *connection).collect();
        found.sort_unstable();
        found
    }

    /// The connection to the primary master.
    pub(crate) fn primary(&self) -> Option<ConnectionId> {
        self.like(|role| matches!(role, Role::Master { is_primary: true, .. })).first().copied()
    }

    /// The newest connection of a client.
    pub(crate) fn client(&self, id: NodeId) -> Option<ConnectionId> {
        self.like(|role| *role == Role::Client { node: id }).last().copied()
    }
}
