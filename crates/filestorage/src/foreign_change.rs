//! Noticing that another program has changed the data file.
//!
//! Locks are advisory: `mv`, `cp`, `truncate` and restores take none, and a stock server that is
//! given a hard link takes another one. A commit that was acknowledged after such a change would
//! be gone at the next start. So before a batch is written, and again before it is acknowledged,
//! the path has to lead to the file that is open here, and that file has to be as long as this
//! storage has made it. That is one `stat` each time.
//!
//! A change stops commits. It is no failed write that reopening could mend: nothing is cut or
//! overwritten until the file is the same again.

use std::ops::RangeInclusive;

use zodium_disk::{FileIdentity, FileStatus};

use crate::error::FileChange;
use crate::{FileStorage, FileStorageError};

impl FileStorage {
    /// Whether the data file is as this storage has made it. The caller makes sure that nothing
    /// is [appended](FileStorage::append) meanwhile.
    ///
    /// # Errors
    /// [`FileStorageError::Changed`] says what is different.
    pub fn check_unchanged(&self) -> Result<(), FileStorageError> {
        let (identity, lengths) = {
            let state = self.append.lock();
            (state.identity, state.end()..=state.refused_end())
        };
        self.check_file(identity, lengths)
    }

    /// Whether the path still leads to the file that is open.
    pub(crate) fn check_identity(&self) -> Result<(), FileStorageError> {
        let identity = self.append.lock().identity;
        self.check_file(identity, 0..=u64::MAX)
    }

    /// Compares the file that the path leads to with the one that is open, which has one of these
    /// lengths.
    pub(crate) fn check_file(
        &self,
        identity: FileIdentity,
        lengths: RangeInclusive<u64>,
    ) -> Result<(), FileStorageError> {
        let found = self.disk.status(&self.named);
        let found = found.map_err(|error| FileStorageError::io(&self.path, "look at", error))?;
        match change(identity, &lengths, found) {
            None => Ok(()),
            Some(change) => Err(FileStorageError::Changed { path: self.path.clone(), change }),
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
