//! A disk in memory on which the n-th change fails, and if so wanted all that come after it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use zodium_disk::{Disk, DiskFile, FileLock, LockError, MemoryDisk, OpenMode};

#[derive(Clone, Debug)]
pub(crate) struct FailingDisk {
    pub(crate) memory: MemoryDisk,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct Faults {
    /// Changes until the first that fails; below 0 it is past.
    left: AtomicI64,
    /// Whether the power is gone with it.
    for_good: bool,
}

impl FailingDisk {
    /// No fault until [`FailingDisk::fail_after`].
    pub(crate) fn new(memory: MemoryDisk, for_good: bool) -> FailingDisk {
        let faults = Faults { left: AtomicI64::new(i64::MAX), for_good };
        FailingDisk { memory, faults: Arc::new(faults) }
    }

    /// Lets the change after `changes` further ones fail.
    pub(crate) fn fail_after(&self, changes: i64) {
        self.faults.left.store(changes, Ordering::Relaxed);
    }

    /// Whether the fault has happened.
    pub(crate) fn has_failed(&self) -> bool {
        self.faults.left.load(Ordering::Relaxed) < 0
    }
}

impl Faults {
    fn change<T>(&self, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        if left == 0 || left < 0 && self.for_good {
            return Err(io::Error::other("injected"));
        }
        change()
    }
}

impl Disk for FailingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let open = || self.memory.open(path, mode);
        let changes = matches!(mode, OpenMode::Truncate | OpenMode::CreateNew);
        let file = if changes { self.faults.change(open)? } else { open()? };
        Ok(Arc::new(FailingFile { file, faults: Arc::clone(&self.faults) }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.memory.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.change(|| self.memory.rename(from, to))?;
        // The folder is synced after it.
        self.faults.change(|| Ok(()))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.change(|| self.memory.link(from, to))
    }

    fn copy_permissions(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.change(|| self.memory.copy_permissions(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faults.change(|| self.memory.remove(path))
    }

    fn sync_folder_of(&self, path: &Path) -> io::Result<()> {
        self.faults.change(|| self.memory.sync_folder_of(path))
    }

    fn lock(&self, path: &Path) -> Result<FileLock, LockError> {
        self.memory.lock(path)
    }
}

#[derive(Debug)]
struct FailingFile {
    file: Arc<dyn DiskFile>,
    faults: Arc<Faults>,
}

impl DiskFile for FailingFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn read_resident_at(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>> {
        self.file.read_resident_at(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.faults.change(|| self.file.write_all_at(bytes, position))
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.change(|| self.file.sync())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.faults.change(|| self.file.set_length(length))
    }

    fn reserve(&self, start: u64, end: u64) -> io::Result<()> {
        self.faults.change(|| self.file.reserve(start, end))
    }
}
