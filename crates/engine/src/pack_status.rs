//! The progress and results of a storage's packs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use zodium_storage::{PackStep, Packed, StorageError};

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

/// The packs of one database: one at a time.
#[derive(Default)]
pub(crate) struct Packs {
    /// Held by a pack from its start to its end.
    alone: Mutex<()>,
    cancelled: Arc<AtomicBool>,
    status: Mutex<PackStatus>,
}

impl Packs {
    /// Keeps packs away; `None` while one is in progress.
    pub(crate) fn begin(&self) -> Option<MutexGuard<'_, ()>> {
        let alone = self.alone.try_lock()?;
        self.status.lock().running = Some(PackRun { started: Instant::now(), progress: None });
        Some(alone)
    }

    /// Waits for the end of a pack in progress, and keeps others away.
    pub(crate) fn wait(&self) -> MutexGuard<'_, ()> {
        self.alone.lock()
    }

    /// Set to have a pack given up.
    pub(crate) fn cancelled(&self) -> &Arc<AtomicBool> {
        &self.cancelled
    }

    pub(crate) fn status(&self) -> PackStatus {
        self.status.lock().clone()
    }

    pub(crate) fn note_progress(&self, step: PackStep, done: u64, total: u64) {
        if let Some(run) = &mut self.status.lock().running {
            run.progress = Some((step, done, total));
        }
    }

    pub(crate) fn note_end(&self, packed: &Result<Option<Packed>, StorageError>) {
        let mut status = self.status.lock();
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
