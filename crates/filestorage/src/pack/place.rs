//! The names of a pack's files: the copy takes that of the data file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;
use zodium_disk::{DiskFile, LockError, OpenMode, with_suffix};

use crate::FileStorageError;
use crate::checksums::SUFFIX;
use crate::format::DataFile;
use crate::write::{Suspension, WriteFailure};

/// `Data.fs` + this holds the checksums of `Data.fs.old`.
const OLD_CHECKSUMS: &str = ".old.checksums";

/// The right to pack, and the name of the copy; whatever has that name is removed in the end.
pub(super) struct Place {
    file: Arc<DataFile>,
    /// Path of the copy.
    pub(super) path: PathBuf,
    is_taken: Arc<AtomicBool>,
    holds_copy: bool,
    /// The file that the pack before has kept. Open until no commit waits any more: to free the
    /// space of a large file takes its time.
    replaced: Option<Arc<dyn DiskFile>>,
}

/// What takes its name together with the copy, or loses it.
pub(super) struct Companions {
    pub(super) keep_old: bool,
    /// Whether the file has checksums.
    pub(super) has_checksums: bool,
    /// Whether the copy has checksums.
    pub(super) has_sums: bool,
}

impl Place {
    /// Takes the right to pack.
    pub(super) fn take(
        file: &Arc<DataFile>,
        is_taken: &Arc<AtomicBool>,
    ) -> Result<Place, FileStorageError> {
        // Acquire and Release: the next pack sees the file of the one before removed.
        if is_taken.swap(true, Ordering::Acquire) {
            return Err(FileStorageError::AlreadyPacking { path: file.path.clone() });
        }
        let (file, is_taken) = (Arc::clone(file), Arc::clone(is_taken));
        let path = with_suffix(&file.path, ".pack");
        Ok(Place { file, path, is_taken, holds_copy: true, replaced: None })
    }

    /// Whether the disk has room for the copy, and for what the pack before has kept. True if that
    /// is not known.
    pub(super) fn has_room(&self, copy_bytes: u64) -> bool {
        self.file.disk.free_bytes(&self.file.path).is_none_or(|free| free >= copy_bytes)
    }

    /// Removes what the pack before has kept, unless it is served.
    pub(super) fn remove_old(&self) -> Result<(), FileStorageError> {
        self.check_old()?;
        self.remove(".old")?;
        self.remove(OLD_CHECKSUMS)
    }

    /// Checks that no server has `Data.fs.old` open. Its lock file shows that: the file itself may
    /// be locked by this storage, whose file it was.
    pub(super) fn check_old(&self) -> Result<(), FileStorageError> {
        let old = with_suffix(&self.file.path, ".old");
        let lock = with_suffix(&old, ".lock");
        let is_there = self.file.disk.exists(&lock);
        if !is_there.map_err(|error| FileStorageError::io(&lock, "look for", error))? {
            return Ok(());
        }
        match self.file.disk.lock(&lock) {
            Err(LockError::Held { owner }) => Err(FileStorageError::OldLocked { path: old, owner }),
            // A lock file that may not be opened may be as old as the file.
            Ok(_) | Err(LockError::Io(_)) => Ok(()),
        }
    }

    /// The saved index would be that of another file. It is removed early enough for its removal
    /// to last longer than the renaming.
    pub(super) fn remove_index(&self, has_checksums: bool) -> Result<(), FileStorageError> {
        self.remove(".index")?;
        self.remove(".index.crc32c")?;
        if !has_checksums {
            self.remove(SUFFIX)?;
        }
        let synced = self.file.disk.sync_folder_of(&self.file.path);
        synced.map_err(|error| FileStorageError::io(&self.file.path, "sync the folder", error))
    }

    /// Renames the copy to the name of the file, and its checksums with it: a crash in between
    /// leaves none, or such as are seen to be of another file. What the pack before has kept goes
    /// only now: until here this one may fail, and that may be all that is sound. The inner result
    /// tells whether the name will last.
    pub(super) fn replace_file(
        &mut self,
        companions: &Companions,
        suspension: &Suspension<'_>,
    ) -> Result<io::Result<()>, FileStorageError> {
        let old = with_suffix(&self.file.path, ".old");
        // There need not be one.
        self.replaced = self.file.disk.open(&old, OpenMode::Read).ok();
        self.remove_old()?;
        if companions.keep_old {
            self.link_old()?;
        }
        let disk = Arc::clone(&self.file.disk);
        let side_path = with_suffix(&self.file.path, SUFFIX);
        let old_side_path = with_suffix(&self.file.path, OLD_CHECKSUMS);
        // Without checksums none are there any more.
        let is_aside =
            companions.has_checksums && disk.move_file(&side_path, &old_side_path).is_ok();
        let Err(error) = disk.rename(&self.path, &self.file.path) else {
            self.holds_copy = false;
            if companions.has_checksums {
                self.replace_checksums(companions, &side_path, &old_side_path);
            }
            return Ok(Ok(()));
        };
        match disk.exists(&self.path) {
            Ok(false) => {
                self.holds_copy = false;
                if companions.has_checksums {
                    self.replace_checksums(companions, &side_path, &old_side_path);
                }
                return Ok(Err(error));
            }
            Ok(true) => {
                if is_aside && let Err(error) = disk.move_file(&old_side_path, &side_path) {
                    warn!(file = %side_path.display(), %error, "the checksums lost their name");
                }
                // The file must not keep a second name, but the rename is what has failed.
                if let Err(error) = self.remove(".old") {
                    warn!(file = %old.display(), %error, "the file keeps a second name");
                }
            }
            Err(_) => suspension.fail(WriteFailure::Unknown),
        }
        Err(FileStorageError::io(&self.path, "rename", error))
    }

    /// The side file is durable under its name with the next index.
    fn replace_checksums(&self, companions: &Companions, side_path: &Path, old_side_path: &Path) {
        let disk = &self.file.disk;
        let new = with_suffix(&self.path, SUFFIX);
        let moved = match companions.has_sums {
            true => disk.move_file(&new, side_path),
            false => Ok(()),
        };
        let removed = match companions.keep_old {
            true => Ok(()),
            false => disk.remove(old_side_path),
        };
        if let Err(error) = moved.and(removed) {
            warn!(file = %side_path.display(), %error,
                "the checksums of the packed file are not kept");
        }
    }

    /// Gives the file its second name `Data.fs.old`. It keeps the first until the copy takes it.
    fn link_old(&self) -> Result<(), FileStorageError> {
        let DataFile { disk, path, .. } = &*self.file;
        let old = with_suffix(path, ".old");
        let Err(error) = disk.link(path, &old) else { return Ok(()) };
        match error.kind() {
            io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied => {
                let file = old.display();
                warn!(%file, %error, "no hard links here, the old file is not kept");
                Ok(())
            }
            _ => Err(FileStorageError::io(&old, "link", error)),
        }
    }

    fn remove(&self, suffix: &str) -> Result<(), FileStorageError> {
        let path = with_suffix(&self.file.path, suffix);
        self.file.disk.remove(&path).map_err(|error| FileStorageError::io(&path, "remove", error))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.holds_copy {
            let removed = self.file.disk.remove(&with_suffix(&self.path, SUFFIX));
            if let Err(error) = removed.and(self.file.disk.remove(&self.path)) {
                warn!(file = %self.path.display(), %error,
                    "cannot remove the copy of a failed pack");
            }
        }
        self.is_taken.store(false, Ordering::Release);
    }
}
