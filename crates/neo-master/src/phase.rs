//! What a master is doing.

use zodium_types::Tid;

use crate::secondary::Secondary;
use crate::verification::Verification;

/// What a master is doing.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Another master is primary.
    Secondary(Secondary),
    /// The election, and then the search for the partition table.
    Recovery,
    /// What was being committed is finished or dropped.
    Verification(Verification),
    /// Clients read and write.
    Service,
    /// The cluster follows another one.
    Backup,
    /// The cluster shuts down.
    Stopping,
}

/// Why operation stops, and the cluster recovers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A partition cannot be read any more.
    NotOperational,
    /// The storages are lost with which the cluster could be started by an earlier partition table.
    Unsettled,
    /// The database is cut after a transaction.
    Truncate(Tid),
    /// The cluster is no backup any more: what is after this transaction is not complete.
    LeaveBackup(Tid),
}
