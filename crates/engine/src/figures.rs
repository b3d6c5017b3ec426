//! What a storage has done and is doing, for those who watch it.

use zodium_types::{Counter, Distribution, Durations, Sizes};

use crate::Storage;
use crate::commit::{CommitStatus, LockWait};
use crate::pack_status::PackStatus;

/// Most transactions whose waiting is explained at once: it is found out while commits wait.
const WAITS_MAX: usize = 100;

/// Counted by the log writer.
#[derive(Debug, Default)]
pub(crate) struct WriterFigures {
    /// Transactions written together.
    pub(crate) batches: Sizes,
    /// How long it took to write a batch and to sync it.
    pub(crate) appends: Durations,
    /// Writes and syncs that failed, so that commits were refused.
    pub(crate) write_failures: Counter,
    /// How often commits were taken again after that.
    pub(crate) reopenings: Counter,
}

/// Figures of a storage since it was opened.
#[derive(Clone, Debug)]
pub struct StorageFigures {
    /// The commit machine at this moment.
    pub commits: CommitStatus,
    /// Transactions that were written together, with one sync.
    pub batches: Distribution,
    /// How long it took to write and sync a batch, in seconds.
    pub appends: Distribution,
    /// How long the syncs alone took, in seconds.
    pub syncs: Distribution,
    /// Writes and syncs that failed, so that commits were refused.
    pub write_failures: u64,
    /// How often commits were taken again after that.
    pub reopenings: u64,
    /// What packs have done.
    pub pack: PackStatus,
}

impl Storage {
    /// The figures of this moment.
    pub fn figures(&self) -> StorageFigures {
        StorageFigures {
            commits: self.commit_status(),
            batches: self.figures.batches.distribution(),
            appends: self.figures.appends.distribution(),
            syncs: self.store.sync_durations(),
            write_failures: self.figures.write_failures.value(),
            reopenings: self.figures.reopenings.value(),
            pack: self.pack_status.lock().clone(),
        }
    }

    /// Whether it was told to close.
    pub fn is_closing(&self) -> bool {
        self.commits.is_stopping()
    }

    /// Who waits for which lock behind whom; the first hundred.
    pub fn lock_waits(&self) -> Vec<LockWait> {
        self.commits.machine().lock_waits(WAITS_MAX)
    }
}
