//! Runs the steps of a pack.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tracing::{info, warn};
use zodium_blobs::{BlobDirectory, PackedBlobs};
use zodium_disk::{DiskFile, FileLock, with_suffix};
use zodium_storage::{PackOptions, Packed};
use zodium_types::Tid;

use super::boundary::{is_made_by, pack_end};
use super::lost::{DroppedRecord, Lost};
use super::output::Output;
use super::packed_log::{PackedLog, frees_anything};
use super::place::{Companions, Place};
use super::reachable::Reachable;
use super::sums::Sums;
use super::watch::Watch;
use crate::FileStorageError;
use crate::checksums::{ChecksumMode, SUFFIX, Writing};
use crate::format::{DataFile, MAGIC_BYTES, Magic};
use crate::open::lock_data;
use crate::read::{LogFile, Reader, step_scan};
use crate::upkeep::SideFiles;
use crate::write::{Appender, WriteFailure};

/// What may be left to copy when commits are made to wait: some milliseconds' worth.
const BEHIND_BYTES_MAX: u64 = 1 << 20;
/// Rounds of catching up after which commits are made to wait all the same.
const ROUNDS_MAX: usize = 50;

/// What a storage keeps from one pack to the next.
pub(crate) struct PackState {
    pub(crate) magic: Magic,
    /// Memory for cached records of the packed file.
    cache_bytes: usize,
    checksum_mode: ChecksumMode,
    /// Whether a pack is running.
    is_running: Arc<AtomicBool>,
    /// The lock on the data file itself. A pack replaces the file, so it also replaces this lock.
    data_lock: Mutex<Option<FileLock>>,
}

impl PackState {
    pub(crate) fn new(
        magic: Magic,
        cache_bytes: usize,
        checksum_mode: ChecksumMode,
        data_lock: Option<FileLock>,
    ) -> PackState {
        let (is_running, data_lock) = (Arc::default(), Mutex::new(data_lock));
        PackState { magic, cache_bytes, checksum_mode, is_running, data_lock }
    }
}

/// Packs a storage. It borrows the parts that a pack reads or replaces.
pub struct Packer<'a> {
    pub(crate) file: &'a Arc<DataFile>,
    pub(crate) reader: &'a Reader,
    pub(crate) appender: &'a Appender,
    pub(crate) side_files: &'a SideFiles,
    pub(crate) blobs: Option<&'a BlobDirectory>,
    pub(crate) state: &'a PackState,
}

/// A pack under way. Dropped before it is finished, it leaves the storage as it was.
///
/// Dropping it can take a while in any case: memory and large files are let go.
pub struct Pack {
    log: PackedLog,
    /// What is to be removed from the blob directory afterwards.
    blobs: PackedBlobs,
    keep_old: bool,
    is_finished: bool,
    size_before: u64,
    objects_before: u64,
    dangling: u64,
    garbage_kept: bool,
    // Last: removes the file after it was closed.
    place: Place,
}

impl Packer<'_> {
    /// Copies what is in use at `pack_tid` and everything later to `Data.fs.pack`. `None`:
    /// nothing can be freed, or it was packed to a later time already. Commits go on.
    ///
    /// # Errors
    /// `AlreadyPacking`, `PackCancelled`, `ReadOnly`; `RootMissing` and `References` when garbage
    /// cannot be told; `Dangling` when that is asked for; `PackOvertaken` when it is to be tried
    /// again; those of the files.
    pub fn begin(
        &self,
        pack_tid: Tid,
        options: &PackOptions<'_>,
    ) -> Result<Option<Pack>, FileStorageError> {
        self.prepare(pack_tid, options, |_, _| Ok(Lost::default())).map_err(unpackable)
    }

    /// As [`Packer::begin`], but records that are damaged, and those whose data stand in one of
    /// these, are left out: [`Pack::dropped`] tells which. `None` also means that there are none.
    /// Unless they were old revisions only, nothing else that cannot be reached is dropped.
    ///
    /// The whole file is read before. What does not fit its checksum is only found where loads are
    /// held against them ([`crate::ChecksumMode::Full`]).
    ///
    /// # Errors
    /// As [`Packer::begin`]; `Corrupt` when more is damaged than records; `RootDamaged`.
    pub fn begin_without_damaged(
        &self,
        pack_tid: Tid,
        options: &PackOptions<'_>,
    ) -> Result<Option<Pack>, FileStorageError> {
        self.prepare(pack_tid, options, Lost::find).map_err(not_dropped)
    }

    fn prepare(
        &self,
        pack_tid: Tid,
        options: &PackOptions<'_>,
        find_lost: impl FnOnce(&LogFile, &Watch<'_>) -> Result<Lost, FileStorageError>,
    ) -> Result<Option<Pack>, FileStorageError> {
        self.file.check_writable()?;
        let place = Place::take(self.file, &self.state.is_running)?;
        self.appender.check_identity()?;
        let watch = Watch { path: self.file.path.clone(), options: *options };
        let source = Arc::clone(&self.reader.log());
        let (size_before, objects_before) = (source.end(), source.positions.len());
        let lost = find_lost(&source, &watch)?;
        let Some(pack_end) = pack_end(&source, pack_tid, &lost)? else { return Ok(None) };
        let reachable = Reachable::find(&source, pack_end, &lost, &watch)?;
        let (dangling, is_whole) = (reachable.dangling(), lost.is_empty());
        let garbage_kept = options.gc && !reachable.drops_garbage();
        if is_whole && !frees_anything(&source, &reachable, &watch)? {
            return Ok(None);
        }
        // The list of the last pack goes when that of this one is written.
        if let Err(error) = self.resume_blob_removal() {
            warn!(file = %self.file.path.display(), %error,
                "blobs that a pack before has dropped cannot be removed, and stay");
        }
        self.make_room(&place, size_before)?;
        let DataFile { disk, path, .. } = &**self.file;
        let output = Output::create(disk.as_ref(), &place.path, path, self.state.magic)?;
        let sums = self.sums_of_copy(&source, &place, output.file().as_ref());
        let (kept, output) = ((reachable, Arc::new(lost)), (output, sums));
        let mut log = PackedLog::new(source, kept, output, self.blobs.is_some(), options.cancelled);
        log.copy_kept(pack_tid, &watch)?;
        if is_whole && log.output().position() >= pack_end {
            return Ok(None);
        }
        let keep_old = options.keep_old;
        let blobs = self.list_dropped_blobs(&mut log, pack_end, keep_old)?;
        let is_finished = false;
        let mut pack = Pack {
            log,
            blobs,
            keep_old,
            is_finished,
            size_before,
            objects_before,
            dangling,
            garbage_kept,
            place,
        };
        pack.catch_up()?;
        pack.dangling += pack.log.take_dangling().conclude(&watch)?;
        pack.place.remove_index(self.reader.log().checksums.is_some())?;
        Ok(Some(pack))
    }

    /// Removes what the pack before has kept, if there is no room for it beside the copy. Otherwise
    /// it stays until this pack has succeeded.
    fn make_room(&self, place: &Place, copy_bytes: u64) -> Result<(), FileStorageError> {
        place.check_old()?;
        self.blobs.map_or(Ok(()), BlobDirectory::check_old)?;
        if place.has_room(copy_bytes) {
            return Ok(());
        }
        info!(file = %self.file.path.display(), bytes = copy_bytes,
            "less space is free than the pack may need: what the last one has kept is removed now");
        place.remove_old()?;
        Ok(self.blobs.map_or(Ok(()), BlobDirectory::remove_old)?)
    }

    /// The blobs that are to be removed, made durable beside them.
    fn list_dropped_blobs(
        &self,
        log: &mut PackedLog,
        pack_end: u64,
        keep_old: bool,
    ) -> Result<PackedBlobs, FileStorageError> {
        let boundary = log.output().position();
        let mut revisions = log.take_dropped_blobs();
        if boundary >= pack_end {
            // Nothing there would tell the packed file from the old one after a crash.
            revisions.clear();
        }
        let last = step_scan(log.source()).transaction_before(pack_end)?;
        let last_tid = last.map_or(Tid::ZERO, |entry| entry.tid());
        let blobs = PackedBlobs { last_tid, boundary, keep_old, revisions };
        if let Some(directory) = self.blobs {
            directory.write_packed(&blobs)?;
        }
        Ok(blobs)
    }

    /// Copies what was committed meanwhile, until little is left.
    pub fn catch_up(&self, pack: &mut Pack) -> Result<(), FileStorageError> {
        pack.catch_up().map_err(unpackable)
    }

    /// Puts the copy in the place of the file, once for a pack. The index is not saved; that takes
    /// longer than commits should wait.
    ///
    /// The caller makes sure that nothing is appended or published meanwhile, and that no
    /// transaction that is not written yet has records that are
    /// [`SameAs`](zodium_storage::NewBody::SameAs) others: positions mean other records from now
    /// on.
    ///
    /// # Errors
    /// As [`Packer::begin`], and then the file is as it was. Only when it is not known whether the
    /// renaming will last, commits are refused until the file is reopened.
    pub fn finish(&self, pack: &mut Pack) -> Result<Packed, FileStorageError> {
        assert!(!pack.is_finished, "a pack is finished once");
        let suspension = self.appender.suspend_reserving()?;
        pack.log.copy_later().map_err(unpackable)?;
        assert_eq!(pack.log.source().end(), suspension.end, "nothing appended is unpublished");
        pack.log.sync()?;
        let output = pack.log.output();
        let size_after = output.position();
        let reserved_end = suspension.reserve(output.file().as_ref(), output.path(), size_after)?;
        let failed = |error| FileStorageError::io(output.path(), "look at", error);
        let identity = output.file().status().map_err(failed)?.identity;
        // Before it is the data file: each process that opens it from then on finds it locked.
        let lock = lock_data(output.file().as_ref(), output.path())?;
        // The renaming would remove what another program has put there.
        self.appender.check_unchanged().inspect_err(|error| {
            if matches!(error, FileStorageError::Changed { .. }) {
                suspension.fail(WriteFailure::Changed);
            }
        })?;
        let companions = Companions {
            keep_old: pack.keep_old,
            has_checksums: pack.log.source().checksums.is_some(),
            has_sums: pack.log.has_sums(),
        };
        let renamed = pack.place.replace_file(&companions, &suspension)?;
        *self.state.data_lock.lock() = Some(lock);
        pack.is_finished = true;

        let log = pack.log.take_log(self.state.cache_bytes);
        let objects_after = log.positions.len();
        suspension.replace_log(self.reader, log, identity, reserved_end);
        if let Err(error) = renamed {
            // Whichever file the name comes to stand for holds all that is committed so far.
            suspension.fail(WriteFailure::Name);
            return Err(FileStorageError::io(&self.file.path, "sync the folder of", error));
        }
        // The name that is there otherwise is of the old file's session.
        self.side_files.session.name(self.reader.log().checksums.as_ref());
        let Pack { size_before, objects_before, dangling, garbage_kept, .. } = *pack;
        let lost = pack.log.lost();
        let (dropped, objects_dropped) = (lost.count(), lost.gone().len() as u64);
        if dropped > 0 {
            // All of it was read, and what is left is sound.
            self.side_files.note_sound();
        }
        Ok(Packed {
            size_before,
            size_after,
            objects_before,
            objects_after,
            dangling,
            dropped,
            objects_dropped,
            garbage_kept,
        })
    }

    /// Removes the blobs of what a finished pack has dropped, or keeps them in `.old` beside the
    /// blob directory. Blocking; commits go on. What is left after an error, or when it is
    /// cancelled, goes when the storage is opened or packed again.
    pub fn remove_blobs(
        &self,
        pack: &Pack,
        cancelled: &AtomicBool,
    ) -> Result<(), FileStorageError> {
        assert!(pack.is_finished, "the old file does not need them any more");
        Ok(self.blobs.map_or(Ok(()), |blobs| blobs.remove_packed(&pack.blobs, cancelled))?)
    }

    /// Ends the removal of blobs that a crash has interrupted.
    pub(crate) fn resume_blob_removal(&self) -> Result<(), FileStorageError> {
        let Some(blobs) = self.blobs else { return Ok(()) };
        let log = self.reader.log();
        Ok(blobs.resume_packed(|packed| is_made_by(&log, packed))?)
    }

    /// Where the checksums of the copy go, if there are some of the file. When that fails those of
    /// the new file are taken afterwards.
    fn sums_of_copy(&self, source: &LogFile, place: &Place, copy: &dyn DiskFile) -> Option<Sums> {
        // Until the lock file names the new session, it names the present one.
        let before = source.checksums.as_ref()?.writing().nonce().unwrap_or(0);
        let path = with_suffix(&place.path, SUFFIX);
        let (disk, paths) = (self.file.disk.as_ref(), (path.as_path(), self.file.path.as_path()));
        // With another session: the names of the two files may not become durable together.
        let created = Writing::create(disk, paths, copy, MAGIC_BYTES, before);
        let created = created.inspect_err(|error| {
            warn!(file = %path.display(), %error, "the checksums of the packed file are not kept");
        });
        Some(Sums::new(self.state.checksum_mode, created.ok()?))
    }
}

impl Pack {
    /// The records that are left out since they cannot be read, in the order of the file.
    pub fn dropped(&self) -> impl Iterator<Item = &DroppedRecord> {
        self.log.lost().records().map(|lost| &lost.told)
    }

    fn catch_up(&mut self) -> Result<(), FileStorageError> {
        for _ in 0..ROUNDS_MAX {
            self.log.copy_later()?;
            self.log.sync()?;
            if self.log.behind() <= BEHIND_BYTES_MAX {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Pack {
    fn drop(&mut self) {
        let old = self.log.source();
        if self.is_finished
            && self.keep_old
            // Frees what was reserved behind its end.
            && let Err(error) = old.file.set_length(old.end())
        {
            warn!(file = %old.path.display(), %error, "cannot cut the old file");
        }
    }
}

/// Adds advice to the error of damage that ends a pack.
fn unpackable(error: FileStorageError) -> FileStorageError {
    match error {
        FileStorageError::Corrupt { path, position, what } => FileStorageError::Corrupt {
            what: format!(
                "{what}; not packed. `zodium pack --drop-damaged`, on the file when no server has \
                 it open, leaves damaged records out"
            ),
            path,
            position,
        },
        other => other,
    }
}

/// Adds to an error that this kind of damage cannot be left out.
fn not_dropped(error: FileStorageError) -> FileStorageError {
    match error {
        FileStorageError::Corrupt { path, position, what } => FileStorageError::Corrupt {
            what: format!("{what}; not packed, since only damaged records can be left out"),
            path,
            position,
        },
        other => other,
    }
}
