//! Transactions that look whole though a power cut has torn them, and how they are told.
//!
//! The log is synced once for a batch. When the power fails before, any sectors of the batch may be
//! missing, and one within the data of a record leaves the structure as it should be. It leaves a
//! trace, though ([`lost_sectors`](crate::lost_sectors)). A batch that has such a trace from the
//! outset, which is rare, is announced: its checksums are made durable before its bytes are
//! written. So behind what the checksums say was durable, a transaction with a trace that is not as
//! announced, and one that is broken, is torn, and is cut with all that follows: of one batch, that
//! nobody was told of.
//!
//! This holds only where our last session did not end in order, its checksums had no gaps, and
//! nobody else has written since: for that the session is named in the lock file
//! ([`crate::lock_note`]) as long as it is so.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::warn;
use zodium_disk::{Disk, DiskFile};

use crate::checksums::{Batch, Checksums, Entry, Opened};
use crate::lost_sectors::LostSectors;
use crate::scan::{Scan, TransactionEntry};
use crate::{FileStorage, StorageError, lock_note};

/// Bytes looked through at once.
const WINDOW_BYTES: u64 = 64 << 10;

/// Our last session, which did not end in order, and nobody has written since.
pub(crate) struct Crashed<'a> {
    opened: &'a Opened,
}

impl<'a> Crashed<'a> {
    /// `None` when it is not known to be so.
    pub(crate) fn find(
        disk: &dyn Disk,
        path: &std::path::Path,
        opened: Option<&'a Opened>,
    ) -> Option<Crashed<'a>> {
        let opened = opened.filter(|opened| opened.is_of_this_log())?;
        let session = opened.session();
        let is_named = lock_note::read(disk, path) == Some(session.nonce);
        (!session.is_closed && is_named).then_some(Crashed { opened })
    }

    /// Whether nothing says that what stands there was durable.
    pub(crate) fn may_be_torn(&self, position: u64) -> bool {
        position >= self.opened.side.end()
    }

    /// Whether a transaction that looks whole is not.
    pub(crate) fn is_torn(
        &self,
        file: &dyn DiskFile,
        scan: &mut Scan<'_>,
        transaction: &TransactionEntry,
    ) -> Result<bool, StorageError> {
        if !self.may_be_torn(transaction.position) || !has_trace(file, scan, transaction)? {
            return Ok(false);
        }
        let frame = Entry::frame(transaction.position, scan.frame_sum(transaction)?);
        let mut as_announced = self.is_announced(&frame);
        scan.try_each_record(transaction, |scan, record| {
            let found = Entry::record(record.position, scan.record_sum(record)?);
            as_announced &= self.is_announced(&found);
            Ok(())
        })?;
        Ok(!as_announced)
    }

    fn is_announced(&self, found: &Entry) -> bool {
        let announced = self.opened.announced();
        let place = announced.binary_search_by_key(&found.position, |entry| entry.position);
        let entry = place.ok().and_then(|number| announced.get(number));
        entry.is_some_and(|entry| (entry.sum, entry.part) == (found.sum, found.part))
    }
}

fn has_trace(
    file: &dyn DiskFile,
    scan: &Scan<'_>,
    transaction: &TransactionEntry,
) -> Result<bool, StorageError> {
    let mut sectors = LostSectors::default();
    sectors.begin(transaction.position);
    let (mut position, end) = (transaction.position, transaction.next_position());
    let mut window = vec![0; WINDOW_BYTES.min(end - position) as usize];
    while position < end {
        let count = WINDOW_BYTES.min(end - position);
        let bytes = &mut window[..count as usize];
        let read = file.read_exact_at(bytes, position);
        read.map_err(|error| StorageError::io(scan.path(), "read", error))?;
        sectors.add(bytes);
        position += count;
    }
    sectors.end();
    Ok(sectors.seen())
}

impl FileStorage {
    /// Names the session in the lock file, if its checksums have no gaps.
    pub(crate) fn name_session(&self) {
        let log = self.log();
        let checksums = log.checksums.as_ref().filter(|checksums| checksums.uncovered() == 0);
        // What is not durable of them would be missed after a power cut.
        let synced = checksums.filter(|checksums| checksums.writing().sync().is_ok());
        self.note_session(synced.and_then(|checksums| checksums.writing().nonce()));
    }

    /// Once the checksums have no gaps any more.
    pub(crate) fn name_session_if_covered(&self) {
        // Relaxed: written by this and by who appends, and either way it only says what was noted.
        if !self.is_session_named.load(Ordering::Relaxed) && self.uncovered_bytes() == 0 {
            self.name_session();
        }
    }

    /// Once they may have some.
    pub(crate) fn forget_session_unless_covered(&self, checksums: &Checksums) {
        if self.is_session_named.load(Ordering::Relaxed) && checksums.uncovered() > 0 {
            self.note_session(None);
        }
    }

    /// Makes the checksums of a batch durable before its bytes are written.
    pub(crate) fn announce(&self, checksums: &Arc<Checksums>, batch: &Batch) {
        if checksums.uncovered() > 0 {
            return;
        }
        if let Err(error) = checksums.writing().promise(batch) {
            warn!(file = %self.path.display(), %error, "checksums cannot be written before a \
                commit; a power cut now may leave a part of it");
            self.note_session(None);
        }
    }

    fn note_session(&self, nonce: Option<u64>) {
        let disk = self.disk.as_ref();
        if self.read_only || nonce.is_none() && lock_note::read(disk, &self.path).is_none() {
            return;
        }
        match lock_note::write(disk, &self.path, nonce) {
            Ok(()) => self.is_session_named.store(nonce.is_some(), Ordering::Relaxed),
            Err(error) => warn!(file = %self.path.display(), %error,
                "the session cannot be noted in the lock file"),
        }
    }
}
