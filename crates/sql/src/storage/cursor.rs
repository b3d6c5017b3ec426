//! Places among the transactions.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec::IntoIter;

use zodium_storage::{
    LogItem, RecordCursor, StorageError, Transaction, TransactionCursor, TransactionRecord,
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
    last: Option<(Tid, Vec<Oid>)>,
    /// The records of the transaction that is being read.
    reading: Option<Records>,
}

/// The records of one transaction.
struct Records {
    view: Arc<View>,
    tid: Tid,
    left: IntoIter<Oid>,
}

impl Transactions {
    /// The transactions of a range as they are now.
    pub(super) fn new(view: Arc<View>, range: (Tid, Tid)) -> Result<Transactions, SqlError> {
        let tids = Tids::new(view.database().partitions(), range, false);
        let packs = Packs::of(&view)?;
        Ok(Transactions { view, packs, tids, last: None, reading: None })
    }

    fn next(&mut self) -> Result<Option<TransactionRow>, SqlError> {
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

    fn records_of(&self, tid: Tid, oids: Vec<Oid>) -> Records {
        Records { view: Arc::clone(&self.view), tid, left: oids.into_iter() }
    }
}

impl TransactionCursor for Transactions {
    fn step(&mut self) -> Result<Option<Transaction>, StorageError> {
        (self.reading, self.last) = (None, None);
        let Some(row) = self.next()? else { return Ok(None) };
        self.last = Some((row.tid, row.oids.clone()));
        Ok(Some(self.packs.transaction(row)))
    }

    fn records(&self) -> Option<Box<dyn RecordCursor>> {
        let (tid, oids) = self.last.clone()?;
        Some(Box::new(self.records_of(tid, oids)))
    }

    fn read(
        &mut self,
        with_records: bool,
        visit: &mut dyn FnMut(LogItem<'_>) -> ControlFlow<()>,
    ) -> Result<bool, StorageError> {
        self.last = None;
        loop {
            let flow = match &mut self.reading {
                Some(records) if records.left.len() == 0 => {
                    self.reading = None;
                    continue;
                }
                Some(_) if !with_records => {
                    self.reading = None;
                    visit(LogItem::Skipped)
                }
                Some(records) => match records.next()? {
                    Some(TransactionRecord { oid, data, data_tid, .. }) => {
                        visit(LogItem::Record { oid, data: data.as_deref(), data_tid })
                    }
                    None => continue,
                },
                None => {
                    let Some(row) = self.next()? else { return Ok(true) };
                    self.reading = Some(self.records_of(row.tid, row.oids.clone()));
                    let (status, metadata) = (self.packs.status(&row), &row.metadata);
                    visit(LogItem::Transaction {
                        tid: row.tid,
                        status,
                        user: &metadata.user,
                        description: &metadata.description,
                        extension: &metadata.extension,
                    })
                }
            };
            if flow.is_break() {
                return Ok(false);
            }
        }
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
