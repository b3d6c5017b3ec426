//! Reads the log from its end towards its start.

use std::sync::Arc;

use zodium_storage::Transaction;

use super::iterate::transaction;
use super::old_logs::PinnedLog;
use super::read_log::Place;
use super::reader::Reader;
use crate::FileStorageError;
use crate::reading::Reading;

/// Bytes read at once.
const WINDOW_BYTES: usize = 64 << 10;

/// The transactions of the log as it was when this was made, the newest first.
pub struct NewestTransactions {
    log: Arc<PinnedLog>,
    /// The end of the transaction that comes next.
    end: u64,
}

/// A transaction, and where it is in the file.
#[derive(Clone, Debug)]
pub struct PlacedTransaction {
    /// The transaction.
    pub transaction: Transaction,
    /// Where it is.
    pub place: Place,
    /// Bytes of its header, user, description and extension included; the records follow.
    pub header_bytes: u64,
}

impl Reader {
    /// The transactions, the newest first. Needs no index.
    pub fn newest(&self) -> NewestTransactions {
        let log = self.log();
        NewestTransactions { log: Arc::clone(log.pinned()), end: log.end() }
    }
}

impl NewestTransactions {
    /// The transaction before the last one that was returned; `None` at the start.
    pub fn step(&mut self) -> Result<Option<PlacedTransaction>, FileStorageError> {
        let log = self.log.bytes()?;
        let mut scan = log.scan_to(log.end(), WINDOW_BYTES);
        let Some(entry) = scan.transaction_before(self.end)? else { return Ok(None) };
        let place = Place { position: entry.position, bytes: entry.header.length };
        let header_bytes = entry.header.records_offset();
        let transaction = transaction(&mut scan, &entry)?;
        self.end = entry.position;
        Ok(Some(PlacedTransaction { transaction, place, header_bytes }))
    }

    /// Shows the bytes of the records of a transaction, piece by piece.
    pub fn records_bytes(
        &self,
        placed: &PlacedTransaction,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<(), FileStorageError> {
        let log = self.log.bytes()?;
        let end = placed.place.position + placed.place.bytes;
        let mut position = placed.place.position + placed.header_bytes;
        let mut piece = vec![0; WINDOW_BYTES.min((end - position) as usize)];
        while position < end {
            let count = piece.len().min((end - position) as usize);
            log.read(&mut piece[..count], position, Reading::Blocking)?;
            visit(&piece[..count]);
            position += count as u64;
        }
        Ok(())
    }
}
