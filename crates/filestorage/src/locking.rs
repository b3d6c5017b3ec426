//! The locks that keep a second writer away from a data file.
//!
//! Each of them can be got round where it is the only one, so all are taken:
//! - `Data.fs.lock`, as `zc.lockfile` takes it: the one that stock servers and tools look at;
//! - the same beside a symbolic link, where one was named: a stock server that is given the link
//!   looks there;
//! - the data file itself, which has the same lock under a hard link, and still has it when its
//!   lock file was removed. No stock program looks at this one.
//!
//! A pack makes another file the data file. That one is locked before it gets the name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::info;
use zodium_disk::with_suffix;
use zodium_disk::{Disk, DiskFile, FileLock, LockError, OpenMode};

use crate::open_options::OpenOptions;
use crate::{FileStorageError, checksums};

/// A data file that is replaced while it is locked is opened anew so often.
const ATTEMPTS_MAX: usize = 10;

/// The locks that are on names: they stay the same when a pack replaces the file.
#[derive(Debug)]
pub(crate) struct NameLocks {
    _locks: Vec<FileLock>,
}

impl NameLocks {
    /// Takes the lock file of a data file, and that of a symbolic link that leads to it.
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
        // The lock files may be one by links of their own.
        if named != path && status(&linked)? != status(&lock_path)? {
            locks.push(lock_name(disk, path, &linked)?);
            remove_index_of_link(disk, named)?;
        }
        Ok(NameLocks { _locks: locks })
    }
}

fn lock_name(disk: &dyn Disk, path: &Path, lock_path: &Path) -> Result<FileLock, FileStorageError> {
    disk.lock(lock_path).map_err(|error| match error {
        LockError::Held { owner } => locked(path, lock_path, owner),
        LockError::Io(error) => FileStorageError::io(lock_path, "lock", error),
    })
}

/// An index beside a link was written by a stock server, or an older Zodium. The index is kept
/// beside the file from now on, so a pack would leave that one behind for a stock server to load.
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

/// Opens the data file, and locks it unless it is only read. Where the file is to begin anew, the
/// one that is there goes, once it is seen that no other process uses it.
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

/// Locks a file that is the data file, or is to become it.
pub(crate) fn lock_data(file: &dyn DiskFile, path: &Path) -> Result<FileLock, FileStorageError> {
    file.lock().map_err(|error| match error {
        LockError::Held { owner } => locked(path, path, owner),
        LockError::Io(error) => FileStorageError::io(path, "lock", error),
    })
}

fn locked(path: &Path, lock: &Path, owner: Option<u32>) -> FileStorageError {
    FileStorageError::Locked { path: path.to_owned(), lock: lock.to_owned(), owner }
}

/// Makes room for a new file. The index goes first: it must not be there without its file.
fn remove_files(disk: &dyn Disk, path: &Path) -> Result<(), FileStorageError> {
    let removed = disk
        .remove(&with_suffix(path, ".index"))
        .and_then(|()| disk.remove(&with_suffix(path, checksums::SUFFIX)))
        .and_then(|()| disk.remove(path));
    removed.map_err(|error| FileStorageError::io(path, "remove", error))
}

/// The path of the data file that `named` leads to.
pub(crate) fn resolve(disk: &dyn Disk, named: &Path) -> Result<PathBuf, FileStorageError> {
    disk.resolve(named).map_err(|error| FileStorageError::io(named, "follow the link", error))
}
