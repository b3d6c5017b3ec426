//! What a node asks its driver to do.

use std::time::Duration;

use bytes::Bytes;

use crate::{Address, ConnectionId};

/// A task for the driver of an admin or a master. Tasks are in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Do something with a connection.
    Link(LinkTask),
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

/// A task with a connection, which the drivers of all nodes do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkTask {
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
}

impl From<LinkTask> for Output {
    fn from(task: LinkTask) -> Output {
        Output::Link(task)
    }
}
