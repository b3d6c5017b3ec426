//! Files of a backup: written under another name, synced, and renamed.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::BackupError;
use crate::large_file::LargeFile;

/// Bytes that are read at once.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// A file that is there as a whole or not at all.
pub(crate) struct NewFile {
    out: LargeFile,
    temporary: PathBuf,
    path: PathBuf,
}

impl NewFile {
    /// Begins the file `path`, under the name `temporary` in the same file system.
    pub(crate) fn create(path: &Path, temporary: &Path) -> Result<NewFile, BackupError> {
        // What a kill has left there may be a second name of a file that was finished: written
        // over, that one would be damaged.
        match fs::remove_file(temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(BackupError::io("remove it", temporary)(error));
            }
            _ => {}
        }
        let file = File::create_new(temporary).map_err(BackupError::io("create it", temporary))?;
        Ok(NewFile {
            out: LargeFile::new(file),
            temporary: temporary.to_owned(),
            path: path.to_owned(),
        })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.out.write_all(bytes).map_err(BackupError::io("write to it", &self.temporary))
    }

    /// Brings it to stable storage, under its name.
    pub(crate) fn finish(self) -> Result<(), BackupError> {
        let path = self.path.clone();
        self.rename()?;
        sync_folder_of(&path)
    }

    /// As [`NewFile::finish`], but for its name, which is durable when its folder is synced.
    pub(crate) fn rename(mut self) -> Result<(), BackupError> {
        self.sync()?;
        let renamed = fs::rename(&self.temporary, &self.path);
        renamed.map_err(BackupError::io("rename a file to it", &self.path))
    }

    /// As [`NewFile::finish`]; `false` if there is a file of that name, which stays.
    ///
    /// A file system such as FAT has no second names. There the caller's lock of the folder keeps
    /// another writer from making the file meanwhile.
    pub(crate) fn finish_unless_there(mut self) -> Result<bool, BackupError> {
        self.sync()?;
        let is_new = match fs::hard_link(&self.temporary, &self.path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(_) if !self.path.exists() => return self.finish().map(|()| true),
            Err(error) => return Err(BackupError::io("link a file to it", &self.path)(error)),
        };
        let removed = fs::remove_file(&self.temporary);
        removed.map_err(BackupError::io("remove it", &self.temporary))?;
        sync_folder_of(&self.path)?;
        Ok(is_new)
    }

    fn sync(&mut self) -> Result<(), BackupError> {
        self.out.sync().map_err(BackupError::io("write to it", &self.temporary))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Makes the names in the folder of `path` durable.
pub(crate) fn sync_folder_of(path: &Path) -> Result<(), BackupError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    sync_folder(folder)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), BackupError> {
    zodium_disk::sync_folder(folder).map_err(BackupError::io("sync it", folder))
}

/// Locks a folder against other backups, until the file is dropped.
pub(crate) fn lock(folder: &Path) -> Result<File, BackupError> {
    let file = File::open(folder).map_err(BackupError::io("open it", folder))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(BackupError::Refused(format!(
            "{}: another backup, restore or prune is under way",
            folder.display()
        ))),
        Err(TryLockError::Error(error)) => Err(BackupError::io("lock it", folder)(error)),
    }
}
