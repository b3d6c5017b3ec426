//! What the callers of a log and its writer share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use zodium_disk::Disk;

use crate::replacement::Replacement;

/// When records are synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Sync {
    /// When the system does it.
    No,
    /// Once a second.
    #[default]
    EverySecond,
    /// Each group at once.
    Always,
}

/// What callers and the writer share.
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) path: PathBuf,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) filled: Condvar,
    pub(crate) sync: AtomicU8,
    /// Positions that were reached. Release after the system call, Acquire by those that ask.
    pub(crate) written: AtomicU64,
    pub(crate) synced: AtomicU64,
    /// Bytes of the file.
    pub(crate) length: AtomicU64,
    /// Bytes of the file when it was replaced last, also before it was opened.
    pub(crate) base_length: AtomicU64,
    /// How often it was replaced.
    pub(crate) replacements: AtomicU64,
    /// When the writer took what it is busy with, in milliseconds since 1970; 0 while it waits.
    pub(crate) busy_since: AtomicU64,
    /// Whether there is a [`Replacement`], which notes its end here.
    pub(crate) has_replacement: Arc<AtomicBool>,
    pub(crate) is_failed: AtomicBool,
    pub(crate) failure: Mutex<String>,
    /// Called when a position was reached, or a write has failed.
    pub(crate) progress: Mutex<Option<Arc<dyn Fn() + Send + std::marker::Sync>>>,
}

/// What was appended and is not written.
#[derive(Default)]
pub(crate) struct Queue {
    /// Frames of records.
    pub(crate) bytes: Vec<u8>,
    /// The position of their end: bytes of frames since the log was opened.
    pub(crate) end: u64,
    /// What is to replace the log, the frames of its last records, and how many of the bytes above
    /// go to the old file.
    pub(crate) replacement: Option<(Replacement, Vec<u8>, usize)>,
    pub(crate) is_stopped: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn sync(&self) -> Sync {
        match self.sync.load(Ordering::Relaxed) {
            0 => Sync::No,
            1 => Sync::EverySecond,
            _ => Sync::Always,
        }
    }

    pub(crate) fn tell(&self) {
        let progress = self.progress.lock().clone();
        if let Some(progress) = progress {
            progress();
        }
    }
}
