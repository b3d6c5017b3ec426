//! What the peers of an admin are, and what they are asked.

use zodium_neo::{Address, ConnectionId, Output};

/// The connections of an admin.
pub(crate) type Links = zodium_neo::Links<Role, Asked, Output>;

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
}

/// A request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// RequestIdentification.
    Identification,
    /// Ping, to see whether the master answers.
    Alive,
    /// AskClusterState.
    State,
    /// AskRecovery, for the report to operators.
    Recovery,
    /// AskLastTransaction, for the report to operators.
    LastTransaction,
    /// The request of a peer, which gets the answer.
    Relayed { connection: ConnectionId, id: u32 },
}
