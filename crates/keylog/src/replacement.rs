//! A file that is to replace the log: fewer records with the same meaning.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zodium_disk::{Disk, LockError, OpenMode, with_suffix};

use crate::locked_file::LockedFile;
use crate::record;

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// A log that is being written, under another name. There is one at a time, as there is one name.
#[derive(Debug)]
pub struct Replacement {
    pub(crate) file: LockedFile,
    pub(crate) path: PathBuf,
    disk: Arc<dyn Disk>,
    /// Bytes that are in the file.
    length: u64,
    buffer: Vec<u8>,
    /// Whether it takes the place of the log, so that its file stays.
    pub(crate) is_used: bool,
    /// Whether there is a replacement of this log. Release at its end, Acquire by those that ask.
    exists: Arc<AtomicBool>,
}

impl Replacement {
    /// Begins a file beside `log`, unless one `exists`. What a crash has left there is overwritten.
    pub(crate) fn begin(
        disk: Arc<dyn Disk>,
        log: &Path,
        exists: &Arc<AtomicBool>,
    ) -> io::Result<Replacement> {
        if exists.swap(true, Ordering::AcqRel) {
            let message = "another compaction is not in place yet";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
        let path = with_suffix(log, ".new");
        let opened = disk.open(&path, OpenMode::Truncate).and_then(|file| {
            LockedFile::lock(file).map_err(|error| match error {
                LockError::Held { .. } => io::ErrorKind::ResourceBusy.into(),
                LockError::Io(error) => error,
            })
        });
        let file = opened.inspect_err(|_| exists.store(false, Ordering::Release))?;
        let (buffer, exists) = (record::header().to_vec(), Arc::clone(exists));
        Ok(Replacement { file, path, disk, length: 0, buffer, is_used: false, exists })
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
        // Last: the name is free from here on.
        self.exists.store(false, Ordering::Release);
    }
}
