//! The one seam to the operating system: files, locks, fsync and the clock.
//!
//! Everything that a storage does to a disk goes through [`Disk`] and [`DiskFile`], everything it
//! asks of time through [`Clock`], so that a test can put memory and a seed in their place.
//!
//! Invariant: nothing here knows what a transaction or an object is.

#![forbid(unsafe_code)]

mod chunks;
mod clock;
mod denied;
mod faulty;
mod memory;
mod memory_file;
mod names;
mod power_cut;
mod real;
mod stream;
mod transfer;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use clock::{Clock, ManualClock, SystemClock};
pub use denied::explain_denied;
pub use faulty::{CrashImage, FaultyDisk, Operation};
pub use memory::MemoryDisk;
pub use power_cut::{Choose, PowerCut, SurvivingLength, Survivors, TORN_BYTES};
pub use real::RealDisk;
pub use stream::FileStream;

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

/// What a name in a folder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// An ordinary file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, a device, a pipe...
    Other,
}

/// One name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, without the folder.
    pub name: OsString,
    /// What it stands for.
    pub kind: EntryKind,
}

/// Tells one file from all others that exist at the same time, whatever their names.
///
/// A number that a removed file had may be given to a new one, but not while the removed file is
/// still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device that the file is on.
    pub device: u64,
    /// The number of its inode there.
    pub inode: u64,
}

/// Which file it is, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Which file.
    pub identity: FileIdentity,
    /// Its length in bytes.
    pub length: u64,
}

/// A folder-holding device: opens, renames and removes files by path.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// An empty file without a name in the folder of `near`; gone when dropped.
    fn temporary(&self, near: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Whether a file of that name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// What stands at a path; symbolic links are not followed. `None` when nothing does.
    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>>;

    /// Which file a path leads to, and its length, with one system call. Symbolic links are
    /// followed; `None` when there is no such file.
    fn status(&self, path: &Path) -> io::Result<Option<FileStatus>>;

    /// What stands in a folder, in no order. `ErrorKind::NotFound` when there is no such folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>>;

    /// Makes a folder in one that exists; false when it was there already.
    fn create_folder(&self, path: &Path) -> io::Result<bool>;

    /// Removes an empty folder; false when it is not empty, or not there.
    fn remove_folder(&self, path: &Path) -> io::Result<bool>;

    /// Renames a file over another. Durable once the folders of both were synced.
    fn move_file(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes from everybody the right to write a file, and lets read it who may read its folder.
    fn set_read_only(&self, path: &Path) -> io::Result<()>;

    /// Renames a file over another and makes the change durable in its folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which must be free. `ErrorKind::Unsupported` or
    /// `PermissionDenied` where the file system has no hard links.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Lets the same users read and write `to` as `from`.
    fn copy_permissions(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file; a missing one is no error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the creation of a file in its folder durable.
    fn sync_folder_of(&self, path: &Path) -> io::Result<()>;

    /// The path of the file that a path names: where a symbolic link leads to, in the end. A path
    /// that is no link, or leads to nothing yet, comes back as it is.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;

    /// Takes the exclusive lock that keeps a second opener away, the way `zc.lockfile` does:
    /// an advisory `flock` on `path`, which then holds a space, our process id and a newline. Any
    /// line that was behind the first one is kept; others who lock cut it off.
    ///
    /// The locked file is the one that `path` names: one that is removed or replaced between the
    /// opening and the lock is not relied on.
    fn lock(&self, path: &Path) -> Result<FileLock, LockError>;
}

/// An open file, read and written at positions; shared by threads.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Length in bytes.
    fn length(&self) -> io::Result<u64> {
        Ok(self.status()?.length)
    }

    /// Which file it is, and its length, with one system call.
    fn status(&self) -> io::Result<FileStatus>;

    /// Takes an exclusive advisory lock (`flock`) on the file itself, whatever its name. It is
    /// free again when the lock is dropped, though the file stays open.
    fn lock(&self) -> Result<FileLock, LockError>;

    /// Reads up to `buffer.len()` bytes at `position`; 0 only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// As [`DiskFile::read_at`] but without ever waiting for the device: `None` when the first
    /// bytes are not in memory (or when the file system cannot tell).
    fn read_resident_at(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>>;

    /// Writes all bytes at `position`, growing the file as needed.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Returns when all bytes written before are on stable storage.
    ///
    /// After an error nothing is known about them, and asking again proves nothing: the caller
    /// must stop acknowledging writes.
    fn sync(&self) -> io::Result<()>;

    /// Cuts or extends the file to `length` bytes.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes sure that the bytes from `start` up to `end` can be written without running out of
    /// space. The length of the file stays as it is. `ErrorKind::StorageFull` when there is no
    /// room; success without effect where the file system cannot reserve.
    fn reserve(&self, start: u64, end: u64) -> io::Result<()>;

    /// Lets later reads from `start` on come from the device and not from the system's memory, as
    /// far as what is there was synced and the system does as it is asked.
    ///
    /// After a failed sync that memory may hold what the device does not. Where there is no such
    /// memory there is nothing to do.
    fn forget_cached(&self, start: u64) -> io::Result<()> {
        let _ = start;
        Ok(())
    }
}

impl dyn DiskFile + '_ {
    /// Fills the whole buffer from `position`; `ErrorKind::UnexpectedEof` when the file ends
    /// before.
    pub fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        match self.read_up_to(buffer, position)? {
            count if count < buffer.len() => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Fills the buffer from `position`, or as much of it as there is before the end of the file.
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

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process (or another opener in this one) holds it.
    Held {
        /// Its process id, when the lock file, or the system, tells.
        owner: Option<u32>,
    },
    /// The lock file itself could not be used.
    Io(io::Error),
}
