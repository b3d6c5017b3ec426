//! The interface to the operating system: files, locks, fsync and the clock.
//!
//! A storage uses the disk only through [`Disk`] and [`DiskFile`], and time only through
//! [`Clock`]. So tests can replace them by memory and a seed.
//!
//! Invariant: nothing here knows what a transaction or an object is.

#![forbid(unsafe_code)]

mod boot;
mod chunks;
mod clock;
mod cold;
mod denied;
mod faulty;
mod folder_sync;
mod kept_end;
mod memory;
mod memory_file;
mod names;
mod power_cut;
mod real;
mod space_watch;
mod stream;
mod suffix;
mod transfer;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use clock::{Clock, ManualClock, SystemClock};
pub use cold::{ColdBytes, Missed};
pub use denied::explain_denied;
pub use faulty::{CrashImage, FaultyDisk, Operation};
pub use folder_sync::sync_folder;
pub use kept_end::{NotKept, keep_end};
pub use memory::MemoryDisk;
pub use power_cut::{Choose, PowerCut, SurvivingLength, Survivors, TORN_BYTES};
pub use real::RealDisk;
pub use space_watch::{NoSpace, SpaceWatch, is_full, no_space_for};
pub use stream::FileStream;
pub use suffix::{folder_of, with_suffix};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading only; the file must exist.
    Read,
    /// Reading and writing; the file must exist.
    Write,
    /// Reading and writing; created when absent.
    Create,
    /// Reading and writing; fails when the file exists already.
    CreateNew,
    /// Reading and writing; emptied when it exists.
    Truncate,
}

/// The kind of an entry in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// An ordinary file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, a device, a pipe...
    Other,
}

/// One entry in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, without the folder.
    pub name: OsString,
    /// Its kind.
    pub kind: EntryKind,
}

/// Identifies a file among all that exist at the same time, whatever their names.
///
/// The number of a removed file may be reused for a new one, but not while the removed file is
/// still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device that the file is on.
    pub device: u64,
    /// The number of its inode there.
    pub inode: u64,
}

/// The identity, length and time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Its identity.
    pub identity: FileIdentity,
    /// Its length in bytes.
    pub length: u64,
    /// When its bytes were last changed: nanoseconds of Unix time. 0 on a disk without times.
    pub modified: i64,
}

/// A file system: opens, renames and removes files by path.
pub trait Disk: Send + Sync + fmt::Debug {
    /// A number of the last start of the system, which keeps the bytes of files in memory until
    /// they are synced. A power cut is followed by another one, the end of a process is not. `None`
    /// if it is not known; never 0.
    fn boot(&self) -> Option<u64>;

    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates an empty file without a name in the folder of `near`; it is removed when dropped.
    fn temporary(&self, near: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Whether a file of that name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// The kind of the entry at a path, or `None`. Symbolic links are not followed.
    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>>;

    /// The identity and length of the file at a path, with one system call; `None` without such a
    /// file. Symbolic links are followed.
    fn status(&self, path: &Path) -> io::Result<Option<FileStatus>>;

    /// Bytes that this process can still write to the disk of a file or folder; `None` if that is
    /// not known.
    fn free_bytes(&self, path: &Path) -> Option<u64> {
        let _ = path;
        None
    }

    /// The entries of a folder, in no order. `ErrorKind::NotFound` when there is no such folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>>;

    /// Creates a folder in one that exists; false when it existed already.
    fn create_folder(&self, path: &Path) -> io::Result<bool>;

    /// Removes an empty folder; false when it is not empty, or not there.
    fn remove_folder(&self, path: &Path) -> io::Result<bool>;

    /// Renames a file over another. Durable after a sync of both folders.
    fn move_file(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes a file read-only for all users. Users that can read its folder can read it.
    fn set_read_only(&self, path: &Path) -> io::Result<()>;

    /// Renames a file over another and makes the change durable in its folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates a hard link, whose name must be free. `ErrorKind::Unsupported` or
    /// `PermissionDenied` on a file system without hard links.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives `to` the permission bits of `from`, and its [owner](Disk::copy_owner).
    fn copy_permissions(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives `to` the owner and the group of `from`, if this process may do so, as root's may. The
    /// server, which has another user, could not open a file of root's. Symbolic links are not
    /// followed to `to`.
    fn copy_owner(&self, from: &Path, to: &Path) {
        let _ = (from, to);
    }

    /// Removes a file; a missing one is no error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Syncs the folder of a file, which makes its creation durable.
    fn sync_folder_of(&self, path: &Path) -> io::Result<()>;

    /// Follows symbolic links to the end. A path that is no link, or leads to no file yet, is
    /// returned unchanged.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;

    /// Takes the exclusive lock that keeps a second opener away, as `zc.lockfile` does.
    ///
    /// That is an advisory `flock` on `path`, whose content becomes a space, our process id and a
    /// newline. A second line is kept; other programs that take the lock cut it off.
    ///
    /// After the lock is taken, `path` is checked to name the locked file still: it may have been
    /// removed or replaced since it was opened.
    fn lock(&self, path: &Path) -> Result<FileLock, LockError>;
}

/// An open file, read and written at positions; threads can share it.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Length in bytes.
    fn length(&self) -> io::Result<u64> {
        Ok(self.status()?.length)
    }

    /// Its identity and length, with one system call.
    fn status(&self) -> io::Result<FileStatus>;

    /// Takes an exclusive advisory lock (`flock`) on the file itself, whatever its name. Dropping
    /// the lock releases it, though the file stays open.
    fn lock(&self) -> Result<FileLock, LockError>;

    /// Reads up to `buffer.len()` bytes at `position`; 0 only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// As [`DiskFile::read_at`], but never waits for the device: `None` when the first bytes are
    /// not in memory, or when the file system cannot tell.
    fn read_resident_at(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>>;

    /// These bytes, for a reader that knows only files of the system; `None` of other files.
    fn cold_bytes(&self, position: u64, length: usize) -> Option<ColdBytes> {
        let _ = (position, length);
        None
    }

    /// Writes all bytes at `position`, growing the file as needed.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Syncs: returns when all bytes written before are on stable storage.
    ///
    /// After an error their state is unknown, and the success of another sync proves nothing. The
    /// caller must stop acknowledging writes.
    fn sync(&self) -> io::Result<()>;

    /// Truncates or extends the file to `length` bytes.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Reserves space for the bytes from `start` up to `end`; the length of the file stays.
    ///
    /// `ErrorKind::StorageFull` when there is no room. Succeeds without effect on a file system
    /// that cannot reserve, and when there are no such bytes.
    fn reserve(&self, start: u64, end: u64) -> io::Result<()>;

    /// Asks the system to drop its cached pages from `start` on, so that later reads come from the
    /// device. That works for synced bytes only, and is not guaranteed.
    ///
    /// After a failed sync the page cache may differ from the device. Without a page cache this
    /// does nothing.
    fn forget_cached(&self, start: u64) -> io::Result<()> {
        let _ = start;
        Ok(())
    }
}

impl dyn DiskFile + '_ {
    /// Fills the whole buffer from `position`; `ErrorKind::UnexpectedEof` if the file is shorter.
    pub fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        match self.read_up_to(buffer, position)? {
            count if count < buffer.len() => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Fills the buffer from `position`, as far as the file goes; gives the number of bytes.
    pub fn read_up_to(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], position + done as u64)? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }
}

/// Holds a lock until dropped.
#[derive(Debug)]
pub struct FileLock {
    _held: Box<dyn fmt::Debug + Send + Sync>,
}

/// Why a lock could not be taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process, or another opener in this one, holds it.
    Held {
        /// Its process id, if the lock file or the system has it.
        owner: Option<u32>,
    },
    /// The lock file itself could not be used.
    Io(io::Error),
}
