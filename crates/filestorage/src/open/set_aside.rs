//! Copies the bytes behind the last whole transaction, and then cuts them off.
//!
//! Cutting is the only step of an opening that cannot be reverted, so a copy comes first. It has a
//! temporary name until it is whole and on stable storage, and then becomes a `.trN` file. If that
//! fails, as on a full disk, the data file is unchanged. No part of a copy stays, however often the
//! file is opened.

use std::path::{Path, PathBuf};

use tracing::{error, warn};
use zodium_disk::with_suffix;
use zodium_disk::{Disk, DiskFile, OpenMode};

use crate::FileStorageError;
use crate::format::create_like;

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;
/// Suffix of the unfinished copy. After a crash, the next opening writes it again.
const TEMPORARY_SUFFIX: &str = ".tr_tmp";

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
        let temporary = with_suffix(self.path, TEMPORARY_SUFFIX);
        let kept = self.free_name(disk)?;
        let is_kept = self.copy_to(disk, &temporary, &kept).and_then(|()| {
            let renamed = disk.rename(&temporary, &kept);
            renamed.map_err(|error| FileStorageError::io(&kept, "rename to", error))
        });
        is_kept.inspect_err(|_| {
            // The data file still has all the bytes.
            for copy in [&temporary, &kept] {
                if let Err(error) = disk.remove(copy) {
                    warn!(file = %copy.display(), %error, "cannot remove an unfinished copy");
                }
            }
        })?;
        let cut = self.file.set_length(self.start).and_then(|()| self.file.sync());
        cut.map_err(|error| FileStorageError::io(self.path, "cut", error))?;
        Ok(kept)
    }

    fn free_name(&self, disk: &dyn Disk) -> Result<PathBuf, FileStorageError> {
        let mut number = 0;
        loop {
            let candidate = with_suffix(self.path, &format!(".tr{number}"));
            let exists = disk.exists(&candidate);
            if !exists.map_err(|error| FileStorageError::io(&candidate, "look for", error))? {
                return Ok(candidate);
            }
            number += 1;
        }
    }

    fn copy_to(&self, disk: &dyn Disk, copy: &Path, kept: &Path) -> Result<(), FileStorageError> {
        let bytes = self.end - self.start;
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                let (path, kept) = (self.path.to_owned(), kept.to_owned());
                FileStorageError::NoRoomForEnd { path, position: self.start, bytes, kept }
            }
            _ => FileStorageError::io(copy, "write", error),
        };
        let file = create_like(disk, copy, OpenMode::Truncate, self.path)?;
        let mut buffer = vec![0; COPY_BYTES.min(bytes as usize)];
        let mut position = self.start;
        while position < self.end {
            let count = (self.end - position).min(COPY_BYTES as u64) as usize;
            let chunk = &mut buffer[..count];
            let read = self.file.read_exact_at(chunk, position);
            read.map_err(|error| FileStorageError::io(self.path, "read", error))?;
            file.write_all_at(chunk, position - self.start).map_err(failed)?;
            position += count as u64;
        }
        file.sync().map_err(failed)
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
