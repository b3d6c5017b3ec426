//! Places among the transactions as they were when the cursor was made.

use std::sync::Arc;
use std::vec::IntoIter;

use zodium_storage::{
    RecordCursor, RecordSource, StorageError, Transaction, TransactionRecord, TransactionSource,
};

use crate::state::Committed;

/// Transactions, oldest first.
pub(crate) struct Transactions(pub(crate) IntoIter<Arc<Committed>>);

impl TransactionSource for Transactions {
    type Records = Records;

    fn next(&mut self) -> Result<Option<(Transaction, Records)>, StorageError> {
        let committed = self.0.next();
        Ok(committed.map(|committed| (committed.transaction(), Records { committed, taken: 0 })))
    }
}

/// The records of one transaction.
#[derive(Clone)]
pub(crate) struct Records {
    committed: Arc<Committed>,
    taken: usize,
}

impl RecordSource for Records {
    fn is_at_end(&self) -> bool {
        self.taken >= self.committed.records.len()
    }
}

impl RecordCursor for Records {
    fn step(&mut self) -> Result<Option<TransactionRecord>, StorageError> {
        let Some((oid, record)) = self.committed.records.get(self.taken) else { return Ok(None) };
        self.taken += 1;
        Ok(Some(TransactionRecord {
            oid: *oid,
            tid: self.committed.tid,
            data: record.data.clone(),
            data_tid: record.same_as,
        }))
    }
}
