//! Detects that another program changed the data file.
//!
//! Locks are advisory: `mv`, `cp`, `truncate` and restores take none. A stock server that opens a
//! hard link takes another lock. A commit acknowledged after such a change would be lost at the
//! next start.
//!
//! So the storage verifies two things before it writes a batch, and again before it acknowledges
//! the batch. The path must still lead to the open file, and the file must have the length that
//! this storage gave it. That costs one `stat` each time. A change stops commits. Unlike a failed
//! write, it is not mended by reopening: nothing is cut or overwritten until the change is
//! reverted.

use std::ops::RangeInclusive;

use zodium_disk::{FileIdentity, FileStatus};

use super::appender::Appender;
use crate::FileStorageError;
use crate::error::FileChange;
use crate::format::DataFile;

impl Appender {
    /// Checks that the data file is as this storage wrote it. The caller makes sure that nothing is
    /// [appended](Appender::append) meanwhile.
    ///
    /// # Errors
    /// [`FileStorageError::Changed`] with the difference.
    pub(crate) fn check_unchanged(&self) -> Result<(), FileStorageError> {
        let (identity, lengths) = {
            let state = self.state.lock();
            (state.identity, state.end..=state.refused_end)
        };
        self.check_file(identity, lengths)
    }

    /// Checks that the path still leads to the open file.
    pub(crate) fn check_identity(&self) -> Result<(), FileStorageError> {
        let identity = self.state.lock().identity;
        self.check_file(identity, 0..=u64::MAX)
    }

    /// Compares the file at the path with the open file, which must have one of these lengths.
    pub(crate) fn check_file(
        &self,
        identity: FileIdentity,
        lengths: RangeInclusive<u64>,
    ) -> Result<(), FileStorageError> {
        let DataFile { disk, path, named, .. } = &*self.file;
        let found = disk.status(named);
        let found = found.map_err(|error| FileStorageError::io(path, "look at", error))?;
        match change(identity, &lengths, found) {
            None => Ok(()),
            Some(change) => Err(FileStorageError::Changed { path: path.clone(), change }),
        }
    }
}

fn change(
    identity: FileIdentity,
    lengths: &RangeInclusive<u64>,
    found: Option<FileStatus>,
) -> Option<FileChange> {
    match found {
        None => Some(FileChange::Removed),
        Some(found) if found.identity != identity => Some(FileChange::Replaced),
        Some(FileStatus { length, .. }) if !lengths.contains(&length) => {
            let written = length.clamp(*lengths.start(), *lengths.end());
            Some(FileChange::Length { written, found: length })
        }
        Some(_) => None,
    }
}
