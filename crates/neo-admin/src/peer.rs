//! The peers of an admin: one for each connection.

use rustc_hash::FxHashMap;
use zodium_neo::{Address, ConnectionId, MessageIds};

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
    /// A master that the admin dialled; identified when `is_primary`.
    Master { address: Address, is_primary: bool },
    /// A command of an operator; or an admin that has not identified itself.
    Operator,
    /// The admin of a backup cluster: its place among those of the settings.
    Backup { place: usize },
    /// The admin of the upstream cluster, which this one has dialled.
    Upstream { is_accepted: bool },
    /// The connection is being closed: what comes is ignored.
    Leaving,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// RequestIdentification.
    Identification,
    /// AskClusterState.
    State,
    /// AskRecovery, for the report to operators.
    Recovery,
    /// AskLastTransaction, for the report to operators.
    LastTransaction,
    /// The request of a peer, which gets the answer.
    Relayed { connection: ConnectionId, id: u32 },
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
    /// The connection to the primary master.
    pub(crate) primary: Option<ConnectionId>,
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

    /// The number of operators' connections.
    pub(crate) fn operators(&self) -> usize {
        self.all.values().filter(|peer| peer.role == Role::Operator).count()
    }
}
