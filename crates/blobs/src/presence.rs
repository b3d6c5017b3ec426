//! Whether the directory that was opened still has its name.
//!
//! An unmounted disk leaves an empty mount point under that name. Blobs that were committed there
//! would be lost when the disk is mounted again, so nothing is committed meanwhile.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tracing::{error, info, warn};
use zodium_disk::{Disk, DiskFile, FileIdentity, OpenMode};

use crate::BlobError;

/// Interval between two looks of the thread.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The identity of an open blob directory, and whether it is away.
#[derive(Debug)]
pub(crate) struct Presence {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// `None` if the disk cannot open folders, or the directory is only read.
    opened: Option<Opened>,
    /// Relaxed: it guards no other memory.
    is_away: AtomicBool,
}

#[derive(Debug)]
struct Opened {
    identity: FileIdentity,
    /// Some file systems give a folder another number once it is open nowhere.
    _folder: Arc<dyn DiskFile>,
}

impl Presence {
    /// Of the directory that is at `path` now.
    pub(crate) fn of(disk: Arc<dyn Disk>, path: PathBuf) -> Presence {
        let folder = disk.open(&path, OpenMode::Read);
        let opened = folder.and_then(|folder| {
            let identity = folder.status()?.identity;
            Ok(Opened { identity, _folder: folder })
        });
        Presence { disk, path, opened: opened.ok(), is_away: AtomicBool::new(false) }
    }

    /// Of a directory whose name may lead elsewhere at any time.
    pub(crate) fn unchecked(disk: Arc<dyn Disk>, path: PathBuf) -> Presence {
        Presence { disk, path, opened: None, is_away: AtomicBool::new(false) }
    }

    /// Whether the directory was away at the last look.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Looks for the directory, and logs when it goes and when it is back. Blocking.
    ///
    /// # Errors
    /// [`BlobError::Away`] when its name leads elsewhere, or nowhere.
    pub(crate) fn check(&self) -> Result<(), BlobError> {
        let Some(opened) = &self.opened else { return Ok(()) };
        let found = match self.disk.status(&self.path) {
            Ok(Some(found)) if found.identity == opened.identity => {
                if self.is_away.swap(false, Ordering::Relaxed) {
                    info!(folder = %self.path.display(),
                        "the blob directory is back: blobs are served and committed again");
                }
                return Ok(());
            }
            Ok(Some(_)) => "another folder is there".to_owned(),
            Ok(None) => "it is not there".to_owned(),
            Err(error) => error.to_string(),
        };
        let error = BlobError::Away { path: self.path.clone(), found };
        if !self.is_away.swap(true, Ordering::Relaxed) {
            error!("{error}");
        }
        Err(error)
    }

    /// Looks now and then on a thread of its own, which ends with the last owner.
    pub(crate) fn watch(self: &Arc<Self>) {
        let watched = Arc::downgrade(self);
        let look = move || {
            loop {
                thread::sleep(LOOK_INTERVAL);
                let Some(presence) = watched.upgrade() else { return };
                // It logs what it finds.
                let _ = presence.check();
            }
        };
        if let Err(error) = thread::Builder::new().name("blob-watch".to_owned()).spawn(look) {
            warn!(%error, "no thread to look for the blob directory");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use zodium_disk::RealDisk;
    use zodium_types::{Oid, Tid};

    use super::*;
    use crate::{BlobDirectory, NewBlob};

    fn commit(directory: &BlobDirectory, tid: Tid) -> Result<(), BlobError> {
        let mut sent = directory.temporary()?;
        sent.append(b"content")?;
        let mut staged = directory.stage(Tid(0), &[(Oid(1), NewBlob::Sent(&sent))])?;
        staged.commit(tid)?;
        staged.keep();
        Ok(())
    }

    #[test]
    fn nothing_is_committed_into_another_folder_of_that_name() {
        let folder = tempfile::tempdir().unwrap();
        let [path, aside] = ["blobs", "aside"].map(|name| folder.path().join(name));
        let directory = BlobDirectory::open(Arc::new(RealDisk), &path, false).unwrap();
        commit(&directory, Tid(1)).unwrap();
        let begun = directory.temporary().unwrap();
        fs::rename(&path, &aside).unwrap();
        for has_other in [false, true] {
            if has_other {
                fs::create_dir(&path).unwrap();
            }
            assert!(matches!(commit(&directory, Tid(2)), Err(BlobError::Away { .. })));
            let staged = directory.stage(Tid(1), &[(Oid(1), NewBlob::Sent(&begun))]);
            assert!(matches!(staged, Err(BlobError::Away { .. })));
            let opened = directory.open_committed(Oid(1), Tid(1));
            assert!(matches!(opened, Err(BlobError::Away { .. })));
            assert!(directory.away().is_some());
        }
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        fs::remove_dir(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
        commit(&directory, Tid(2)).unwrap();
        assert_eq!(directory.away(), None);
        directory.open_committed(Oid(1), Tid(1)).unwrap();
    }
}
