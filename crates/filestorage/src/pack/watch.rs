//! The options of a pack, and its progress and cancellation.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::StorageError;

/// How to pack.
#[derive(Clone, Copy)]
pub struct PackOptions<'a> {
    /// Drop objects that cannot be reached from the root, not only old revisions.
    pub gc: bool,
    /// Keep the file as it was before under the name `Data.fs.old`.
    pub keep_old: bool,
    /// Abort if an object in use refers to one that does not exist.
    pub abort_on_dangling: bool,
    /// Called now and then with the step, what is done of it, and how much it is in all.
    pub progress: &'a dyn Fn(PackStep, u64, u64),
    /// Set to cancel the pack, at any time until its last step.
    pub cancelled: &'a Arc<AtomicBool>,
}

/// The steps of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackStep {
    /// Looking for damaged records, where they are to be left out; counted in bytes.
    Checking,
    /// Finding the objects that are in use; counted in objects.
    Marking,
    /// Copying them; counted in bytes of the old file.
    Copying,
}

/// Reports of progress, and the end of it when cancelled.
pub(super) struct Watch<'a> {
    pub(super) path: PathBuf,
    pub(super) options: PackOptions<'a>,
}

impl Watch<'_> {
    pub(super) fn report(&self, step: PackStep, done: u64, total: u64) -> Result<(), StorageError> {
        if self.options.cancelled.load(Ordering::Relaxed) {
            return Err(StorageError::PackCancelled { path: self.path.clone() });
        }
        (self.options.progress)(step, done, total);
        Ok(())
    }
}
