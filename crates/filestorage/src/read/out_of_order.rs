//! Finds a single transaction, also in a log whose tids go back.
//!
//! A search by tid passes by what stands behind a later transaction there.
//!
//! Key decision: a scan at the opening notes the order. Of what an index covers it is only asked
//! when a search finds nothing. Then a walk over all headers tells, once: the next one walks on
//! from its end.

use std::sync::Arc;

use zodium_types::Tid;

use super::ascent::Walked;
use super::iterate::step_scan;
use super::log::LogFile;
use crate::FileStorageError;
use crate::scan::{Scan, Step, TransactionEntry};

/// Bytes read at once while walking.
const WINDOW_BYTES: usize = 64 << 10;

impl LogFile {
    /// The transaction `tid`, wherever it stands. May wait for the device.
    pub(crate) fn find_transaction(
        &self,
        tid: Tid,
    ) -> Result<Option<TransactionEntry>, FileStorageError> {
        let position = self.first_at_or_after(tid)?;
        match step_scan(self).transaction(position)? {
            Step::Transaction(entry) if entry.tid() == tid => return Ok(Some(entry)),
            _ if !self.find_out_order()? => return Ok(None),
            _ => {}
        }
        let mut scan = self.scan_to(self.end(), WINDOW_BYTES);
        let mut end = scan.end();
        while let Some(entry) = scan.transaction_before(end)? {
            if entry.tid() == tid {
                return Ok(Some(entry));
            }
            end = entry.position;
        }
        Ok(None)
    }

    /// Whether a transaction stands behind a later one. Damage ends the walk: the order behind it
    /// cannot be told.
    fn find_out_order(&self) -> Result<bool, FileStorageError> {
        // Searches that wait for the walk of another one need it as well.
        let mut walked = self.ascent.walked.lock();
        let (file, end) = (Arc::clone(&self.file), self.end());
        // It takes any order.
        let mut scan = Scan::with_window(&self.path, file, end, WINDOW_BYTES);
        while !self.ascent.goes_back() {
            match scan.transaction(walked.end) {
                Ok(Step::Transaction(entry)) => {
                    if entry.tid() <= walked.last_tid {
                        self.ascent.note_going_back();
                    }
                    *walked = Walked { end: entry.next_position(), last_tid: entry.tid() };
                }
                Ok(Step::End | Step::Unfinished) | Err(FileStorageError::Corrupt { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.ascent.goes_back())
    }
}
