//! An open `Data.fs`: what all the other files of this crate add their methods to.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};
use tracing::warn;
use zodium_blobs::{BlobDirectory, CommittedRecords};
use zodium_disk::{Disk, FileLock, SpaceWatch};
use zodium_storage::WriteState;
use zodium_types::{Distribution, Durations, Oid, Tid};

use crate::append::{AppendState, WriteFailure};
use crate::back_pointers::BackPointers;
use crate::format::Magic;
use crate::locking::{self, NameLocks};
use crate::log::LogFile;
use crate::old_logs::OldLogs;
use crate::open_options::OpenOptions;
use crate::record_cache::RecordCacheStatistics;
use crate::recovery::{self, Recovered};
use crate::{ChecksumMode, FileStorageError, index_snapshot};

/// The largest oid that is handed out: ZODB's tools take oids for signed numbers.
const NEW_OID_MAX: u64 = i64::MAX as u64;

/// For how long a refusal counts when nobody has asked since.
const FULL_REMEMBERED: Duration = Duration::from_secs(60);

/// A FileStorage: one data file with its index, readable by many threads at once, appended to by
/// one.
pub struct FileStorage {
    /// The data file. All files that belong to it are beside it.
    pub(crate) path: PathBuf,
    /// The path that was given: a symbolic link, if that is not the path of the file.
    pub(crate) named: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) read_only: bool,
    pub(crate) magic: Magic,
    pub(crate) cache_bytes: usize,
    pub(crate) checksum_mode: ChecksumMode,
    /// Relaxed: a figure by itself.
    pub(crate) scrubbed_bytes: AtomicU64,
    pub(crate) quota_bytes: Option<u64>,
    log: ArcSwap<LogFile>,
    old_logs: Mutex<OldLogs>,
    pub(crate) append: Mutex<AppendState>,
    /// Goes with `append`: space is promised again.
    pub(crate) reserving_resumed: Condvar,
    /// Whether the data file's disk has space for commits.
    pub(crate) space: Arc<SpaceWatch>,
    /// Whether the quota leaves some.
    pub(crate) quota: SpaceWatch,
    /// How long syncs took. Written by who appends.
    pub(crate) syncs: Durations,
    /// Held while a batch is written and published, and while a pack replaces the file. Taken
    /// before all other locks.
    pub(crate) appending: Mutex<()>,
    /// Transactions between their vote and their finish that point back to records.
    pub(crate) back_pointers: Arc<BackPointers>,
    /// Whether a pack is under way.
    pub(crate) packing: Arc<AtomicBool>,
    /// The newest oid handed out or stored.
    last_oid: AtomicU64,
    pub(crate) blobs: Option<BlobDirectory>,
    /// Whether something did not fit its checksum when the file was opened.
    pub(crate) was_damaged: AtomicBool,
    /// Whether the lock file names this session as one without gaps, as far as is known.
    pub(crate) may_be_named: AtomicBool,
    /// The lock on the data file itself: the one that has its name, so a pack takes a new one.
    pub(crate) data_lock: Mutex<Option<FileLock>>,
    _name_locks: Option<NameLocks>,
}

impl FileStorage {
    /// Opens a data file: takes its lock, loads or rebuilds the index, puts an unfinished tail
    /// aside.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: &OpenOptions<'_>,
    ) -> Result<FileStorage, FileStorageError> {
        let named = options.path.clone();
        let path = locking::resolve(disk.as_ref(), &named)?;
        let blob_directory = options.blob_directory.clone();
        let options = &OpenOptions { path, blob_directory, ..*options };
        let path = options.path.as_path();
        let name_locks = match options.read_only {
            true => None,
            false => Some(NameLocks::take(disk.as_ref(), &named, path)?),
        };
        let (file, data_lock) = locking::open_data_file(disk.as_ref(), options)?;
        let status = file.status().map_err(|error| FileStorageError::io(path, "look at", error))?;
        let recovered = recovery::recover(disk.as_ref(), options, file)?;
        let checksums = recovered.start_checksums(disk.as_ref(), options);
        let Recovered { file, magic, positions, end, last_tid, damages, is_index_unused, .. } =
            recovered;
        let blobs = options.blob_directory.as_deref();
        let blobs = blobs
            .map(|path| BlobDirectory::open(Arc::clone(&disk), path, options.read_only))
            .transpose()?;
        let largest = positions.largest_oid();
        let last_oid = largest.map_or(Oid::ROOT, |oid| behind_gap(oid, options.new_oids_gap));
        let log = LogFile::new(path, file, positions, options.cache_bytes, end, 0)
            .with_checksums(checksums);
        let storage = FileStorage {
            path: path.to_owned(),
            named,
            disk,
            read_only: options.read_only,
            magic,
            cache_bytes: options.cache_bytes,
            checksum_mode: options.checksums,
            scrubbed_bytes: AtomicU64::new(0),
            quota_bytes: options.quota_bytes,
            log: ArcSwap::from_pointee(log),
            old_logs: Mutex::default(),
            append: Mutex::new(AppendState::new(status.identity, end, last_tid)),
            reserving_resumed: Condvar::new(),
            space: Arc::default(),
            quota: SpaceWatch::default(),
            syncs: Durations::default(),
            appending: Mutex::default(),
            back_pointers: Arc::default(),
            packing: Arc::default(),
            last_oid: AtomicU64::new(last_oid.0),
            blobs,
            was_damaged: AtomicBool::new(!damages.is_empty()),
            may_be_named: AtomicBool::new(false),
            data_lock: Mutex::new(data_lock),
            _name_locks: name_locks,
        };
        storage.name_session();
        storage.verify_tail();
        if !options.read_only {
            if is_index_unused {
                storage.replace_index();
            }
            if let Some(blobs) = &storage.blobs {
                blobs.clean_up(&storage)?;
            }
            storage.resume_blob_removal()?;
        }
        Ok(storage)
    }

    /// The data file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its blobs; `None` when it was opened without a blob directory.
    pub fn blobs(&self) -> Option<&BlobDirectory> {
        self.blobs.as_ref()
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Which Python's pickles it holds.
    pub fn magic(&self) -> Magic {
        self.magic
    }

    /// Bytes of committed transactions, magic included.
    pub fn size(&self) -> u64 {
        self.log().end()
    }

    /// Number of objects in the index, deleted ones included until a pack.
    pub fn object_count(&self) -> u64 {
        self.log().positions.len()
    }

    /// How the cache of records does. Counted since the file was opened, or replaced by a pack,
    /// which begins with an empty cache.
    pub fn cache_statistics(&self) -> RecordCacheStatistics {
        self.log().cache.statistics()
    }

    /// The last transaction in the file; [`Tid::ZERO`] when there is none.
    pub fn last_tid(&self) -> Tid {
        self.append.lock().last_tid()
    }

    /// How long it took to sync each batch of commits.
    pub fn sync_durations(&self) -> Distribution {
        self.syncs.distribution()
    }

    /// Whether it takes commits.
    pub fn write_state(&self) -> WriteState {
        let state = self.append.lock();
        if self.read_only {
            WriteState::ReadOnly
        } else if state.failure == Some(WriteFailure::Changed) {
            WriteState::Changed
        } else if state.is_failed() {
            WriteState::Failed
        } else if state.was_full_within(FULL_REMEMBERED) {
            WriteState::Full
        } else {
            WriteState::Writable
        }
    }

    /// Whether a batch is being committed, or a pack replaces the file: another commit would wait.
    pub fn is_appending(&self) -> bool {
        self.appending.is_locked()
    }

    /// Hands out `count` oids never used before, ascending; `None` when the 63-bit space ends.
    pub fn new_oids(&self, count: u64) -> Option<std::ops::RangeInclusive<u64>> {
        let last = self
            .last_oid
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                last.checked_add(count).filter(|last| *last <= NEW_OID_MAX)
            })
            .ok()?;
        Some(last + 1..=last + count)
    }

    /// The largest oid that is in use, was handed out, or is left out of what will be.
    pub fn last_oid(&self) -> Oid {
        Oid(self.last_oid.load(Ordering::Relaxed))
    }

    /// Notes that an oid is in use, so that it is not handed out.
    pub fn note_oid(&self, oid: Oid) {
        self.last_oid.fetch_max(oid.0, Ordering::Relaxed);
    }

    /// Writes the Python-compatible index beside the data file.
    pub fn save_index(&self) -> Result<(), FileStorageError> {
        if self.read_only {
            return Err(FileStorageError::ReadOnly { path: self.path.clone() });
        }
        // Beside another file it would be believed to be of that one.
        self.check_identity()?;
        self.sync_checksums();
        self.blobs.iter().for_each(BlobDirectory::sync_sums);
        self.save_sound_index()
    }

    /// Instead of one that was not used. It is no longer of any use, so a failure is no reason not
    /// to open.
    fn replace_index(&self) {
        if self.is_damage_suspected() {
            return;
        }
        if let Err(error) = index_snapshot::save(self.disk.as_ref(), &self.log()) {
            warn!(file = %self.path.display(), %error, "the index could not be saved");
        }
    }

    /// What is damaged may be about another object than it says: an index with it is not saved.
    fn save_sound_index(&self) -> Result<(), FileStorageError> {
        if self.is_damage_suspected() {
            warn!(file = %self.path.display(),
                "the index is not saved, since the data file is damaged; the next start reads \
                 more");
            return Ok(());
        }
        index_snapshot::save(self.disk.as_ref(), &self.log())
    }

    /// Gives back what was reserved and saves the index. The storage can still be read. After a
    /// failed write, what was refused is cut, where the disk allows that again.
    ///
    /// # Errors
    /// [`FileStorageError::Changed`] when another program changed the file: it is left as it is
    /// then, and no index is saved beside it.
    pub fn close(&self) -> Result<(), FileStorageError> {
        if self.read_only {
            return Ok(());
        }
        if let Some(blobs) = &self.blobs {
            blobs.settle();
            blobs.sync_sums();
        }
        self.cut_refused();
        if let Err(changed) = self.check_unchanged() {
            self.disown_session();
            self.sync_checksums();
            return Err(changed);
        }
        self.release_reservation()?;
        self.close_checksums();
        self.save_sound_index()
    }

    pub(crate) fn log(&self) -> arc_swap::Guard<Arc<LogFile>> {
        self.log.load()
    }

    pub(crate) fn replace_log(&self, log: LogFile) {
        let old = self.log.swap(Arc::new(log));
        self.old_logs.lock().add(old.pinned());
    }
}

impl CommittedRecords for FileStorage {
    fn has_written(&self, oid: Oid, tid: Tid) -> Option<bool> {
        self.load_serial(oid, tid).ok().map(|data| data.is_some())
    }
}

/// The last oid that is not given, so far above the largest in use; that one itself where no more
/// are left.
fn behind_gap(largest: Oid, gap: u64) -> Oid {
    let last = largest.0.checked_add(gap).filter(|last| *last < NEW_OID_MAX);
    last.map_or(largest, Oid)
}
