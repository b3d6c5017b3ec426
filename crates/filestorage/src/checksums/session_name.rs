//! The name of this session in the lock file: the clean-shutdown marker that says whether its
//! checksums have gaps ([`LastWriter`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::warn;
use zodium_disk::with_suffix;

use super::Checksums;
use super::batch::Batch;
use super::last_writer;
use super::last_writer::LastWriter;
use crate::{FileStorage, FileStorageError};

impl FileStorage {
    /// Names this session in the lock file, as one without gaps if its checksums have none. Names
    /// no session if there are no checksums. If another session's name cannot be removed, that is
    /// logged, and tried again when it matters.
    pub(crate) fn name_session(&self) {
        if !self.read_only {
            self.warn_of_name(self.try_name_session());
        }
    }

    fn try_name_session(&self) -> Result<(), FileStorageError> {
        let log = self.log();
        let checksums = log.checksums.as_ref().filter(|checksums| checksums.uncovered() == 0);
        let Some(checksums) = checksums else { return self.unname_session() };
        // Set before the sync: an append after the sync reads this in `settle_announcement`.
        // Relaxed: both threads take the lock of the checksums' state, which orders the accesses.
        self.may_be_named.store(true, Ordering::Relaxed);
        // After a power cut, checksums that were not durable would be missing.
        let synced = checksums.writing().sync();
        let Some(nonce) = synced.ok().and_then(|()| checksums.writing().nonce()) else {
            return self.unname_session();
        };
        let writer = LastWriter { nonce, is_complete: true };
        last_writer::write(self.disk.as_ref(), &self.path, Some(writer)).or_else(|error| {
            warn!(file = %self.path.display(), %error,
                "the session cannot be noted in the lock file");
            self.unname_session()
        })
    }

    /// Removes the name: another program changed the file, so this session did not write all of it.
    pub(crate) fn disown_session(&self) {
        let written = last_writer::write(self.disk.as_ref(), &self.path, None);
        let failed =
            |error| FileStorageError::io(&with_suffix(&self.path, ".lock"), "write", error);
        self.warn_of_name(written.map_err(failed));
    }

    /// Names the session again once its checksums have no gaps.
    pub(crate) fn name_session_if_covered(&self) {
        if !self.may_be_named() && self.uncovered_bytes() == 0 {
            self.name_session();
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
            warn!(file = %self.path.display(), %error, "checksums cannot be written before a \
                commit; a power cut now may leave a part of it");
        }
        if self.may_be_named() {
            self.unname_session()?;
        }
        Ok(false)
    }

    /// Call after the bytes of a batch are durable and its checksums written, if that was possible.
    /// Ends the naming as a session without gaps when the checksums have gaps. If a needed
    /// announcement `is_missing`, the session may have been named meanwhile; the checksums are then
    /// made durable now.
    pub(crate) fn settle_announcement(&self, checksums: &Checksums, is_missing: bool) {
        let is_settled = || {
            let has_gaps = checksums.uncovered() > 0;
            !has_gaps && (!is_missing || checksums.writing().sync().is_ok())
        };
        if self.may_be_named() && !is_settled() {
            self.warn_of_name(self.unname_session());
        }
    }

    /// Makes sure on stable storage that the lock file names no session without gaps.
    pub(crate) fn unname_session(&self) -> Result<(), FileStorageError> {
        let disk = self.disk.as_ref();
        let log = self.log();
        let nonce = log.checksums.as_ref().and_then(|checksums| checksums.writing().nonce());
        let writer = nonce.map(|nonce| LastWriter { nonce, is_complete: false });
        // A name that was cut off without a sync might come back.
        if self.may_be_named() || !matches!(last_writer::says(disk, &self.path, writer), Ok(true)) {
            last_writer::write(disk, &self.path, writer).map_err(|error| {
                FileStorageError::io(&with_suffix(&self.path, ".lock"), "write", error)
            })?;
            self.may_be_named.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn may_be_named(&self) -> bool {
        self.may_be_named.load(Ordering::Relaxed)
    }

    fn warn_of_name(&self, noted: Result<(), FileStorageError>) {
        if let Err(error) = noted {
            warn!(%error, "the lock file still names the session");
        }
    }
}
