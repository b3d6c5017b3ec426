//! Copies the bytes behind the last whole transaction, and then cuts them off.
//!
//! Cutting is the only step of an opening that cannot be reverted, so a copy comes first. If that
//! fails, as on a full disk, the data file is unchanged.

use std::path::{Path, PathBuf};

use tracing::{error, warn};
use zodium_disk::{Disk, DiskFile, keep_end};

use crate::FileStorageError;

/// The end of a data file behind its last whole transaction.
pub(crate) struct BrokenEnd<'a> {
    pub(crate) path: &'a Path,
    pub(crate) file: &'a dyn DiskFile,
    pub(crate) start: u64,
    /// The end of the file.
    pub(crate) end: u64,
}

impl BrokenEnd<'_> {
    /// Copies the end to the first free `.trN` file, cuts it off, and returns the path of the copy.
    pub(crate) fn set_aside(&self, disk: &dyn Disk) -> Result<PathBuf, FileStorageError> {
        let kept = keep_end(disk, self.path, self.file, self.start, self.end);
        let kept = kept.map_err(|error| {
            if error.is_full() {
                let (path, bytes) = (self.path.to_owned(), self.end - self.start);
                let kept = error.kept;
                FileStorageError::NoRoomForEnd { path, position: self.start, bytes, kept }
            } else {
                FileStorageError::io(&error.path, error.operation, error.source)
            }
        })?;
        let cut = self.file.set_length(self.start).and_then(|()| self.file.sync());
        cut.map_err(|error| FileStorageError::io(self.path, "cut", error))?;
        Ok(kept)
    }

    /// Logs the bytes that were set aside. The checksums tell whether they had been acknowledged.
    /// `whole`: transactions at their start that look whole.
    pub(crate) fn warn(&self, kept: &Path, was_acknowledged: bool, whole: u64) {
        let (file, kept, position) = (self.path.display(), kept.display(), self.start);
        let bytes = self.end - self.start;
        if was_acknowledged {
            warn!(%file, position, bytes, %kept, "put the damaged end of the file aside. It had \
                been on stable storage, so no crash explains it: transactions that were \
                acknowledged are lost unless there is a newer copy; find out what is wrong with \
                the disk");
        } else if whole > 0 {
            error!(%file, position, bytes, whole, %kept, "put the last transactions aside: bytes \
                of them were not on the disk yet when the system went down, so they were not \
                acknowledged");
        } else {
            warn!(%file, position, bytes, %kept, "put an unfinished transaction aside");
        }
    }
}
