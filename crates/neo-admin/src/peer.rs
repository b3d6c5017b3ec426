//! The peers of an admin: one for each connection.

use zodium_neo::{Address, ConnectionId};

/// The other end of a connection.
pub(crate) type Peer = zodium_neo::Peer<Role, Asked>;

/// All peers.
pub(crate) type Peers = zodium_neo::Peers<Role, Asked>;

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
