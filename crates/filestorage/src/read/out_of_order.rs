//! Finds a single transaction, also in a log whose tids go back.
//!
//! A search by tid passes by what stands behind a later transaction there.
//!
//! Key decision: only what is known of the order counts. A walk over all headers of a large log
//! would make a search that finds nothing wait for minutes.

use zodium_types::Tid;

use super::iterate::step_scan;
use super::log::LogFile;
use crate::FileStorageError;
use crate::scan::{Step, TransactionEntry};

/// Bytes read at once while walking.
const WINDOW_BYTES: usize = 64 << 10;

impl LogFile {
    /// The transaction `tid`. May wait for the device.
    pub(crate) fn find_transaction(
        &self,
        tid: Tid,
    ) -> Result<Option<TransactionEntry>, FileStorageError> {
        let position = self.first_at_or_after(tid)?;
        match step_scan(self).transaction(position)? {
            Step::Transaction(entry) if entry.tid() == tid => return Ok(Some(entry)),
            _ if !self.tids().go_back => return Ok(None),
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
}
