//! The server, or the node of a cluster, that the connections of a database use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::MariaAddress;
use super::fence::Fence;
use super::trouble::Trouble;
use crate::driver::Error;

/// How long a connection that is lost is tried to be made again.
const RECONNECTING: Duration = Duration::from_secs(60);

/// What the connections of one database share.
#[derive(Debug)]
pub(crate) struct MariaServer {
    pub(super) address: MariaAddress,
    current: Mutex<Current>,
    /// The row of this process after its last commit.
    written: Mutex<Option<String>>,
    trouble: Trouble,
    /// Whether a thread looks whether it is back. It orders nothing else.
    is_looked_for: AtomicBool,
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
        let (current, written, trouble, is_looked_for) = Default::default();
        MariaServer { address, current, written, trouble, is_looked_for }
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

    /// Why the server serves nothing now, if so.
    pub(crate) fn obstacle(&self) -> Option<String> {
        self.trouble.obstacle()
    }

    /// Whether the caller is to look whether it is back; it calls [`MariaServer::has_looked`] then.
    pub(crate) fn may_look(&self) -> bool {
        !self.is_looked_for.swap(true, Ordering::Relaxed)
    }

    /// Notes the end of a look.
    pub(crate) fn has_looked(&self) {
        self.is_looked_for.store(false, Ordering::Relaxed);
    }

    /// Notes that no host takes a connection.
    pub(super) fn note_failure(&self, error: &Error) {
        self.trouble.note(&self.address, error);
    }

    /// Notes that a host has carried out a statement.
    pub(super) fn note_success(&self) {
        self.trouble.end(&self.address);
    }

    /// How long a lost connection is tried to be made again.
    pub(crate) fn patience(&self) -> Duration {
        RECONNECTING
    }
}
