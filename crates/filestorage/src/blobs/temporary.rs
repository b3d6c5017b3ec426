//! A blob that is not committed yet: gone with its value, unless a transaction takes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;
use zodium_disk::{Disk, DiskFile};

use crate::StorageError;

/// The data of a blob on their way into a transaction. Its file is removed on drop.
#[derive(Debug)]
pub struct TemporaryBlob {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    length: u64,
}

impl TemporaryBlob {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        file: Arc<dyn DiskFile>,
        length: u64,
    ) -> TemporaryBlob {
        TemporaryBlob { disk, path, file, length }
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
    pub fn append(&mut self, chunk: &[u8]) -> Result<(), StorageError> {
        self.file.write_all_at(chunk, self.length).map_err(|error| {
            StorageError::writing(&self.path, "write", chunk.len() as u64, error)
        })?;
        self.length += chunk.len() as u64;
        Ok(())
    }
}

impl Drop for TemporaryBlob {
    fn drop(&mut self) {
        if let Err(error) = self.disk.remove(&self.path) {
            warn!(file = %self.path.display(), %error, "could not be removed");
        }
    }
}
