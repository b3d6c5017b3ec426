//! A blob that is not committed yet: gone with its value, unless a transaction takes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zodium_disk::{DiskFile, SpaceWatch};

use crate::BlobError;
use crate::cleaner::{Cleaner, Refuse};
use crate::fingerprint::Fingerprint;

/// The data of a blob on their way into a transaction. Its file is removed on drop.
#[derive(Debug)]
pub struct TemporaryBlob {
    cleaner: Arc<Cleaner>,
    space: Arc<SpaceWatch>,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    length: u64,
    /// CRC-32C of the bytes so far; `None` when a client wrote the file itself.
    crc32c: Option<u32>,
    /// Whether the file has gone elsewhere. Relaxed: nothing is read on the strength of it.
    is_taken: AtomicBool,
}

impl TemporaryBlob {
    /// An empty one.
    pub(crate) fn new(
        cleaner: Arc<Cleaner>,
        space: Arc<SpaceWatch>,
        path: PathBuf,
        file: Arc<dyn DiskFile>,
    ) -> TemporaryBlob {
        let (crc32c, is_taken) = (Some(0), AtomicBool::new(false));
        TemporaryBlob { cleaner, space, path, file, length: 0, crc32c, is_taken }
    }

    /// One that a client has written.
    pub(crate) fn adopted(
        cleaner: Arc<Cleaner>,
        space: Arc<SpaceWatch>,
        path: PathBuf,
        file: Arc<dyn DiskFile>,
        length: u64,
    ) -> TemporaryBlob {
        let mut blob = TemporaryBlob::new(cleaner, space, path, file);
        (blob.length, blob.crc32c) = (length, None);
        blob
    }

    /// Where it is for now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Adds the next bytes. Blocking. After an error the blob is of no use.
    pub fn append(&mut self, chunk: &[u8]) -> Result<(), BlobError> {
        let written = self
            .file
            .write_all_at(chunk, self.length)
            .map_err(|error| BlobError::writing(&self.path, "write", chunk.len() as u64, error));
        self.space.noting(written)?;
        self.length += chunk.len() as u64;
        self.crc32c = self.crc32c.map(|before| crc32c::crc32c_append(before, chunk));
        Ok(())
    }

    pub(crate) fn file(&self) -> Arc<dyn DiskFile> {
        Arc::clone(&self.file)
    }

    /// What to record of the blob. A file that a client wrote itself is read for it: after its
    /// sync it is usually still in the system's memory. Blocking.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let known = Fingerprint { length: self.length, crc32c: self.crc32c };
        match self.crc32c {
            Some(_) => known,
            // A failed read must not fail the commit: the length alone is recorded.
            None => Fingerprint::of(self.file.as_ref(), |_| ()).unwrap_or(known),
        }
    }

    /// Notes that the file has moved to a transaction.
    pub(crate) fn note_taken(&self) {
        self.is_taken.store(true, Ordering::Relaxed);
    }

    pub(crate) fn sync(&self) -> Result<(), BlobError> {
        self.file.sync().map_err(|error| BlobError::writing(&self.path, "sync", self.length, error))
    }
}

impl Drop for TemporaryBlob {
    fn drop(&mut self) {
        if *self.is_taken.get_mut() {
            return;
        }
        let file = (std::mem::take(&mut self.path), Some(Arc::clone(&self.file)));
        self.cleaner.take(Refuse { files: vec![file], intent: None, is_durable: false });
    }
}
