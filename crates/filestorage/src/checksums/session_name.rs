//! The name of this session in the lock file: the clean-shutdown marker that says whether its
//! checksums have gaps ([`LastWriter`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tracing::warn;
use zodium_disk::with_suffix;

use super::Checksums;
use super::batch::Batch;
use super::last_writer::{self, LastWriter};
use crate::FileStorageError;
use crate::format::DataFile;

/// The name of this session in the lock file of its data file.
pub(crate) struct SessionName {
    file: Arc<DataFile>,
    /// Whether the lock file may name this session as one whose checksums have no gaps.
    may_be_named: AtomicBool,
    /// Held from the look at the checksums until what it leads to is in the lock file. The upkeep
    /// names the session while the log writer ends the naming: the later word must stay.
    naming: Mutex<()>,
}

impl SessionName {
    /// The lock file does not name the session yet.
    pub(crate) fn new(file: Arc<DataFile>) -> SessionName {
        SessionName { file, may_be_named: AtomicBool::new(false), naming: Mutex::default() }
    }

    /// Names this session in the lock file, as one without gaps if its checksums have none. Names
    /// no session if there are no checksums. If another session's name cannot be removed, that is
    /// logged, and tried again when it matters.
    pub(crate) fn name(&self, checksums: Option<&Arc<Checksums>>) {
        if !self.file.read_only {
            warn_of_name(self.try_name(checksums));
        }
    }

    fn try_name(&self, all: Option<&Arc<Checksums>>) -> Result<(), FileStorageError> {
        let _naming = self.naming.lock();
        let Some(checksums) = all.filter(|checksums| checksums.uncovered() == 0) else {
            return self.unname_locked(all);
        };
        // Set before the sync: an append after the sync reads this in `settle_announcement`.
        // Relaxed: both threads take the lock of the checksums' state, which orders the accesses.
        self.may_be_named.store(true, Ordering::Relaxed);
        // An append before that may have left a gap, and not have read it.
        if checksums.uncovered() > 0 {
            return self.unname_locked(all);
        }
        // After a power cut, checksums that were not durable would be missing.
        let synced = checksums.writing().sync();
        let Some(nonce) = synced.ok().and_then(|()| checksums.writing().nonce()) else {
            return self.unname_locked(all);
        };
        let writer = LastWriter { nonce, is_complete: true };
        let DataFile { disk, path, .. } = &*self.file;
        last_writer::write(disk.as_ref(), path, Some(writer)).or_else(|error| {
            warn!(file = %path.display(), %error, "the session cannot be noted in the lock file");
            self.unname_locked(all)
        })
    }

    /// Removes the name: another program changed the file, so this session did not write all of it.
    pub(crate) fn disown(&self) {
        let _naming = self.naming.lock();
        warn_of_name(self.write(None));
    }

    /// Names the session again once its checksums have no gaps.
    pub(crate) fn name_if_covered(&self, checksums: Option<&Arc<Checksums>>) {
        if !self.may_be_named() && checksums.is_none_or(|checksums| checksums.uncovered() == 0) {
            self.name(checksums);
        }
    }

    /// Makes the checksums of a batch durable before its bytes are written. `false` when that is
    /// impossible; the lock file then names no session without gaps.
    ///
    /// # Errors
    /// When that is impossible and the session's name cannot be removed either: after a power cut,
    /// recovery would take the batch for torn.
    pub(crate) fn announce(
        &self,
        checksums: &Arc<Checksums>,
        batch: &Batch,
    ) -> Result<bool, FileStorageError> {
        if checksums.uncovered() == 0 {
            let Err(error) = checksums.writing().promise(batch) else { return Ok(true) };
            warn!(file = %self.file.path.display(), %error, "checksums cannot be written before a \
                commit; a power cut now may leave a part of it");
        }
        if self.may_be_named() {
            self.unname(Some(checksums))?;
        }
        Ok(false)
    }

    /// Call after the bytes of a batch are durable and its checksums written, if that was possible.
    /// Ends the naming as a session without gaps when the checksums have gaps. If a needed
    /// announcement `is_missing`, the session may have been named meanwhile; the checksums are then
    /// made durable now.
    pub(crate) fn settle_announcement(&self, checksums: &Arc<Checksums>, is_missing: bool) {
        let is_settled = || {
            let has_gaps = checksums.uncovered() > 0;
            !has_gaps && (!is_missing || checksums.writing().sync().is_ok())
        };
        if self.may_be_named() && !is_settled() {
            warn_of_name(self.unname(Some(checksums)));
        }
    }

    /// Makes sure on stable storage that the lock file names no session without gaps.
    pub(crate) fn unname(
        &self,
        checksums: Option<&Arc<Checksums>>,
    ) -> Result<(), FileStorageError> {
        let _naming = self.naming.lock();
        self.unname_locked(checksums)
    }

    /// As [`SessionName::unname`], for a caller that holds the lock of the naming.
    fn unname_locked(&self, checksums: Option<&Arc<Checksums>>) -> Result<(), FileStorageError> {
        let DataFile { disk, path, .. } = &*self.file;
        let nonce = checksums.and_then(|checksums| checksums.writing().nonce());
        let writer = nonce.map(|nonce| LastWriter { nonce, is_complete: false });
        // A name that was cut off without a sync might come back.
        let says = || last_writer::says(disk.as_ref(), path, writer);
        if self.may_be_named() || !matches!(says(), Ok(true)) {
            self.write(writer)?;
            self.may_be_named.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn write(&self, writer: Option<LastWriter>) -> Result<(), FileStorageError> {
        let DataFile { disk, path, .. } = &*self.file;
        let written = last_writer::write(disk.as_ref(), path, writer);
        written.map_err(|error| FileStorageError::io(&with_suffix(path, ".lock"), "write", error))
    }

    fn may_be_named(&self) -> bool {
        self.may_be_named.load(Ordering::Relaxed)
    }
}

fn warn_of_name(noted: Result<(), FileStorageError>) {
    if let Err(error) = noted {
        warn!(%error, "the lock file still names the session");
    }
}
