//! What another program appends to a file that is open for reading only.

use std::sync::Arc;

use zodium_types::Tid;

use super::appender::Appender;
use super::oids::Oids;
use crate::FileStorageError;
use crate::read::LogFile;
use crate::scan::{Scan, Step};

/// Bytes read at once.
const WINDOW_BYTES: usize = 64 << 10;

impl Appender {
    /// Takes transactions into the index that another program has appended. `false` if the path has
    /// another file by now, as after a pack, or the file another content.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no transaction. The writer may be in the middle of them, so a
    /// caller may look once more.
    pub(crate) fn take_foreign_appends(
        &self,
        log: &LogFile,
        oids: &Oids,
    ) -> Result<bool, FileStorageError> {
        let _appending = self.lock();
        let (disk, path) = (&self.file.disk, &self.file.path);
        let failed = |error| FileStorageError::io(path, "look at", error);
        let status = disk.status(path).map_err(failed)?;
        if status.is_none_or(|status| status.identity != self.state.lock().identity) {
            return Ok(false);
        }
        let length = log.file.length().map_err(failed)?;
        let mut position = log.end();
        if length < position {
            return Ok(false);
        }
        if length == position {
            return Ok(true);
        }
        let mut scan = Scan::with_window(path, Arc::clone(&log.file), length, WINDOW_BYTES);
        // Another content may have been written into the same file: an older copy, and commits.
        let last = log.tids().last;
        let before = scan.transaction_before(position);
        if !before.is_ok_and(|before| before.map_or(Tid::ZERO, |one| one.tid()) == last) {
            return Ok(false);
        }
        while let Step::Transaction(entry) = scan.transaction(position)? {
            let mut records = Vec::new();
            scan.each_record(&entry, |record| records.push((record.header.oid, record.position)))?;
            position = entry.next_position();
            // The end first: a reader that finds a new position must be allowed to read there.
            log.extend_to(position);
            for (oid, place) in records {
                log.positions.publish(oid, place);
                oids.note(oid);
            }
            log.note_tid(entry.tid());
            log.note_indexed(position);
            log.tid_index.pass_appended(entry.tid(), entry.position);
            self.note_foreign_end(entry.tid(), position);
        }
        Ok(true)
    }

    fn note_foreign_end(&self, tid: Tid, end: u64) {
        let mut state = self.state.lock();
        state.last_tid = state.last_tid.max(tid);
        (state.end, state.refused_end) = (end, end);
    }
}
