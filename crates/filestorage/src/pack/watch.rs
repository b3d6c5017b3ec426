//! Reports the progress of a pack to its caller, which can cancel it.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use zodium_storage::{PackOptions, PackStep};

use crate::FileStorageError;

/// Reports of progress, and the end of it when cancelled.
pub(super) struct Watch<'a> {
    pub(super) path: PathBuf,
    pub(super) options: PackOptions<'a>,
}

impl Watch<'_> {
    pub(super) fn report(
        &self,
        step: PackStep,
        done: u64,
        total: u64,
    ) -> Result<(), FileStorageError> {
        if self.options.cancelled.load(Ordering::Relaxed) {
            return Err(FileStorageError::PackCancelled { path: self.path.clone() });
        }
        (self.options.progress)(step, done, total);
        Ok(())
    }
}
