//! A file that is to replace the log: fewer records with the same meaning.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zodium_disk::{Disk, DiskFile, OpenMode, with_suffix};

use crate::record;

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// A log that is being written, under another name.
#[derive(Debug)]
pub struct Replacement {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) path: PathBuf,
    disk: Arc<dyn Disk>,
    /// Bytes that are in the file.
    length: u64,
    buffer: Vec<u8>,
    /// Whether it takes the place of the log, so that its file stays.
    pub(crate) is_used: bool,
}

impl Replacement {
    /// Begins a file beside `log`. One that a crash has left there is overwritten.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn begin(disk: Arc<dyn Disk>, log: &Path) -> io::Result<Replacement> {
        let path = with_suffix(log, ".new");
        let file = disk.open(&path, OpenMode::Truncate)?;
        let buffer = record::header().to_vec();
        Ok(Replacement { file, path, disk, length: 0, buffer, is_used: false })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&mut self, body: &[u8]) -> io::Result<()> {
        record::write_record(&mut self.buffer, body);
        if self.buffer.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok(())
    }

    /// Appends frames of records.
    pub(crate) fn append_frames(&mut self, frames: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(frames);
        self.write()
    }

    /// Bytes of the file so far.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length + self.buffer.len() as u64
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.length)?;
        self.length += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes and syncs all. Called early it makes the last one short.
    ///
    /// # Errors
    /// The file cannot be written or synced.
    pub fn sync(&mut self) -> io::Result<()> {
        self.write()?;
        self.file.sync()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_used {
            // What is left is overwritten by the next one.
            let _ = self.disk.remove(&self.path);
        }
    }
}
