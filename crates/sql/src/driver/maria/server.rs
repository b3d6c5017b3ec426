//! The server, or the node of a cluster, that the connections of a database use.

use std::time::Duration;

use parking_lot::Mutex;

use super::MariaAddress;
use super::fence::Fence;

/// How long a connection that is lost is tried to be made again.
const RECONNECTING: Duration = Duration::from_secs(60);

/// What the connections of one database share.
#[derive(Debug)]
pub(crate) struct MariaServer {
    pub(super) address: MariaAddress,
    current: Mutex<Current>,
    /// The row of this process after its last commit.
    written: Mutex<Option<String>>,
}

/// The host in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Current {
    /// Its place in the list of hosts.
    pub(super) host: usize,
    /// Whether the writing connection is there.
    pub(super) is_written: bool,
    /// Grows when the writing connection moves to another host: the others follow.
    pub(super) epoch: u64,
}

impl MariaServer {
    pub(crate) fn new(address: MariaAddress) -> MariaServer {
        MariaServer { address, current: Mutex::default(), written: Mutex::default() }
    }

    pub(crate) fn address(&self) -> &MariaAddress {
        &self.address
    }

    pub(super) fn current(&self) -> Current {
        *self.current.lock()
    }

    /// Notes where the writing connection is.
    pub(super) fn moved(&self, host: usize) -> Current {
        let mut current = self.current.lock();
        if current.host != host {
            *current = Current { host, epoch: current.epoch + 1, is_written: true };
        }
        current.is_written = true;
        *current
    }

    /// Notes a commit of the writing connection, before it is acknowledged.
    pub(super) fn note_written(&self, fence: &Fence) {
        *self.written.lock() = Some(fence.value(fence.serial));
    }

    /// Whether a host with this row has all that was acknowledged.
    pub(super) fn is_whole(&self, row: Option<String>) -> bool {
        *self.written.lock() == row
    }

    /// How long a lost connection is tried to be made again.
    pub(crate) fn patience(&self) -> Duration {
        RECONNECTING
    }
}
