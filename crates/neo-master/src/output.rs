//! What a master asks its driver to do.

use std::time::Duration;

use bytes::Bytes;
use zodium_neo::{Address, ConnectionId};

/// A task for the driver. Tasks are in order.
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
    /// End the process: the cluster has stopped, or an operator has stopped this master.
    Exit,
}
