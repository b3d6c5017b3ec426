//! An open `Data.fs`. The other files of this crate add methods to it.

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

use crate::format::Magic;
use crate::open;
use crate::open::{NameLocks, OpenOptions, Recovered};
use crate::read::{LogFile, OldLogs, RecordCacheStatistics};
use crate::write::{AppendState, BackPointers, WriteFailure};
use crate::{ChecksumMode, FileStorageError};

/// Largest oid that the storage hands out: ZODB's tools read oids as signed numbers.
const NEW_OID_MAX: u64 = i64::MAX as u64;

/// How long after its last refusal for lack of space the storage still counts as full.
const FULL_REMEMBERED: Duration = Duration::from_secs(60);

/// A FileStorage: one data file with its index. Many threads may read it at once, and one thread
/// appends to it.
pub struct FileStorage {
    /// Path of the data file. All files that belong to it are in the same folder.
    pub(crate) path: PathBuf,
    /// The path that the caller gave: a symbolic link, or the same as `path`.
    pub(crate) named: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) read_only: bool,
    pub(crate) magic: Magic,
    pub(crate) cache_bytes: usize,
    pub(crate) checksum_mode: ChecksumMode,
    /// A counter of its own, so accesses are `Relaxed`.
    pub(crate) scrubbed_bytes: AtomicU64,
    pub(crate) quota_bytes: Option<u64>,
    log: ArcSwap<LogFile>,
    old_logs: Mutex<OldLogs>,
    pub(crate) append: Mutex<AppendState>,
    /// Used with the `append` mutex: signals that reservations of space are allowed again.
    pub(crate) reserving_resumed: Condvar,
    /// Whether the data file's disk has space for commits.
    pub(crate) space: Arc<SpaceWatch>,
    /// Whether the quota leaves space for commits.
    pub(crate) quota: SpaceWatch,
    /// Durations of syncs. Written by the appending thread.
    pub(crate) syncs: Durations,
    /// Held while a batch is written and published, and while a pack replaces the file. Taken
    /// before all other locks.
    pub(crate) appending: Mutex<()>,
    /// Voted and unfinished transactions whose records point back to other records.
    pub(crate) back_pointers: Arc<BackPointers>,
    /// Whether a pack is running.
    pub(crate) packing: Arc<AtomicBool>,
    /// Largest oid that was handed out or stored.
    last_oid: AtomicU64,
    pub(crate) blobs: Option<BlobDirectory>,
    /// Whether some bytes did not match their checksum when the file was opened.
    pub(crate) was_damaged: AtomicBool,
    /// Whether the lock file may name this session as one whose checksums have no gaps.
    pub(crate) may_be_named: AtomicBool,
    /// The lock on the data file itself. A pack replaces the file, so it also replaces this lock.
    pub(crate) data_lock: Mutex<Option<FileLock>>,
    _name_locks: Option<NameLocks>,
}

impl FileStorage {
    /// Opens a data file: takes its locks, loads or rebuilds the index, and sets an unfinished tail
    /// aside.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: &OpenOptions<'_>,
    ) -> Result<FileStorage, FileStorageError> {
        let named = options.path.clone();
        let path = open::resolve(disk.as_ref(), &named)?;
        let blob_directory = options.blob_directory.clone();
        let options = &OpenOptions { path, blob_directory, ..*options };
        let path = options.path.as_path();
        let name_locks = match options.read_only {
            true => None,
            false => Some(NameLocks::take(disk.as_ref(), &named, path)?),
        };
        let (file, data_lock) = open::open_data_file(disk.as_ref(), options)?;
        let status = file.status().map_err(|error| FileStorageError::io(path, "look at", error))?;
        let recovered = open::recover(disk.as_ref(), options, file)?;
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

    /// Path of the data file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The blob directory; `None` when the storage was opened without one.
    pub fn blobs(&self) -> Option<&BlobDirectory> {
        self.blobs.as_ref()
    }

    /// Whether the storage was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The magic of the file, which tells the Python version of its pickles.
    pub fn magic(&self) -> Magic {
        self.magic
    }

    /// Bytes of the committed transactions and the magic.
    pub fn size(&self) -> u64 {
        self.log().end()
    }

    /// Number of objects in the index. Deleted objects count until a pack.
    pub fn object_count(&self) -> u64 {
        self.log().positions.len()
    }

    /// Statistics of the record cache. They start at zero when the file is opened, and when a pack
    /// replaces it: the cache is then empty.
    pub fn cache_statistics(&self) -> RecordCacheStatistics {
        self.log().cache.statistics()
    }

    /// Tid of the last transaction in the file; [`Tid::ZERO`] when there is none.
    pub fn last_tid(&self) -> Tid {
        self.append.lock().last_tid()
    }

    /// Distribution of the durations of syncs, one for each batch of commits.
    pub fn sync_durations(&self) -> Distribution {
        self.syncs.distribution()
    }

    /// Whether the storage accepts commits, and if not, why.
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

    /// Whether a batch is being committed, or a pack is replacing the file. Another commit would
    /// wait.
    pub fn is_appending(&self) -> bool {
        self.appending.is_locked()
    }

    /// Hands out `count` unused oids in ascending order; `None` when the 63-bit space ends.
    pub fn new_oids(&self, count: u64) -> Option<std::ops::RangeInclusive<u64>> {
        let last = self
            .last_oid
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                last.checked_add(count).filter(|last| *last <= NEW_OID_MAX)
            })
            .ok()?;
        Some(last + 1..=last + count)
    }

    /// Largest oid that is in use, was handed out, or is in the gap before new oids.
    pub fn last_oid(&self) -> Oid {
        Oid(self.last_oid.load(Ordering::Relaxed))
    }

    /// Notes that an oid is in use, so that the storage does not hand it out.
    pub fn note_oid(&self, oid: Oid) {
        self.last_oid.fetch_max(oid.0, Ordering::Relaxed);
    }

    /// Writes the Python-compatible index beside the data file.
    pub fn save_index(&self) -> Result<(), FileStorageError> {
        if self.read_only {
            return Err(FileStorageError::ReadOnly { path: self.path.clone() });
        }
        // If another file now has this path, it must not get the index of ours.
        self.check_identity()?;
        self.sync_checksums();
        self.blobs.iter().for_each(BlobDirectory::sync_sums);
        self.save_sound_index()
    }

    /// Replaces an index file that was not used. That file is of no use any more, so a failure to
    /// replace it does not stop the opening.
    fn replace_index(&self) {
        if self.is_damage_suspected() {
            return;
        }
        if let Err(error) = open::save_index(self.disk.as_ref(), &self.log()) {
            warn!(file = %self.path.display(), %error, "the index could not be saved");
        }
    }

    /// Saves the index unless the file is damaged: a damaged record may name a wrong object.
    fn save_sound_index(&self) -> Result<(), FileStorageError> {
        if self.is_damage_suspected() {
            warn!(file = %self.path.display(),
                "the index is not saved, since the data file is damaged; the next start reads \
                 more");
            return Ok(());
        }
        open::save_index(self.disk.as_ref(), &self.log())
    }

    /// Releases reserved space and saves the index. The storage can still be read. After a failed
    /// write, the bytes of refused transactions are cut if the disk allows that by now.
    ///
    /// # Errors
    /// [`FileStorageError::Changed`] when another program changed the file. The file is then left
    /// as it is, and no index is saved beside it.
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

/// The last oid that is not handed out: `gap` above the largest oid in use, or that oid itself when
/// the oid space leaves no such gap.
fn behind_gap(largest: Oid, gap: u64) -> Oid {
    let last = largest.0.checked_add(gap).filter(|last| *last < NEW_OID_MAX);
    last.map_or(largest, Oid)
}
