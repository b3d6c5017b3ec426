//! Locks that keep a second writer away from a data file.
//!
//! Each lock alone can be bypassed, so a writer takes all of them:
//! - `Data.fs.lock`, in the way of `zc.lockfile`: stock servers and tools check this one;
//! - the same beside a symbolic link, if the path is one: a stock server that opens the link checks
//!   there;
//! - the data file itself. A hard link leads to the same lock, and it stays when the lock file is
//!   removed. No stock program checks this one.
//!
//! A pack replaces the data file. It locks the new file before it gives it the name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::info;
use zodium_disk::with_suffix;
use zodium_disk::{Disk, DiskFile, FileLock, LockError, OpenMode};

use super::options::OpenOptions;
use crate::{FileStorageError, checksums};

/// Attempts to open a data file that is replaced while its lock is taken.
const ATTEMPTS_MAX: usize = 10;

/// The locks on names. They stay the same when a pack replaces the file.
#[derive(Debug)]
pub(crate) struct NameLocks {
    _locks: Vec<FileLock>,
}

impl NameLocks {
    /// Takes the lock file of a data file, and that of the symbolic link `named`.
    pub(crate) fn take(
        disk: &dyn Disk,
        named: &Path,
        path: &Path,
    ) -> Result<NameLocks, FileStorageError> {
        let lock_path = with_suffix(path, ".lock");
        let mut locks = vec![lock_name(disk, path, &lock_path)?];
        let linked = with_suffix(named, ".lock");
        let status = |path: &Path| {
            let status =
                disk.status(path).map_err(|error| FileStorageError::io(path, "look at", error));
            status.map(|status| status.map(|status| status.identity))
        };
        // Hard or symbolic links may make both lock files the same file.
        if named != path && status(&linked)? != status(&lock_path)? {
            locks.push(lock_name(disk, path, &linked)?);
            remove_index_of_link(disk, named)?;
        }
        Ok(NameLocks { _locks: locks })
    }
}

fn lock_name(disk: &dyn Disk, path: &Path, lock_path: &Path) -> Result<FileLock, FileStorageError> {
    let lock = disk.lock(lock_path).map_err(|error| match error {
        LockError::Held { owner } => locked(path, lock_path, owner),
        LockError::Io(error) => FileStorageError::io(lock_path, "lock", error),
    })?;
    disk.copy_owner(path, lock_path);
    Ok(lock)
}

/// Removes the index beside a symbolic link, which a stock server or an older Zodium wrote. The
/// index is now kept beside the data file. After a pack, the index beside the link would be
/// outdated, and a stock server would load it.
fn remove_index_of_link(disk: &dyn Disk, named: &Path) -> Result<(), FileStorageError> {
    let index = with_suffix(named, ".index");
    let failed = |operation| {
        let index = index.clone();
        move |error| FileStorageError::io(&index, operation, error)
    };
    if disk.exists(&index).map_err(failed("look for"))? {
        disk.remove(&index).map_err(failed("remove"))?;
        info!(index = %index.display(),
            "removed the index beside the symbolic link; it is kept beside the data file");
    }
    Ok(())
}

/// Opens the data file, and locks it unless the storage is read-only. With `truncate`, deletes an
/// existing file first, after checking that no other process uses it.
pub(crate) fn open_data_file(
    disk: &dyn Disk,
    options: &OpenOptions<'_>,
) -> Result<(Arc<dyn DiskFile>, Option<FileLock>), FileStorageError> {
    let path = options.path.as_path();
    if options.read_only {
        if options.truncate {
            return Err(FileStorageError::ReadOnly { path: path.to_owned() });
        }
        return Ok((open(disk, path, OpenMode::Read)?, None));
    }
    if options.truncate
        && disk.exists(path).map_err(|e| FileStorageError::io(path, "look for", e))?
    {
        let _locked = open_and_lock(disk, path, OpenMode::Write)?;
        remove_files(disk, path)?;
    }
    let mode = if options.create { OpenMode::Create } else { OpenMode::Write };
    open_and_lock(disk, path, mode).map(|(file, lock)| (file, Some(lock)))
}

fn open_and_lock(
    disk: &dyn Disk,
    path: &Path,
    mode: OpenMode,
) -> Result<(Arc<dyn DiskFile>, FileLock), FileStorageError> {
    for _ in 0..ATTEMPTS_MAX {
        let file = open(disk, path, mode)?;
        let lock = lock_data(file.as_ref(), path)?;
        let failed = |error| FileStorageError::io(path, "look at", error);
        let named = disk.status(path).map_err(failed)?;
        let locked = file.status().map_err(failed)?;
        if named.map(|named| named.identity) == Some(locked.identity) {
            return Ok((file, lock));
        }
    }
    let error = std::io::Error::other("another program replaced the file each time");
    Err(FileStorageError::io(path, "lock", error))
}

fn open(
    disk: &dyn Disk,
    path: &Path,
    mode: OpenMode,
) -> Result<Arc<dyn DiskFile>, FileStorageError> {
    disk.open(path, mode).map_err(|error| FileStorageError::io(path, "open", error))
}

/// Locks a data file, or a file that will replace one.
pub(crate) fn lock_data(file: &dyn DiskFile, path: &Path) -> Result<FileLock, FileStorageError> {
    file.lock().map_err(|error| match error {
        LockError::Held { owner } => locked(path, path, owner),
        LockError::Io(error) => FileStorageError::io(path, "lock", error),
    })
}

fn locked(path: &Path, lock: &Path, owner: Option<u32>) -> FileStorageError {
    FileStorageError::Locked { path: path.to_owned(), lock: lock.to_owned(), owner }
}

/// Deletes a data file, its index and its checksums. The index goes first: it must not exist
/// without its file.
fn remove_files(disk: &dyn Disk, path: &Path) -> Result<(), FileStorageError> {
    let removed = disk
        .remove(&with_suffix(path, ".index"))
        .and_then(|()| disk.remove(&with_suffix(path, checksums::SUFFIX)))
        .and_then(|()| disk.remove(path));
    removed.map_err(|error| FileStorageError::io(path, "remove", error))
}

/// Resolves `named` to the path of the data file.
pub(crate) fn resolve(disk: &dyn Disk, named: &Path) -> Result<PathBuf, FileStorageError> {
    disk.resolve(named).map_err(|error| FileStorageError::io(named, "follow the link", error))
}
