//! What a node asks its driver to do.

use zodium_neo::LinkTask;

use super::job::{ReadJob, WriteJob};
use crate::ConnectionId;

/// A task for the driver. Tasks are in order.
#[derive(Debug)]
pub enum Output {
    /// Do something with a connection.
    Link(LinkTask),
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

impl From<LinkTask> for Output {
    fn from(task: LinkTask) -> Output {
        Output::Link(task)
    }
}
