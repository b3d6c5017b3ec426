//! What a node without a database asks its driver to do.

use std::time::Duration;

use bytes::Bytes;

use crate::{Address, ConnectionId};

/// A task for the driver of an admin or a master. Tasks are in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Connect to an address. The driver reports the outcome.
    Dial {
        /// The new connection.
        connection: ConnectionId,
        /// The address.
        address: Address,
        /// A pause before.
        after: Duration,
    },
    /// Send a packet.
    Send {
        /// The connection.
        connection: ConnectionId,
        /// The bytes of the packet.
        packet: Bytes,
    },
    /// Send what there is to send, and close. The driver reports the end.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// Report to the node when a time has passed.
    Wake {
        /// The number to report.
        alarm: u64,
        /// When.
        after: Duration,
    },
    /// End the process: the cluster has stopped, or an operator has stopped this node.
    Exit,
}
