//! Where the data file is.

use std::path::PathBuf;
use std::sync::Arc;

use zodium_disk::Disk;

use crate::FileStorageError;

/// The names of an open data file, and the disk that has it.
pub(crate) struct DataFile {
    pub(crate) disk: Arc<dyn Disk>,
    /// Path of the data file. All files that belong to it are in the same folder.
    pub(crate) path: PathBuf,
    /// The path that the caller gave: a symbolic link, or the same as `path`.
    pub(crate) named: PathBuf,
    pub(crate) read_only: bool,
}

impl DataFile {
    /// Refuses what would write to a file that was opened for reading.
    pub(crate) fn check_writable(&self) -> Result<(), FileStorageError> {
        match self.read_only {
            true => Err(FileStorageError::ReadOnly { path: self.path.clone() }),
            false => Ok(()),
        }
    }
}
