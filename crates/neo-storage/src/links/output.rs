//! What a node asks its driver to do.

use std::time::Duration;

use bytes::Bytes;
use zodium_neo::{Address, LinkOutput};

use super::job::{ReadJob, WriteJob};
use crate::ConnectionId;

/// A task for the driver. Tasks are in order.
#[derive(Debug)]
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
    /// Run a job that only reads. Such jobs may run in any order, and side by side.
    Read {
        /// The job.
        job: ReadJob,
        /// Only when most of what was sent to this connection is on its way.
        after_sending: Option<ConnectionId>,
    },
    /// Run a job that writes, after those before it. It sees what they wrote. Several jobs may
    /// share a transaction of the database. A job completes when it is committed.
    Write {
        /// The job.
        job: WriteJob,
        /// Commit to the device before the job completes. Otherwise the system may keep the
        /// commit in memory, as long as the order of commits is kept.
        is_durable: bool,
    },
    /// End the process.
    Exit(Exit),
}

/// Why a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The master says so.
    Stopped,
    /// The master has removed the node from the cluster: the database is to be erased.
    Erase,
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
