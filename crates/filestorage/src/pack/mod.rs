//! Packs a storage: writes a new file without unreachable revisions and objects, while commits go
//! on.
//!
//! A pack goes in steps, so that commits wait for the last one only:
//!
//! 1. [`FileStorage::begin_pack`] finds what is in use ([`reachable`]) and copies it
//!    ([`packed_log`]) to `Data.fs.pack`, then what was committed meanwhile;
//! 2. [`FileStorage::catch_up`] does the latter again, until little is left;
//! 3. [`FileStorage::finish_pack`], while nothing is appended, copies the rest, renames the copy
//!    over `Data.fs` and lets new readers use it. Readers of the old file continue with it.
//!
//! Invariants:
//! - until the rename the old file is the database and untouched; after it the new one is, and
//!   it is on stable storage before; there is no moment without a whole `Data.fs`;
//! - no object that a committed transaction refers to is dropped: when one that was garbage comes
//!   into use during the pack, the pack fails with [`FileStorageError::PackOvertaken`].

mod dangling;
mod lost;
mod output;
mod packed_log;
mod reachable;
mod search;
mod sums;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;
use zodium_blobs::{BlobDirectory, PackedBlobs};
use zodium_disk::with_suffix;
use zodium_disk::{Disk, DiskFile};
use zodium_storage::{PackOptions, Packed};
use zodium_types::{Tid, TransactionStatus};

use crate::checksums::{SUFFIX, Writing};
use crate::format::MAGIC_BYTES;
use crate::open::lock_data;
use crate::read::{LogFile, step_scan};
use crate::scan::{Scan, Step};
use crate::write::{Suspension, WriteFailure};
use crate::{FileStorage, FileStorageError};
pub use lost::DroppedRecord;
use lost::Lost;
use output::Output;
use packed_log::{PackedLog, frees_anything};
use reachable::Reachable;
use sums::Sums;
use watch::Watch;

/// What may be left to copy when commits are made to wait: some milliseconds' worth.
const BEHIND_BYTES_MAX: u64 = 1 << 20;
/// Rounds of catching up after which commits are made to wait all the same.
const ROUNDS_MAX: usize = 50;

/// `Data.fs` + this holds the checksums of `Data.fs.old`.
const OLD_CHECKSUMS: &str = ".old.checksums";

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

impl FileStorage {
    /// Copies what is in use at `pack_tid` and everything later to `Data.fs.pack`. `None`:
    /// nothing can be freed, or it was packed to a later time already. Commits go on.
    ///
    /// # Errors
    /// `AlreadyPacking`, `PackCancelled`, `ReadOnly`; `RootMissing` and `References` when garbage
    /// cannot be told; `Dangling` when that is asked for; `PackOvertaken` when it is to be tried
    /// again; those of the files.
    pub fn begin_pack(
        &self,
        pack_tid: Tid,
        options: &PackOptions<'_>,
    ) -> Result<Option<Pack>, FileStorageError> {
        self.begin(pack_tid, options, |_, _| Ok(Lost::default())).map_err(unpackable)
    }

    /// As [`FileStorage::begin_pack`], but records that are damaged, and those whose data stand in
    /// one of these, are left out: [`Pack::dropped`] tells which. `None` also means that there are
    /// none. Unless they were old revisions only, nothing else that cannot be reached is dropped.
    ///
    /// The whole file is read before. What does not fit its checksum is only found where loads are
    /// held against them ([`crate::ChecksumMode::Full`]).
    ///
    /// # Errors
    /// As [`FileStorage::begin_pack`]; `Corrupt` when more is damaged than records; `RootDamaged`.
    pub fn begin_pack_without_damaged(
        &self,
        pack_tid: Tid,
        options: &PackOptions<'_>,
    ) -> Result<Option<Pack>, FileStorageError> {
        self.begin(pack_tid, options, Lost::find).map_err(not_dropped)
    }

    fn begin(
        &self,
        pack_tid: Tid,
        options: &PackOptions<'_>,
        find_lost: impl FnOnce(&LogFile, &Watch<'_>) -> Result<Lost, FileStorageError>,
    ) -> Result<Option<Pack>, FileStorageError> {
        if self.read_only {
            return Err(FileStorageError::ReadOnly { path: self.path.clone() });
        }
        let place = self.take_place()?;
        self.check_identity()?;
        let watch = Watch { path: self.path.clone(), options: *options };
        let source = Arc::clone(&self.log());
        let (size_before, objects_before) = (source.end(), source.positions.len());
        let lost = find_lost(&source, &watch)?;
        let Some(pack_end) = pack_end(&source, pack_tid, &lost)? else { return Ok(None) };
        let reachable = Reachable::find(&source, pack_end, &lost, &watch)?;
        let (dangling, is_whole) = (reachable.dangling(), lost.is_empty());
        let garbage_kept = options.gc && !reachable.drops_garbage();
        if is_whole && !frees_anything(&source, &reachable, &watch)? {
            return Ok(None);
        }
        self.remove_old()?;
        let output = Output::create(self.disk.as_ref(), &place.path, &self.path, self.magic)?;
        let sums = self.sums_of_copy(&source, &place, output.file().as_ref());
        let (kept, output) = ((reachable, Arc::new(lost)), (output, sums));
        let mut log = PackedLog::new(source, kept, output, self.blobs.is_some(), options.cancelled);
        log.copy_kept(&watch)?;
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
        self.remove_index()?;
        Ok(Some(pack))
    }

    /// Removes what the pack before has kept. Now, and not when it is replaced: its space may be
    /// needed for the copy.
    fn remove_old(&self) -> Result<(), FileStorageError> {
        self.remove(".old")?;
        self.remove(OLD_CHECKSUMS)?;
        Ok(self.blobs.as_ref().map_or(Ok(()), BlobDirectory::remove_old)?)
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
        if let Some(directory) = &self.blobs {
            directory.write_packed(&blobs)?;
        }
        Ok(blobs)
    }

    /// Copies what was committed meanwhile, until little is left.
    pub fn catch_up(&self, pack: &mut Pack) -> Result<(), FileStorageError> {
        pack.catch_up().map_err(unpackable)
    }

    /// Puts the copy in the place of the file, once for a pack. The index is not saved; that takes
    /// longer than commits should wait, so [`FileStorage::save_index`] is for afterwards.
    ///
    /// The caller makes sure that nothing is [appended](FileStorage::append) or published
    /// meanwhile, and that no transaction that is not written yet has records that are
    /// [`SameAs`](crate::NewBody::SameAs) others: positions mean other records from now on.
    ///
    /// # Errors
    /// As [`FileStorage::begin_pack`], and then the file is as it was. Only when it is not known
    /// whether the renaming will last, commits are refused until the file is
    /// [reopened](FileStorage::reopen).
    pub fn finish_pack(&self, pack: &mut Pack) -> Result<Packed, FileStorageError> {
        assert!(!pack.is_finished, "a pack is finished once");
        let suspension = self.suspend_reserving()?;
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
        self.check_unchanged().inspect_err(|error| {
            if matches!(error, FileStorageError::Changed { .. }) {
                suspension.fail(WriteFailure::Changed);
            }
        })?;
        let renamed = self.replace_file(pack, &suspension)?;
        *self.data_lock.lock() = Some(lock);
        pack.is_finished = true;

        let log = pack.log.take_log(self.cache_bytes);
        let objects_after = log.positions.len();
        suspension.replace_log(log, identity, reserved_end);
        if let Err(error) = renamed {
            // Whichever file the name comes to stand for holds all that is committed so far.
            suspension.fail(WriteFailure::Name);
            return Err(FileStorageError::io(&self.path, "sync the folder of", error));
        }
        // The name that is there otherwise is of the old file's session.
        self.name_session();
        let Pack { size_before, objects_before, dangling, garbage_kept, .. } = *pack;
        let lost = pack.log.lost();
        let (dropped, objects_dropped) = (lost.count(), lost.gone().len() as u64);
        if dropped > 0 {
            // All of it was read, and what is left is sound.
            self.was_damaged.store(false, Ordering::Relaxed);
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
    /// blob directory. Blocking; commits go on. What is left after an error goes when the storage
    /// is opened again.
    pub fn remove_packed_blobs(&self, pack: &Pack) -> Result<(), FileStorageError> {
        assert!(pack.is_finished, "the old file does not need them any more");
        Ok(self.blobs.as_ref().map_or(Ok(()), |blobs| blobs.remove_packed(&pack.blobs))?)
    }

    /// Ends the removal of blobs that a crash has interrupted.
    pub(crate) fn resume_blob_removal(&self) -> Result<(), FileStorageError> {
        let Some(blobs) = &self.blobs else { return Ok(()) };
        let log = self.log();
        Ok(blobs.resume_packed(|packed| is_made_by(&log, packed))?)
    }

    /// Where the checksums of the copy go, if there are some of the file. When that fails those of
    /// the new file are taken afterwards.
    fn sums_of_copy(&self, source: &LogFile, place: &Place, copy: &dyn DiskFile) -> Option<Sums> {
        // Until the lock file names the new session, it names the present one.
        let before = source.checksums.as_ref()?.writing().nonce().unwrap_or(0);
        let path = with_suffix(&place.path, SUFFIX);
        let (disk, paths) = (self.disk.as_ref(), (path.as_path(), self.path.as_path()));
        // With another session: the names of the two files may not become durable together.
        let created = Writing::create(disk, paths, copy, MAGIC_BYTES, before);
        let created = created.inspect_err(|error| {
            warn!(file = %path.display(), %error, "the checksums of the packed file are not kept");
        });
        Some(Sums::new(self.checksum_mode, created.ok()?))
    }

    /// Renames the copy to the name of the file, and its checksums with it: a crash in between
    /// leaves none, or such as are seen to be of another file. The inner result tells whether the
    /// name will last.
    fn replace_file(
        &self,
        pack: &mut Pack,
        suspension: &Suspension<'_>,
    ) -> Result<io::Result<()>, FileStorageError> {
        if pack.keep_old {
            self.link_old()?;
        }
        let side_path = with_suffix(&self.path, SUFFIX);
        let old_side_path = with_suffix(&self.path, OLD_CHECKSUMS);
        // Without checksums none are there any more.
        let has_checksums = pack.log.source().checksums.is_some();
        let is_aside = has_checksums && self.disk.move_file(&side_path, &old_side_path).is_ok();
        let Err(error) = self.disk.rename(&pack.place.path, &self.path) else {
            pack.place.holds_copy = false;
            if has_checksums {
                self.replace_checksums(pack, &side_path, &old_side_path);
            }
            return Ok(Ok(()));
        };
        match self.disk.exists(&pack.place.path) {
            Ok(false) => {
                pack.place.holds_copy = false;
                if has_checksums {
                    self.replace_checksums(pack, &side_path, &old_side_path);
                }
                return Ok(Err(error));
            }
            Ok(true) => {
                if is_aside && let Err(error) = self.disk.move_file(&old_side_path, &side_path) {
                    warn!(file = %side_path.display(), %error, "the checksums lost their name");
                }
                self.remove(".old")?;
            }
            Err(_) => suspension.fail(WriteFailure::Unknown),
        }
        Err(FileStorageError::io(&pack.place.path, "rename", error))
    }

    /// The side file is durable under its name with the next index.
    fn replace_checksums(&self, pack: &Pack, side_path: &Path, old_side_path: &Path) {
        let new = with_suffix(&pack.place.path, SUFFIX);
        let moved = match pack.log.has_sums() {
            true => self.disk.move_file(&new, side_path),
            false => Ok(()),
        };
        let removed = match pack.keep_old {
            true => Ok(()),
            false => self.disk.remove(old_side_path),
        };
        if let Err(error) = moved.and(removed) {
            warn!(file = %side_path.display(), %error,
                "the checksums of the packed file are not kept");
        }
    }

    /// Gives the file its second name `Data.fs.old`. It keeps the first until the copy takes it.
    fn link_old(&self) -> Result<(), FileStorageError> {
        let old = with_suffix(&self.path, ".old");
        let Err(error) = self.disk.link(&self.path, &old) else { return Ok(()) };
        match error.kind() {
            io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied => {
                let file = old.display();
                warn!(%file, %error, "no hard links here, the old file is not kept");
                Ok(())
            }
            _ => Err(FileStorageError::io(&old, "link", error)),
        }
    }

    /// The saved index would be that of another file. It is removed early enough for its removal
    /// to last longer than the renaming.
    fn remove_index(&self) -> Result<(), FileStorageError> {
        self.remove(".index")?;
        self.remove(".index.crc32c")?;
        if self.log().checksums.is_none() {
            self.remove(SUFFIX)?;
        }
        let synced = self.disk.sync_folder_of(&self.path);
        synced.map_err(|error| FileStorageError::io(&self.path, "sync the folder", error))
    }

    fn remove(&self, suffix: &str) -> Result<(), FileStorageError> {
        let path = with_suffix(&self.path, suffix);
        self.disk.remove(&path).map_err(|error| FileStorageError::io(&path, "remove", error))
    }

    fn take_place(&self) -> Result<Place, FileStorageError> {
        // Acquire and Release: the next pack sees the file of the one before removed.
        if self.packing.swap(true, Ordering::Acquire) {
            return Err(FileStorageError::AlreadyPacking { path: self.path.clone() });
        }
        Ok(Place {
            disk: Arc::clone(&self.disk),
            path: with_suffix(&self.path, ".pack"),
            packing: Arc::clone(&self.packing),
            holds_copy: true,
        })
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

/// The right to pack, and the name of the copy; whatever has that name is removed in the end.
struct Place {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    packing: Arc<AtomicBool>,
    holds_copy: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.holds_copy {
            let removed = self.disk.remove(&with_suffix(&self.path, SUFFIX));
            if let Err(error) = removed.and(self.disk.remove(&self.path)) {
                warn!(file = %self.path.display(), %error,
                    "cannot remove the copy of a failed pack");
            }
        }
        self.packing.store(false, Ordering::Release);
    }
}

/// The first transaction after the pack time. `None`: nothing before it can be freed. Where records
/// are lost a pack drops at least these: then everything is after the pack time.
fn pack_end(log: &LogFile, pack_tid: Tid, lost: &Lost) -> Result<Option<u64>, FileStorageError> {
    let pack_end = log.first_at_or_after(pack_tid.next())?;
    if pack_end != MAGIC_BYTES && !is_packed(log, pack_end)? {
        return Ok(Some(pack_end));
    }
    Ok((!lost.is_empty()).then_some(MAGIC_BYTES))
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

/// Whether a pack to a later time was done before, which has removed what one to this time would
/// have to keep.
fn is_packed(log: &LogFile, pack_end: u64) -> Result<bool, FileStorageError> {
    let mut scan = step_scan(log);
    let mut is_packed = |position| -> Result<Option<u64>, FileStorageError> {
        let Step::Transaction(entry) = scan.transaction(position)? else { return Ok(None) };
        let packed = entry.status() == Some(TransactionStatus::Packed);
        Ok(packed.then_some(entry.next_position()))
    };
    if is_packed(pack_end)?.is_none() {
        return Ok(false);
    }
    let mut position = MAGIC_BYTES;
    while position < pack_end {
        match is_packed(position)? {
            Some(next) => position = next,
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether a pack made this file: no other has the end of what was packed in the same place.
///
/// The place is a guess, so what is found there proves no damage.
fn is_made_by(log: &LogFile, packed: &PackedBlobs) -> bool {
    let mut scan = Scan::new(&log.path, Arc::clone(&log.file), log.end());
    let is_later = match scan.transaction(packed.boundary) {
        Ok(Step::Transaction(entry)) => entry.tid() > packed.last_tid,
        Ok(Step::End) => true,
        Ok(Step::Unfinished) | Err(_) => false,
    };
    let is_packed = match scan.transaction_before(packed.boundary) {
        Ok(Some(entry)) => {
            entry.tid() <= packed.last_tid && entry.status() == Some(TransactionStatus::Packed)
        }
        Ok(None) => packed.boundary == MAGIC_BYTES,
        Err(_) => false,
    };
    is_later && is_packed
}
