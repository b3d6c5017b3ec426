//! A file that this log alone writes. Other names of it, such as hard links or mounts, have lock
//! files of their own beside them, so the file itself is locked.

use std::ops::Deref;
use std::sync::Arc;

use zodium_disk::{DiskFile, FileLock, LockError};

/// A file and the lock on it. Clones share both.
#[derive(Clone, Debug)]
pub(crate) struct LockedFile {
    file: Arc<dyn DiskFile>,
    _lock: Arc<FileLock>,
}

impl LockedFile {
    pub(crate) fn lock(file: Arc<dyn DiskFile>) -> Result<LockedFile, LockError> {
        let lock = Arc::new(file.lock()?);
        Ok(LockedFile { file, _lock: lock })
    }
}

impl Deref for LockedFile {
    type Target = dyn DiskFile;

    fn deref(&self) -> &(dyn DiskFile + 'static) {
        &*self.file
    }
}
