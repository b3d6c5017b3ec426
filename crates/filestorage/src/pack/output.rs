//! The file that a pack writes: from its start to its end, lengths put in afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use zodium_disk::{Disk, DiskFile, OpenMode};

use crate::FileStorageError;
use crate::format::Magic;
use crate::format::create_like;

/// The buffer is written out when it has grown to this.
const WRITE_BYTES: usize = 1 << 20;
/// Synced at least this often: a large heap of unwritten pages would slow down the syncs of
/// commits, and make the last one of the pack, for which they wait, a long one.
const SYNC_BYTES: u64 = 8 << 20;

pub(super) struct Output {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    /// Up to here the bytes are in the file; the rest is in the buffer.
    written: u64,
    /// Up to here they are on stable storage.
    synced: u64,
}

impl Output {
    /// An empty file at `path` that begins with `magic`, with the permissions of the file at
    /// `model`.
    pub(super) fn create(
        disk: &dyn Disk,
        path: &Path,
        model: &Path,
        magic: Magic,
    ) -> Result<Output, FileStorageError> {
        let file = create_like(disk, path, OpenMode::Truncate, model)?;
        let buffer = magic.bytes().to_vec();
        Ok(Output { path: path.to_owned(), file, buffer, written: 0, synced: 0 })
    }

    pub(super) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next byte goes.
    pub(super) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends what `write` puts behind the bytes it is given.
    pub(super) fn append(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), FileStorageError> {
        write(&mut self.buffer);
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
            if self.written - self.synced >= SYNC_BYTES {
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Replaces eight bytes that were appended before.
    pub(super) fn replace(
        &mut self,
        position: u64,
        bytes: [u8; 8],
    ) -> Result<(), FileStorageError> {
        assert!(position + 8 <= self.position(), "bytes that were appended");
        if position < self.written {
            // All eight in the file, or else some still in the buffer.
            self.flush()?;
            return self.write_at(&bytes, position);
        }
        let start = (position - self.written) as usize;
        self.buffer[start..start + 8].copy_from_slice(&bytes);
        Ok(())
    }

    /// Returns when all bytes appended are on stable storage.
    pub(super) fn sync(&mut self) -> Result<(), FileStorageError> {
        self.flush()?;
        self.file.sync().map_err(|error| FileStorageError::io(&self.path, "sync", error))?;
        self.synced = self.written;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), FileStorageError> {
        self.write_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> Result<(), FileStorageError> {
        let written = self.file.write_all_at(bytes, position);
        written.map_err(|error| FileStorageError::io(&self.path, "write", error))
    }
}

#[cfg(test)]
mod tests {
    use zodium_disk::{FaultyDisk, MemoryDisk, Operation};

    use super::*;

    /// A large heap of unwritten pages would make the syncs of commits long.
    #[test]
    fn the_copy_is_synced_each_8_mib() {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let path = Path::new("f");
        let mut output = Output::create(&disk, path, path, Magic::Fs30).unwrap();
        let mut syncs_at = Vec::new();
        for mib in 1..=25 {
            let before = disk.count(Operation::Sync);
            output.append(|bytes| bytes.resize(bytes.len() + WRITE_BYTES, 1)).unwrap();
            if disk.count(Operation::Sync) > before {
                syncs_at.push(mib);
            }
        }
        assert_eq!(syncs_at, [8, 16, 24]);
        assert_eq!(disk.files().after_power_cut().bytes(path).unwrap().len(), 4 + 24 * WRITE_BYTES);
    }

    #[test]
    fn bytes_are_replaced_in_the_file_in_the_buffer_and_on_the_border() {
        let (disk, path) = (MemoryDisk::new(), Path::new("f"));
        let mut output = Output::create(&disk, path, path, Magic::Fs30).unwrap();
        let mut expected = b"FS30".to_vec();
        let append = |output: &mut Output, expected: &mut Vec<u8>, length| {
            expected.resize(expected.len() + length, b'.');
            output.append(|bytes| bytes.resize(bytes.len() + length, b'.')).unwrap();
        };
        append(&mut output, &mut expected, WRITE_BYTES);
        for before_border in 0..12 {
            append(&mut output, &mut expected, 20);
            let position = output.written + 2 - before_border;
            let start = position as usize;
            output.replace(position, position.to_be_bytes()).unwrap();
            expected[start..start + 8].copy_from_slice(&position.to_be_bytes());
        }
        output.sync().unwrap();
        assert_eq!(disk.bytes(path), Some(expected));
    }
}
