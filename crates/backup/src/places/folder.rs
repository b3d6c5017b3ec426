//! A repository in a folder.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Claim, Listed, Place};
use crate::BackupError;
use crate::files::{NewFile, lock, sync_folder, sync_folder_of};

/// The name of a file that is not whole yet.
const TEMPORARY: &str = "tmp.tmp";

/// A folder whose files are the objects.
pub struct Folder {
    path: PathBuf,
    /// Folders with new names of files, which are to be synced.
    unsettled: Mutex<BTreeSet<PathBuf>>,
    /// By the last claim.
    claimed: Mutex<Option<Claimed>>,
}

/// Which folder was claimed. Another one may come to its path, such as an empty mount point.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Claimed {
    device: u64,
    inode: u64,
}

impl Claimed {
    fn of(status: &Metadata) -> Claimed {
        Claimed { device: status.dev(), inode: status.ino() }
    }

    /// Fails unless it is still at its path.
    fn check(&self, path: &Path) -> Result<(), BackupError> {
        match fs::metadata(path) {
            Ok(found) if Claimed::of(&found) == *self => Ok(()),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(BackupError::io("look at it", path)(error))
            }
            _ => Err(BackupError::Gone { path: path.display().to_string() }),
        }
    }
}

impl Folder {
    /// The folder at a path, which need not be there.
    pub fn new(path: &Path) -> Folder {
        Folder { path: path.to_owned(), unsettled: Mutex::default(), claimed: Mutex::default() }
    }

    fn file(&self, object: &str) -> PathBuf {
        self.path.join(object)
    }

    fn claimed(&self) -> MutexGuard<'_, Option<Claimed>> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a file under its temporary name.
    fn begin(&self, path: &Path, bytes: &[u8]) -> Result<NewFile, BackupError> {
        if let Some(claimed) = *self.claimed() {
            claimed.check(&self.path)?;
        }
        let folder = path.parent().unwrap_or(&self.path);
        if !folder.exists() {
            fs::create_dir_all(folder).map_err(BackupError::io("create it", folder))?;
            sync_folder_of(folder)?;
        }
        let mut file = NewFile::create(path, &self.path.join(TEMPORARY))?;
        file.write(bytes)?;
        Ok(file)
    }
}

impl Place for Folder {
    fn path(&self, object: &str) -> String {
        match object {
            "" => self.path.display().to_string(),
            _ => self.file(object).display().to_string(),
        }
    }

    fn get(&self, object: &str) -> Result<Option<Vec<u8>>, BackupError> {
        let path = self.file(object);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BackupError::io("read it", &path)(error)),
        }
    }

    fn has(&self, object: &str) -> Result<bool, BackupError> {
        Ok(self.file(object).exists())
    }

    fn put(&self, object: &str, bytes: Vec<u8>) -> Result<(), BackupError> {
        let path = self.file(object);
        self.begin(&path, &bytes)?.rename()?;
        let folder = path.parent().unwrap_or(&self.path).to_owned();
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner).insert(folder);
        Ok(())
    }

    fn settle(&self) -> Result<(), BackupError> {
        let mut unsettled = self.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(folder) = unsettled.first() {
            sync_folder(folder)?;
            unsettled.pop_first();
        }
        Ok(())
    }

    fn create(&self, object: &str, bytes: Vec<u8>) -> Result<bool, BackupError> {
        self.begin(&self.file(object), &bytes)?.finish_unless_there()
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>, BackupError> {
        let mut found = Vec::new();
        list(&self.file(folder), folder, &mut found)?;
        found.sort_by(|one, two| one.object.cmp(&two.object));
        Ok(found)
    }

    fn is_empty(&self) -> Result<bool, BackupError> {
        match fs::read_dir(&self.path) {
            Ok(mut entries) => {
                Ok(!entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != TEMPORARY)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            Err(error) => Err(BackupError::io("read it", &self.path)(error)),
        }
    }

    fn remove(&self, object: &str) -> Result<(), BackupError> {
        let path = self.file(object);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(BackupError::io("remove it", &path)(error))
            }
            _ => Ok(()),
        }
    }

    fn claim(&self) -> Result<Box<dyn Claim>, BackupError> {
        let folder = lock(&self.path)?;
        let status = folder.metadata().map_err(BackupError::io("look at it", &self.path))?;
        let (path, claimed) = (self.path.clone(), Claimed::of(&status));
        *self.claimed() = Some(claimed);
        Ok(Box::new(Locked { _folder: folder, path, claimed }))
    }

    /// All writers have one temporary file.
    fn claim_new(&self) -> Result<Option<Box<dyn Claim>>, BackupError> {
        fs::create_dir_all(&self.path).map_err(BackupError::io("create it", &self.path))?;
        self.claim().map(Some)
    }
}

/// A folder that is locked. The system frees it when the process ends, and not before.
struct Locked {
    _folder: File,
    path: PathBuf,
    claimed: Claimed,
}

impl Claim for Locked {
    fn check(&self) -> Result<(), BackupError> {
        self.claimed.check(&self.path)
    }

    fn confirm(&self) -> Result<(), BackupError> {
        self.check()
    }
}

/// Lists the files below `folder`, whose names begin with `name`.
fn list(folder: &Path, name: &str, found: &mut Vec<Listed>) -> Result<(), BackupError> {
    let unreadable = || BackupError::io("read it", folder);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable()(error)),
    };
    for entry in entries {
        let entry = entry.map_err(unreadable())?;
        let (path, part) = (entry.path(), entry.file_name());
        let Some(part) = part.to_str().filter(|part| *part != TEMPORARY) else { continue };
        let object = if name.is_empty() { part.to_owned() } else { format!("{name}/{part}") };
        let status = entry.metadata().map_err(BackupError::io("look at it", &path))?;
        match status.is_dir() {
            true => list(&path, &object, found)?,
            false => found.push(Listed { object, bytes: status.len() }),
        }
    }
    Ok(())
}
