//! Metrics of a storage, for monitoring.

use zodium_types::{Counter, Distribution, Durations, Sizes};

use crate::Database;
use crate::commit::{CommitStatus, LockWait};
use crate::pack_status::PackStatus;

/// Most lock waits reported at once: finding them holds the commit mutex.
const WAITS_MAX: usize = 100;

/// Metrics that the log writer counts.
#[derive(Debug, Default)]
pub(crate) struct WriterMetrics {
    /// Number of transactions in each batch.
    pub(crate) batches: Sizes,
    /// Time to write and sync a batch.
    pub(crate) appends: Durations,
    /// Writes and syncs that failed, after which commits were refused.
    pub(crate) write_failures: Counter,
    /// Number of successful reopenings after such a failure.
    pub(crate) reopenings: Counter,
}

/// Metrics of a storage since it was opened.
#[derive(Clone, Debug)]
pub struct StorageMetrics {
    /// The current state of the commit machine.
    pub commits: CommitStatus,
    /// Number of transactions in each batch, which has one sync.
    pub batches: Distribution,
    /// Time to write and sync a batch, in seconds.
    pub appends: Distribution,
    /// Time of the syncs alone, in seconds.
    pub syncs: Distribution,
    /// Writes and syncs that failed, after which commits were refused.
    pub write_failures: u64,
    /// Number of successful reopenings after such a failure.
    pub reopenings: u64,
    /// The progress and results of packs.
    pub pack: PackStatus,
}

impl Database {
    /// The current metrics.
    pub fn metrics(&self) -> StorageMetrics {
        StorageMetrics {
            commits: self.commit_status(),
            batches: self.metrics.batches.distribution(),
            appends: self.metrics.appends.distribution(),
            syncs: self.store.sync_durations(),
            write_failures: self.metrics.write_failures.value(),
            reopenings: self.metrics.reopenings.value(),
            pack: self.packs.status(),
        }
    }

    /// Whether the storage was told to close.
    pub fn is_closing(&self) -> bool {
        self.commits.is_stopping()
    }

    /// The lock waits: waiter, key, and the earliest transaction on the key. At most a hundred.
    pub fn lock_waits(&self) -> Vec<LockWait> {
        self.commits.machine().lock_waits(WAITS_MAX)
    }
}
