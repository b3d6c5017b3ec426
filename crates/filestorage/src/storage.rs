//! An open `Data.fs`: the owner of the parts, which do not know each other's owner.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tracing::warn;
use zodium_blobs::BlobDirectory;
use zodium_disk::{Disk, FileLock};
use zodium_storage::{Access, NewTransaction};
use zodium_types::Tid;

use crate::FileStorageError;
use crate::checksums::ChecksumMetrics;
use crate::format::{DataFile, Magic};
use crate::open::{self, NameLocks, OpenOptions, Recovered};
use crate::pack::{PackState, Packer};
use crate::read::{LogFile, LogTail, Reader};
use crate::upkeep::{ScrubPlace, SideFiles, close_checksums, sync_checksums, verify_tail};
use crate::write::{AppendState, Appended, Appender, Oids, PreparedTransaction};

/// A FileStorage: one data file with its index. Many threads may read it at once, and one thread
/// appends to it.
pub struct FileStorage {
    pub(crate) file: Arc<DataFile>,
    pub(crate) reader: Reader,
    pub(crate) appender: Appender,
    pub(crate) oids: Oids,
    side_files: SideFiles,
    packing: PackState,
    blobs: Option<BlobDirectory>,
    _name_locks: Option<NameLocks>,
    _blobs_lock: Option<FileLock>,
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
        let (read_only, blob_directory) = (options.read_only, options.blob_directory.clone());
        let options = &OpenOptions { path: path.clone(), blob_directory, ..*options };
        let name_locks = match read_only {
            true => None,
            false => Some(NameLocks::take(disk.as_ref(), &named, &path)?),
        };
        let (file, data_lock) = open::open_data_file(disk.as_ref(), options)?;
        let status =
            file.status().map_err(|error| FileStorageError::io(&path, "look at", error))?;
        let recovered = open::recover(disk.as_ref(), options, file)?;
        let checksums = recovered.start_checksums(disk.as_ref(), options);
        let Recovered { file, magic, positions, end, tids, damages, is_index_unused, .. } =
            recovered;
        let blobs = options.blob_directory.as_deref();
        let blobs = blobs
            .map(|path| BlobDirectory::open(Arc::clone(&disk), path, read_only))
            .transpose()?;
        let blobs_lock = match &blobs {
            Some(blobs) if !read_only => blobs.lock()?,
            _ => None,
        };
        let oids = Oids::new(positions.largest_oid(), options.new_oids_gap);
        let log = LogFile::new(&path, file, positions, options.cache_bytes, (end, tids), 0)
            .with_checksums(checksums);
        let file = Arc::new(DataFile { disk, path, named, read_only });
        let state = AppendState::new(status.identity, end, tids.latest);
        let (cache_bytes, checksum_mode) = (options.cache_bytes, options.checksums);
        let storage = FileStorage {
            reader: Reader::new(log),
            appender: Appender::new(Arc::clone(&file), options.quota_bytes, state),
            oids,
            side_files: SideFiles::new(Arc::clone(&file), !damages.is_empty()),
            packing: PackState::new(magic, cache_bytes, checksum_mode, data_lock),
            blobs,
            file,
            _name_locks: name_locks,
            _blobs_lock: blobs_lock,
        };
        storage.begin(is_index_unused)?;
        Ok(storage)
    }

    /// Begins the session with a file that was opened.
    fn begin(&self, is_index_unused: bool) -> Result<(), FileStorageError> {
        let log = self.reader.log();
        self.side_files.session.name(log.checksums.as_ref());
        verify_tail(&log);
        if self.file.read_only {
            return Ok(());
        }
        if is_index_unused {
            self.side_files.replace_index(&log);
        }
        if let Some(blobs) = &self.blobs {
            blobs.clean_up(&self.reader)?;
        }
        // Those that are left take space, and are tried again at the next opening.
        if let Err(error) = self.packer().resume_blob_removal() {
            warn!(%error, "blobs of revisions that a pack had dropped could not be removed");
        }
        Ok(())
    }

    /// What reads it.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// What packs it, in steps.
    pub fn packer(&self) -> Packer<'_> {
        Packer {
            file: &self.file,
            reader: &self.reader,
            appender: &self.appender,
            side_files: &self.side_files,
            blobs: self.blobs.as_ref(),
            state: &self.packing,
        }
    }

    /// Path of the data file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The blob directory; `None` when the storage was opened without one.
    pub fn blobs(&self) -> Option<&BlobDirectory> {
        self.blobs.as_ref()
    }

    /// The magic of the file, which tells the Python version of its pickles.
    pub fn magic(&self) -> Magic {
        self.packing.magic
    }

    /// Bytes of the committed transactions and the magic.
    pub fn size(&self) -> u64 {
        self.reader.log().end()
    }

    /// Follows what other programs append to the file from now on.
    pub fn follow(&self) -> Result<LogTail, FileStorageError> {
        let log = self.reader.log();
        let (end, tids) = log.settled();
        LogTail::new(Arc::clone(&self.file), Arc::clone(&log.file), end, tids)
    }

    /// Takes in what other programs have appended to a file that is open for reading only. `false`
    /// if the path has another file by now, as after a pack, or the file another content, as an
    /// older copy and commits to it: it must be opened anew.
    ///
    /// # Errors
    /// [`FileStorageError::Corrupt`] for bytes that are no transaction. A writer may be in the
    /// middle of them, so a caller may look once more.
    pub fn refresh(&self) -> Result<bool, FileStorageError> {
        match self.file.read_only {
            true => self.appender.take_foreign_appends(&self.reader.log(), &self.oids),
            false => Ok(true),
        }
    }

    /// The latest tid in the file, as far as that is known; [`Tid::ZERO`] when there is none.
    pub fn last_tid(&self) -> Tid {
        self.appender.last_tid()
    }

    /// Whether a batch is being committed, or a pack is replacing the file. Another commit would
    /// wait.
    pub fn is_appending(&self) -> bool {
        self.appender.is_locked()
    }

    /// Prepares a transaction: finds the records that it points back to, and reserves its space, so
    /// that a full disk refuses a vote and never a finish. `None`: that may wait, but access is
    /// non-blocking.
    pub fn prepare(
        &self,
        transaction: NewTransaction,
        access: Access,
    ) -> Result<Option<PreparedTransaction>, FileStorageError> {
        self.appender.prepare(&self.reader, transaction, access)
    }

    /// Releases the space of a transaction that will not be written.
    pub fn release(&self, prepared: PreparedTransaction) {
        self.appender.release(prepared);
    }

    /// Writes transactions one after the other and syncs once. They are durable when this returns.
    /// [`FileStorage::publish`] then makes them visible. One caller at a time; no two of the
    /// transactions may write the same object.
    ///
    /// After an error none of the transactions is committed, and every later call fails until the
    /// file is [reopened](FileStorage::reopen).
    pub fn append(
        &self,
        batch: Vec<(Tid, PreparedTransaction)>,
    ) -> Result<Vec<Appended>, FileStorageError> {
        self.appender.append(&self.reader, &self.side_files.session, batch)
    }

    /// Makes an appended transaction visible to readers. Call it in the order of the appends.
    pub fn publish(&self, appended: Appended) {
        let tid = appended.tid();
        appended.publish(&self.reader.log(), &self.oids);
        self.appender.note_published(tid);
    }

    /// Allows appends again after a failure, if the device holds the acknowledged bytes and can be
    /// written to. Blocking; nothing may be [appended](FileStorage::append) meanwhile.
    ///
    /// # Errors
    /// Appends stay refused, and the caller can try again.
    pub fn reopen(&self) -> Result<(), FileStorageError> {
        match self.appender.reopen(&self.reader.log())? {
            // It was in doubt which file a pack has left.
            true => self.packer().resume_blob_removal(),
            false => Ok(()),
        }
    }

    /// How far the checksums go; `None` when there are none.
    pub fn checksum_metrics(&self) -> Option<ChecksumMetrics> {
        self.side_files.metrics(&self.reader.log())
    }

    /// Places of the file that were found damaged since it was opened or packed, each counted once,
    /// with or without checksums; and blobs that were found damaged when they were asked for.
    pub fn damaged_places(&self) -> u64 {
        let blobs = self.blobs.as_ref().map_or(0, BlobDirectory::damaged_count);
        self.reader.log().damages.count() + blobs
    }

    /// Bytes of the file that have no checksums yet, and can get them.
    pub fn uncovered_bytes(&self) -> u64 {
        self.reader.log().checksums.as_ref().map_or(0, |checksums| checksums.uncovered())
    }

    /// Takes the checksums of about `bytes` more of the file, and says how many bytes they were;
    /// 0 when none are missing, or they cannot be written. One caller at a time.
    pub fn cover(&self, bytes: u64) -> u64 {
        self.side_files.cover(&self.reader, bytes)
    }

    /// Reads about `bytes` of the file from `place` on, and holds them against their checksums.
    /// Gives where to go on; `None` at the end. What does not fit is logged and counted.
    pub fn scrub(&self, place: ScrubPlace, bytes: u64) -> Option<ScrubPlace> {
        self.side_files.scrub(&self.reader.log(), place, bytes)
    }

    /// Brings the checksums to stable storage.
    pub fn sync_checksums(&self) {
        sync_checksums(&self.reader.log());
    }

    /// Writes the Python-compatible index beside the data file.
    pub fn save_index(&self) -> Result<(), FileStorageError> {
        self.file.check_writable()?;
        // If another file now has this path, it must not get the index of ours.
        self.appender.check_identity()?;
        self.sync_checksums();
        self.blobs.iter().for_each(BlobDirectory::sync_sums);
        self.side_files.save_sound_index(&self.reader.log())
    }

    /// Writes the index in ZODB's format, and gives the position up to which it covers the file.
    pub fn write_index(&self, output: &mut dyn io::Write) -> Result<u64, FileStorageError> {
        let log = self.reader.log();
        let end = log.end();
        log.wait_indexed(end);
        let path = self.path();
        let failed = |error| FileStorageError::io(path, "write a copy of its index", error);
        open::write_index_to(&log, end, output, failed)?;
        Ok(end)
    }

    /// Releases reserved space and saves the index. The storage can still be read. After a failed
    /// write, the bytes of refused transactions are cut if the disk allows that by now: the next
    /// opening would take whole ones behind the end for committed.
    ///
    /// # Errors
    /// [`FileStorageError::Changed`] when another program changed the file. The file is then left
    /// as it is, and no index is saved beside it.
    pub fn close(&self) -> Result<(), FileStorageError> {
        if self.file.read_only {
            return Ok(());
        }
        if let Some(blobs) = &self.blobs {
            blobs.settle();
            blobs.sync_sums();
        }
        // A change by another program is reported below.
        if let Err(error) = self.reopen()
            && !matches!(error, FileStorageError::Changed { .. })
        {
            warn!(file = %self.path().display(), %error,
                "what failed to be committed was not cut, and may be in the file as a whole");
        }
        if let Err(changed) = self.appender.check_unchanged() {
            self.side_files.session.disown();
            self.sync_checksums();
            return Err(changed);
        }
        self.appender.release_reserved(&self.reader)?;
        match self.appender.is_failed() {
            // The session did not end in order.
            true => self.sync_checksums(),
            false => close_checksums(&self.reader.log()),
        }
        self.side_files.save_sound_index(&self.reader.log())
    }
}
