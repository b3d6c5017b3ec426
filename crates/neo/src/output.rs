//! What a node without a database asks its driver to do.

use std::time::Duration;

use bytes::Bytes;

use crate::{Address, ConnectionId};

/// What all drivers do.
pub trait LinkOutput {
    /// Connect to an address after a pause.
    fn dial(connection: ConnectionId, address: Address, after: Duration) -> Self;

    /// Send a packet.
    fn send(connection: ConnectionId, packet: Bytes) -> Self;

    /// Send what there is to send, and close.
    fn close(connection: ConnectionId) -> Self;
}

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

impl LinkOutput for Output {
    fn dial(connection: ConnectionId, address: Address, after: Duration) -> Output {
        Output::Dial { connection, address, after }
    }

    fn send(connection: ConnectionId, packet: Bytes) -> Output {
        Output::Send { connection, packet }
    }

    fn close(connection: ConnectionId) -> Output {
        Output::Close { connection }
    }
}
