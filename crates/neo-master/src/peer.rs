//! The peers of a master: one for each connection.

use rustc_hash::FxHashMap;
use zodium_neo::{Address, ConnectionId, MessageIds, NodeId};
use zodium_types::Tid;

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its address, for log lines.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The ids of what is sent to it.
    pub(crate) ids: MessageIds,
    /// Requests that it has not answered, but for those to lock transactions.
    pub(crate) asked: FxHashMap<u32, Asked>,
}

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
    /// A storage that has identified itself.
    Storage(NodeId),
    /// A client that has identified itself.
    Client(NodeId),
    /// An admin that has identified itself.
    Admin(NodeId),
    /// The connection is being closed: what comes is ignored.
    Leaving,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// RequestIdentification.
    Identification,
    /// AskRecovery.
    Recovery,
    /// AskPartitionTable.
    Table,
    /// AskLockedTransactions.
    Locked,
    /// AskFinalTID.
    FinalTid(Tid),
    /// AskLastIDs.
    LastIds,
    /// AskPackOrders, in the verification.
    Packs,
    /// AskPackOrders, of packs that are completed, for the question with this number.
    OldPacks(u64),
}

impl Peer {
    pub(crate) fn new(name: String, role: Role) -> Peer {
        Peer { name, role, ids: MessageIds::default(), asked: FxHashMap::default() }
    }
}

/// All peers.
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

    pub(crate) fn remove(&mut self, connection: ConnectionId) -> Option<Peer> {
        self.all.remove(&connection)
    }

    /// The connections with a role that `is_one` accepts, oldest first.
    pub(crate) fn with(&self, is_one: impl Fn(&Role) -> bool) -> Vec<ConnectionId> {
        let found = self.all.iter().filter(|(_, peer)| is_one(&peer.role));
        let mut found: Vec<_> = found.map(|(connection, _)| *connection).collect();
        found.sort_unstable();
        found
    }

    /// Whether a peer has requests to answer.
    pub(crate) fn is_asked(&self, connection: ConnectionId) -> bool {
        self.get(connection).is_some_and(|peer| !peer.asked.is_empty())
    }
}
