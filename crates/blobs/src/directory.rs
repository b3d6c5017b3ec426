//! An open blob directory: its path, its layout, and the parts that look after its files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tracing::{info, warn};
use zodium_disk::{Disk, DiskFile, Entry, EntryKind, FileLock, LockError, OpenMode, SpaceWatch};
use zodium_types::{Oid, Tid};

use crate::BlobError;
use crate::cleaner::Cleaner;
use crate::complaints::Complaints;
use crate::damaged::DamagedBlobs;
use crate::fingerprint::Fingerprint;
use crate::folders::Folders;
use crate::layout::{self, BlobLayout, LAYOUT_MARKER, OUR_PREFIX, TEMPORARY_FOLDER};
use crate::presence::Presence;
use crate::sums::Sums;
use crate::temporary::TemporaryBlob;

/// An open blob directory.
#[derive(Debug)]
pub struct BlobDirectory {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) path: PathBuf,
    pub(crate) layout: BlobLayout,
    pub(crate) read_only: bool,
    pub(crate) folders: Folders,
    pub(crate) cleaner: Arc<Cleaner>,
    /// Lengths and CRC-32Cs of blobs that were committed here.
    pub(crate) sums: Arc<Sums>,
    pub(crate) damaged: DamagedBlobs,
    /// Whether its disk, which may be another than the data file's, has space for blobs.
    pub(crate) space: Arc<SpaceWatch>,
    presence: Arc<Presence>,
    /// Blobs that could not be stored, and blobs that were asked for and not there.
    refused: Complaints,
    pub(crate) missing: Complaints,
    /// Makes names unique: this process's start, and a count.
    pub(crate) started: u64,
    pub(crate) names: AtomicU64,
    /// The lock, if its folder was removed and made again.
    lock_again: Mutex<Option<FileLock>>,
}

impl BlobDirectory {
    /// Opens a blob directory, in the layout it has; one that is missing is made, bushy.
    ///
    /// Read-only nothing is made, and a missing directory is an empty one.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        read_only: bool,
    ) -> Result<BlobDirectory, BlobError> {
        let layout = layout::of_directory(disk.as_ref(), path)?;
        // The wall clock only makes names differ from those that a crash left.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = u64::try_from(since_epoch.as_nanos()).unwrap_or_default();
        let names = AtomicU64::new(0);
        let (folders, cleaner) = (Folders::default(), Cleaner::new(Arc::clone(&disk)));
        let space = Arc::default();
        let sums = Arc::new(Sums::open(Arc::clone(&disk), path, read_only));
        // Without a slash at the end, behind which `.old` would be something inside.
        let path: PathBuf = path.components().collect();
        let presence = Presence::unchecked(Arc::clone(&disk), path.clone());
        let mut directory = BlobDirectory {
            disk,
            path,
            layout,
            read_only,
            folders,
            cleaner,
            sums,
            damaged: DamagedBlobs::default(),
            space,
            presence: Arc::new(presence),
            refused: Complaints::of("a blob cannot be stored: the transaction is refused"),
            missing: Complaints::of("a client asks for a blob that is not there"),
            started,
            names,
            lock_again: Mutex::default(),
        };
        if !read_only {
            directory.create()?;
            let presence = Presence::of(Arc::clone(&directory.disk), directory.path.clone());
            directory.presence = Arc::new(presence);
        }
        if layout == BlobLayout::Lawn {
            warn!(folder = %directory.path.display(),
                "the blob directory is a lawn: many file systems are slow with so many folders in \
                 one. ZODB's migrateblobs makes it bushy");
        }
        Ok(directory)
    }

    /// Keeps the directory from being written for another data file, until the lock is dropped.
    /// `None` where the file system cannot lock a folder.
    ///
    /// # Errors
    /// [`BlobError::InUse`] when that has happened already.
    pub fn lock(&self) -> Result<Option<FileLock>, BlobError> {
        self.lock_directory(&self.path)
    }

    /// The same for any blob directory.
    pub(crate) fn lock_directory(&self, path: &Path) -> Result<Option<FileLock>, BlobError> {
        // The folder itself: it is there already, and no other program locks it.
        let folder = self.disk.open(&path.join(TEMPORARY_FOLDER), OpenMode::Read);
        match folder.map(|folder| folder.lock()) {
            Ok(Ok(lock)) => Ok(Some(lock)),
            Ok(Err(LockError::Held { owner })) => {
                Err(BlobError::InUse { path: path.to_owned(), owner })
            }
            Ok(Err(LockError::Io(_))) | Err(_) => Ok(None),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has a thread look now and then whether the directory is still there, so that this is known
    /// although no client asks for a blob.
    pub fn watch(&self) {
        self.presence.watch();
    }

    /// Why blobs are not served and committed, if at the last look the directory was away.
    pub fn away(&self) -> Option<String> {
        let why = || {
            format!(
                "the blob directory {} is away, see the log: blobs are not committed",
                self.path.display()
            )
        };
        self.presence.is_away().then(why)
    }

    /// How it is laid out.
    pub fn layout(&self) -> BlobLayout {
        self.layout
    }

    /// The folder of an object's blobs.
    pub fn folder_of(&self, oid: Oid) -> PathBuf {
        self.path.join(self.layout.folder_of(oid))
    }

    /// The file of a committed blob.
    pub fn path_of(&self, oid: Oid, tid: Tid) -> PathBuf {
        self.folder_of(oid).join(layout::blob_name(tid))
    }

    /// An empty blob, to be filled with what a client sends. Blocking.
    pub fn temporary(&self) -> Result<TemporaryBlob, BlobError> {
        self.telling(self.new_temporary())
    }

    fn new_temporary(&self) -> Result<TemporaryBlob, BlobError> {
        self.check_writable()?;
        let name = self.new_name("");
        let path = self.path.join(TEMPORARY_FOLDER).join(name);
        let file = self.space.noting(self.open_temporary(&path, OpenMode::CreateNew))?;
        Ok(TemporaryBlob::new(Arc::clone(&self.cleaner), Arc::clone(&self.space), path, file))
    }

    /// Passes a result on, and logs an error of the system: the client alone would know it.
    pub(crate) fn telling<T>(&self, result: Result<T, BlobError>) -> Result<T, BlobError> {
        result.inspect_err(|error| {
            if matches!(error, BlobError::Io { .. }) {
                self.refused.note(error);
            }
        })
    }

    /// Makes a file in the folder of temporary files. Programs that clean up, or copy, remove that
    /// folder while it is in use: it is made again then.
    pub(crate) fn open_temporary(
        &self,
        path: &Path,
        mode: OpenMode,
    ) -> Result<Arc<dyn DiskFile>, BlobError> {
        let failed = |error| BlobError::writing(path, "create", 0, error);
        match self.disk.open(path, mode) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.restore_temporary_folder()?;
                self.disk.open(path, mode).map_err(failed)
            }
            opened => opened.map_err(failed),
        }
    }

    fn restore_temporary_folder(&self) -> Result<(), BlobError> {
        let folder = self.path.join(TEMPORARY_FOLDER);
        let failed = |error| BlobError::writing(&folder, "create", 0, error);
        if self.disk.create_folder(&folder).map_err(failed)? {
            warn!(folder = %folder.display(), "made again: another program has removed it");
            let made = self.disk.copy_permissions(&self.path, &folder);
            made.and_then(|()| self.disk.sync_folder_of(&folder)).map_err(failed)?;
            // The lock went with the folder.
            *self.lock_again.lock() = self.lock()?;
        }
        Ok(())
    }

    /// A blob that a client which shares the directory has put beside the committed ones of its
    /// object. From here on it is ours, and complete. Blocking, for as long as it takes to sync it.
    ///
    /// # Errors
    /// [`BlobError::Name`] when that is not the name of such a file, or no plain file;
    /// [`BlobError::NotShared`] when there is none.
    pub fn adopt(&self, oid: Oid, basename: &str) -> Result<TemporaryBlob, BlobError> {
        self.check_writable()?;
        let refused = || BlobError::Name { oid, name: basename.to_owned() };
        if !layout::is_client_name(basename) {
            return Err(refused());
        }
        let path = self.folder_of(oid).join(basename);
        let failed = |operation| {
            let path = path.clone();
            move |error| BlobError::io(&path, operation, error)
        };
        // Not a link to elsewhere: what it points to would be moved about and served.
        match self.disk.kind(&path).map_err(failed("look for"))? {
            Some(EntryKind::File) => {}
            Some(_) => return Err(refused()),
            None => return Err(BlobError::NotShared { oid, path }),
        }
        let file = self.disk.open(&path, OpenMode::Read).map_err(failed("open"))?;
        let length = file.length().map_err(failed("read"))?;
        let (cleaner, space) = (Arc::clone(&self.cleaner), Arc::clone(&self.space));
        TemporaryBlob::adopted(cleaner, space, path, file, length)
    }

    /// Returns when everything that was given up is removed. Blocking.
    pub fn settle(&self) {
        self.cleaner.settle();
    }

    /// Brings the recorded lengths and sums to stable storage. Blocking.
    pub fn sync_sums(&self) {
        self.sums.sync();
    }

    /// Blobs that were found damaged when they were asked for, and were not put back since.
    pub fn damaged_count(&self) -> u64 {
        self.damaged.count()
    }

    /// Records all blobs of a transaction that were committed unrecorded. Transactions in the order
    /// of their tids. Blocking.
    pub fn record(&self, tid: Tid, blobs: Vec<(Oid, Fingerprint)>) {
        self.sums.append(tid, blobs);
    }

    /// What was recorded of each transaction from `tid` on, in their order. Blocking.
    pub fn recorded_from(&self, tid: Tid) -> Vec<(Tid, Vec<(Oid, Fingerprint)>)> {
        self.sums.recorded_from(tid)
    }

    /// What a blob was committed with; `None` when it is not recorded. Blocking.
    pub fn recorded(&self, oid: Oid, tid: Tid) -> Option<Fingerprint> {
        self.sums.find(oid, tid)
    }

    /// The length of a committed blob; `None` when there is none. Blocking.
    pub fn length_of(&self, oid: Oid, tid: Tid) -> Result<Option<u64>, BlobError> {
        let path = self.path_of(oid, tid);
        let status = self.disk.status(&path);
        let status = status.map_err(|error| BlobError::io(&path, "look for", error))?;
        Ok(status.map(|status| status.length))
    }

    /// Whether there is a committed blob of that object and transaction. Blocking.
    pub fn has(&self, oid: Oid, tid: Tid) -> Result<bool, BlobError> {
        let path = self.path_of(oid, tid);
        self.disk.exists(&path).map_err(|error| BlobError::io(&path, "look for", error))
    }

    fn create(&self) -> Result<(), BlobError> {
        let temporary = self.path.join(TEMPORARY_FOLDER);
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| BlobError::io(&path, "create", error)
        };
        if self.disk.create_folder(&self.path).map_err(failed(&self.path))? {
            info!(folder = %self.path.display(), "created the blob directory");
        }
        self.disk.create_folder(&temporary).map_err(failed(&temporary))?;
        let marker = self.path.join(LAYOUT_MARKER);
        let written = self.disk.status(&marker).map_err(failed(&marker))?;
        if written.is_none_or(|marker| marker.length == 0) {
            layout::write_marker(self.disk.as_ref(), &marker, self.layout)
                .map_err(failed(&marker))?;
        }
        let sync = |path| self.disk.sync_folder_of(path);
        sync(&self.path).and_then(|()| sync(&temporary)).map_err(failed(&self.path))
    }

    pub(crate) fn check_writable(&self) -> Result<(), BlobError> {
        if self.read_only {
            return Err(BlobError::ReadOnly { path: self.path.clone() });
        }
        self.check_present()
    }

    /// # Errors
    /// [`BlobError::Away`] when another directory has the name, or none. Never of one that is only
    /// read.
    pub(crate) fn check_present(&self) -> Result<(), BlobError> {
        self.presence.check()
    }

    pub(crate) fn list(&self, folder: &Path) -> Result<Vec<Entry>, BlobError> {
        self.disk.list(folder).map_err(|error| BlobError::io(folder, "list", error))
    }

    pub(crate) fn remove(&self, path: &Path) -> Result<(), BlobError> {
        self.disk.remove(path).map_err(|error| BlobError::io(path, "remove", error))
    }

    pub(crate) fn sync_folder(&self, folder: &Path) -> Result<(), BlobError> {
        let inside = folder.join(TEMPORARY_FOLDER);
        let synced = self.disk.sync_folder_of(&inside);
        synced.map_err(|error| BlobError::io(folder, "sync", error))
    }

    pub(crate) fn read_text(&self, path: &Path) -> Result<String, BlobError> {
        let failed = |error| BlobError::io(path, "read", error);
        let file = self.disk.open(path, OpenMode::Read).map_err(failed)?;
        let length = file.length().map_err(failed)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A name that no file has, of this process or one before.
    pub(crate) fn new_name(&self, suffix: &str) -> String {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        format!("{OUR_PREFIX}{:016x}-{number:x}{suffix}", self.started)
    }
}
