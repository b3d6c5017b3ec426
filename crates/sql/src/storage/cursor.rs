//! Places among the transactions.

use std::sync::Arc;
use std::vec::IntoIter;

use zodium_storage::{
    RecordCursor, RecordSource, StorageError, Transaction, TransactionRecord, TransactionSource,
};
use zodium_types::{Oid, Tid};

use super::reading::{self, Packs};
use super::tids::Tids;
use super::view::View;
use crate::{SqlError, TransactionRow, revisions};

/// Transactions, oldest first.
pub(super) struct Transactions {
    view: Arc<View>,
    packs: Packs,
    tids: Tids,
}

/// The records of one transaction.
#[derive(Clone)]
pub(super) struct Records {
    view: Arc<View>,
    tid: Tid,
    left: IntoIter<Oid>,
}

impl Transactions {
    /// The transactions of a range as they are now.
    pub(super) fn new(view: Arc<View>, range: (Tid, Tid)) -> Result<Transactions, SqlError> {
        let tids = Tids::new(view.database().partitions(), range, false);
        let packs = Packs::of(&view)?;
        Ok(Transactions { view, packs, tids })
    }

    fn next_row(&mut self) -> Result<Option<TransactionRow>, SqlError> {
        let partitions = self.view.database().partitions();
        while let Some(tid) = self.tids.peek(&self.view)? {
            let row = self.view.read("read a transaction", |connection| {
                reading::transaction(connection, partitions, tid)
            })?;
            self.tids.take(tid);
            if row.is_some() {
                return Ok(row);
            }
        }
        Ok(None)
    }
}

impl TransactionSource for Transactions {
    type Records = Records;

    fn next(&mut self) -> Result<Option<(Transaction, Records)>, StorageError> {
        let Some(row) = self.next_row()? else { return Ok(None) };
        let (view, left) = (Arc::clone(&self.view), row.oids.clone().into_iter());
        let records = Records { view, tid: row.tid, left };
        Ok(Some((self.packs.transaction(row), records)))
    }
}

impl Records {
    /// The next record that is still there. After an error it is still the next one.
    fn next(&mut self) -> Result<Option<TransactionRecord>, SqlError> {
        let (database, tid) = (self.view.database(), self.tid);
        let partitions = database.partitions();
        while let Some(oid) = self.left.as_slice().first().copied() {
            let found = self.view.read("read a record", |connection| {
                let partition = partitions.of_oid(oid);
                let Some(row) = revisions::at(connection, partition, oid, tid)? else {
                    return Ok(None);
                };
                let source = reading::source(connection, partitions, oid, row.value_tid)?;
                Ok(Some((row, source)))
            })?;
            let record = match found {
                Some((row, data_tid)) => {
                    let data = reading::data_of(&database.place, oid, row)?;
                    Some(TransactionRecord { oid, tid, data, data_tid })
                }
                None => None,
            };
            self.left.next();
            if record.is_some() {
                return Ok(record);
            }
        }
        Ok(None)
    }
}

impl RecordCursor for Records {
    fn step(&mut self) -> Result<Option<TransactionRecord>, StorageError> {
        Ok(self.next()?)
    }
}

impl RecordSource for Records {
    fn is_at_end(&self) -> bool {
        self.left.as_slice().is_empty()
    }
}
