//! The name of this session in the lock file: the clean-shutdown marker that says whether its
//! checksums have gaps ([`crate::lock_note`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::warn;
use zodium_disk::with_suffix;

use crate::checksums::{Batch, Checksums};
use crate::lock_note::{self, Note};
use crate::{FileStorage, FileStorageError};

impl FileStorage {
    /// Names the session in the lock file, as one without gaps if its checksums have none; no
    /// session, when there are no checksums. That the name of another cannot be taken away is
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
        // Before the sync: an append after it reads this (`settle_announcement`). Relaxed: the lock
        // of the checksums' state, which both take, orders it.
        self.may_be_named.store(true, Ordering::Relaxed);
        // What is not durable of them would be missed after a power cut.
        let synced = checksums.writing().sync();
        let Some(nonce) = synced.ok().and_then(|()| checksums.writing().nonce()) else {
            return self.unname_session();
        };
        let note = Note { nonce, is_complete: true };
        lock_note::write(self.disk.as_ref(), &self.path, Some(note)).or_else(|error| {
            warn!(file = %self.path.display(), %error,
                "the session cannot be noted in the lock file");
            self.unname_session()
        })
    }

    /// Another program has changed the file: it is not what this session wrote.
    pub(crate) fn disown_session(&self) {
        let written = lock_note::write(self.disk.as_ref(), &self.path, None);
        let failed =
            |error| FileStorageError::io(&with_suffix(&self.path, ".lock"), "write", error);
        self.warn_of_name(written.map_err(failed));
    }

    /// Once the checksums have no gaps any more.
    pub(crate) fn name_session_if_covered(&self) {
        if !self.may_be_named() && self.uncovered_bytes() == 0 {
            self.name_session();
        }
    }

    /// Makes the checksums of a batch durable before its bytes are written; `false` when that
    /// cannot be done, and is not expected of the session.
    ///
    /// # Errors
    /// When the session cannot be unnamed then: after a power cut the batch would be taken for
    /// torn.
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

    /// After the bytes of a batch are durable and its checksums written, if they could be: unnames
    /// the session when they have gaps. Where a batch should have been announced and was not, the
    /// session may have been named meanwhile; then they are made durable now.
    pub(crate) fn settle_announcement(&self, checksums: &Checksums, is_missing: bool) {
        let is_settled = || {
            let has_gaps = checksums.uncovered() > 0;
            !has_gaps && (!is_missing || checksums.writing().sync().is_ok())
        };
        if self.may_be_named() && !is_settled() {
            self.warn_of_name(self.unname_session());
        }
    }

    /// That no session without gaps is named is on stable storage when this returns.
    pub(crate) fn unname_session(&self) -> Result<(), FileStorageError> {
        let disk = self.disk.as_ref();
        let log = self.log();
        let nonce = log.checksums.as_ref().and_then(|checksums| checksums.writing().nonce());
        let note = nonce.map(|nonce| Note { nonce, is_complete: false });
        // One that was cut off without a sync might come back.
        if self.may_be_named() || !matches!(lock_note::says(disk, &self.path, note), Ok(true)) {
            lock_note::write(disk, &self.path, note).map_err(|error| {
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
