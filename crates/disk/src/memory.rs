//! A disk in memory that remembers what would survive a power cut.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Disk, DiskFile, FileLock, LockError, OpenMode};

/// Files in memory. Clones share the same files.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    files: Arc<Mutex<BTreeMap<PathBuf, Arc<MemoryFile>>>>,
    /// Most bytes that all files together may hold, if limited.
    capacity: Option<u64>,
}

impl MemoryDisk {
    /// A disk without limit.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// A disk on which reserving or writing past `bytes` fails as a full one does.
    pub fn with_capacity(bytes: u64) -> MemoryDisk {
        MemoryDisk { capacity: Some(bytes), ..MemoryDisk::default() }
    }

    /// What is left after a power cut now: every file as it was when last synced.
    ///
    /// Renames and removals count as durable at once, as [`Disk::rename`] promises.
    pub fn after_power_cut(&self) -> MemoryDisk {
        let image = MemoryDisk { files: Arc::default(), capacity: self.capacity };
        for (path, file) in self.files.lock().iter() {
            image.put(path, file.contents.lock().synced.clone());
        }
        image
    }

    /// The present bytes of a file.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        self.files.lock().get(path).map(|file| file.contents.lock().live.clone())
    }

    /// Puts a file there as if it had been written and synced.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) {
        let contents = Contents { live: bytes.clone(), synced: bytes };
        let file = MemoryFile { contents: Mutex::new(contents), capacity: self.capacity };
        self.files.lock().insert(path.to_owned(), Arc::new(file));
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = self.files.lock();
        let found = files.get(path).cloned();
        match (found, mode) {
            (Some(_), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (None, OpenMode::Read | OpenMode::Write) => Err(io::ErrorKind::NotFound.into()),
            (Some(file), OpenMode::Truncate) => {
                file.contents.lock().live.clear();
                Ok(file)
            }
            (Some(file), _) => Ok(file),
            (None, _) => {
                let file =
                    Arc::new(MemoryFile { contents: Mutex::default(), capacity: self.capacity });
                files.insert(path.to_owned(), Arc::clone(&file));
                Ok(file)
            }
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.files.lock().contains_key(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.lock().remove(path);
        Ok(())
    }

    fn sync_folder_of(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _path: &Path) -> Result<FileLock, LockError> {
        // One process, and a test that opens twice means to.
        Ok(FileLock { _held: Box::new(()) })
    }
}

#[derive(Debug)]
struct MemoryFile {
    contents: Mutex<Contents>,
    capacity: Option<u64>,
}

#[derive(Debug, Default)]
struct Contents {
    live: Vec<u8>,
    synced: Vec<u8>,
}

impl MemoryFile {
    fn check_room(&self, end: u64) -> io::Result<()> {
        match self.capacity {
            Some(capacity) if end > capacity => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

impl DiskFile for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.contents.lock().live.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let contents = self.contents.lock();
        let start = usize::try_from(position).unwrap_or(usize::MAX).min(contents.live.len());
        let count = buffer.len().min(contents.live.len() - start);
        buffer[..count].copy_from_slice(&contents.live[start..start + count]);
        Ok(count)
    }

    fn read_resident_at(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>> {
        self.read_at(buffer, position).map(Some)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let end = position + bytes.len() as u64;
        self.check_room(end)?;
        let (start, end) = (as_index(position)?, as_index(end)?);
        let mut contents = self.contents.lock();
        if contents.live.len() < end {
            contents.live.resize(end, 0);
        }
        contents.live[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut contents = self.contents.lock();
        contents.synced = contents.live.clone();
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.check_room(length)?;
        self.contents.lock().live.resize(as_index(length)?, 0);
        Ok(())
    }

    fn reserve(&self, _start: u64, end: u64) -> io::Result<()> {
        self.check_room(end)
    }
}

fn as_index(position: u64) -> io::Result<usize> {
    usize::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsynced_bytes_are_gone_after_a_power_cut() {
        let disk = MemoryDisk::new();
        let path = Path::new("Data.fs");
        let file = disk.open(path, OpenMode::Create).unwrap();
        file.write_all_at(b"kept", 0).unwrap();
        file.sync().unwrap();
        file.write_all_at(b"lost", 4).unwrap();
        assert_eq!(disk.bytes(path).unwrap(), b"keptlost");
        assert_eq!(disk.after_power_cut().bytes(path).unwrap(), b"kept");
    }

    #[test]
    fn a_full_disk_says_so_before_anything_is_written() {
        let disk = MemoryDisk::with_capacity(10);
        let file = disk.open(Path::new("f"), OpenMode::Create).unwrap();
        assert_eq!(file.reserve(0, 11).unwrap_err().kind(), io::ErrorKind::StorageFull);
        file.reserve(0, 10).unwrap();
    }
}
