//! The progress and results of a storage's packs.

use std::time::{Duration, Instant, SystemTime};

use zodium_storage::{PackStep, Packed, StorageError};

use crate::Database;

/// Packs since the storage was opened.
#[derive(Clone, Debug, Default)]
pub struct PackStatus {
    /// The pack in progress.
    pub running: Option<PackRun>,
    /// The last pack that ended.
    pub last: Option<PackEnd>,
    /// Number of packs that succeeded, including those that found nothing to free.
    pub succeeded: u64,
    /// Number of packs that failed.
    pub failed: u64,
}

/// A pack in progress.
#[derive(Clone, Copy, Debug)]
pub struct PackRun {
    /// When it began.
    pub started: Instant,
    /// The current step, how much of it is done, and its total (objects while marking, bytes while
    /// copying). `None` at first.
    pub progress: Option<(PackStep, u64, u64)>,
}

/// A pack that has ended.
#[derive(Clone, Debug)]
pub struct PackEnd {
    /// When it ended.
    pub at: SystemTime,
    /// How long it took.
    pub duration: Duration,
    /// Bytes by which the file shrank, or why the pack failed and left the file unchanged.
    pub result: Result<u64, String>,
}

impl Database {
    /// Notes that a pack begins; [`Database::note_pack_end`] follows.
    pub(crate) fn note_pack(&self) {
        let run = PackRun { started: Instant::now(), progress: None };
        self.pack_status.lock().running = Some(run);
    }

    pub(crate) fn note_pack_progress(&self, step: PackStep, done: u64, total: u64) {
        if let Some(run) = &mut self.pack_status.lock().running {
            run.progress = Some((step, done, total));
        }
    }

    pub(crate) fn note_pack_end(&self, packed: &Result<Option<Packed>, StorageError>) {
        let mut status = self.pack_status.lock();
        let Some(run) = status.running.take() else { return };
        let freed = |packed: &Packed| packed.size_before.saturating_sub(packed.size_after);
        let result = match packed {
            Ok(packed) => Ok(packed.as_ref().map_or(0, freed)),
            Err(error) => Err(error.to_string()),
        };
        match &result {
            Ok(_) => status.succeeded += 1,
            Err(_) => status.failed += 1,
        }
        let (at, duration) = (SystemTime::now(), run.started.elapsed());
        status.last = Some(PackEnd { at, duration, result });
    }
}
