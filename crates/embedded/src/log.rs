//! Reads the log of a storage: transactions and their records, one after the other.

use std::sync::Arc;

use bytes::Bytes;
use zodium_client::{ClientError, CommittedRecord, Extension, TransactionHead};
use zodium_storage::{RecordCursor, Transaction, TransactionCursor};
use zodium_types::Tid;

use crate::client::{EmbeddedClient, Shared};
use crate::failure::of_storage;

/// A place in the log.
pub struct EmbeddedLog {
    shared: Arc<Shared>,
    cursor: Box<dyn TransactionCursor>,
    current: Option<Current>,
}

/// The transaction whose records are being read.
struct Current {
    tid: Tid,
    taken: usize,
    /// `None` at their end.
    records: Option<Box<dyn RecordCursor>>,
}

impl EmbeddedClient {
    /// Reads the transactions from `start` to `stop`, both included, oldest first. Transactions
    /// committed after this call are not included.
    ///
    /// # Errors
    /// When the storage cannot be read.
    pub fn read_log(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<EmbeddedLog, ClientError> {
        let cursor = self.shared.database.reader().iterate(start, stop);
        let cursor = cursor.map_err(|error| of_storage(&error))?;
        Ok(EmbeddedLog { shared: Arc::clone(&self.shared), cursor, current: None })
    }
}

impl EmbeddedLog {
    /// The next transaction; skips the remaining records of the current one. Blocking.
    ///
    /// # Errors
    /// When the storage cannot be read. The next call tries again.
    pub fn next_transaction(&mut self) -> Result<Option<TransactionHead>, ClientError> {
        self.check()?;
        self.current = None;
        let step = self.cursor.step().map_err(|error| of_storage(&error))?;
        let Some(Transaction { tid, status, metadata, .. }) = step else { return Ok(None) };
        self.current = Some(Current { tid, taken: 0, records: self.cursor.records() });
        Ok(Some(TransactionHead {
            tid,
            status: char::from(status.to_byte()),
            user: metadata.user,
            description: metadata.description,
            extension: Extension::Pickle(Bytes::from(metadata.extension)),
        }))
    }

    /// The next records of the current transaction, at most `count`; none at its end. Blocking.
    ///
    /// # Errors
    /// As [`EmbeddedLog::next_transaction`].
    pub fn next_records(&mut self, count: usize) -> Result<Vec<CommittedRecord>, ClientError> {
        self.check()?;
        let Some(current) = &mut self.current else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        while found.len() < count
            && let Some(records) = &mut current.records
        {
            match records.step() {
                Ok(Some(record)) => {
                    let (oid, tid) = (record.oid, record.tid);
                    let (data, data_tid) = (record.data, record.data_tid);
                    found.push(CommittedRecord { oid, tid, data, data_tid });
                    current.taken += 1;
                }
                Ok(None) => current.records = None,
                // It comes again at the next call.
                Err(_) if !found.is_empty() => break,
                Err(error) => return Err(of_storage(&error)),
            }
        }
        Ok(found)
    }

    /// The current transaction, and how many of its records were taken.
    pub fn position(&self) -> Option<(Tid, usize)> {
        self.current.as_ref().map(|current| (current.tid, current.taken))
    }

    fn check(&self) -> Result<(), ClientError> {
        self.shared.check_open()?;
        self.shared.check_interrupt()
    }
}
