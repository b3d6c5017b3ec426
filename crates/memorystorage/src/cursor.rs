//! Places among the transactions as they were when the cursor was made.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec::IntoIter;

use zodium_storage::{
    LogItem, RecordCursor, StorageError, Transaction, TransactionCursor, TransactionRecord,
};

use crate::state::{Committed, Record};

/// Transactions, oldest first.
pub(crate) struct Transactions {
    left: IntoIter<Arc<Committed>>,
    last: Option<Arc<Committed>>,
    /// The transaction that is being read, and the number of its records that were shown.
    reading: Option<(Arc<Committed>, usize)>,
}

impl Transactions {
    pub(crate) fn new(transactions: Vec<Arc<Committed>>) -> Transactions {
        Transactions { left: transactions.into_iter(), last: None, reading: None }
    }
}

impl TransactionCursor for Transactions {
    fn step(&mut self) -> Result<Option<Transaction>, StorageError> {
        self.reading = None;
        self.last = self.left.next();
        Ok(self.last.as_ref().map(|committed| committed.transaction()))
    }

    fn records(&self) -> Option<Box<dyn RecordCursor>> {
        let records = records_of(self.last.as_ref()?);
        Some(Box::new(Records(records.into_iter())))
    }

    fn read(
        &mut self,
        with_records: bool,
        visit: &mut dyn FnMut(LogItem<'_>) -> ControlFlow<()>,
    ) -> Result<bool, StorageError> {
        self.last = None;
        loop {
            let flow = match self.reading.take() {
                Some((committed, shown)) if shown >= committed.records.len() => continue,
                Some(_) if !with_records => visit(LogItem::Skipped),
                Some((committed, shown)) => {
                    let (oid, record) = &committed.records[shown];
                    let data = record.data.as_deref();
                    let flow = visit(LogItem::Record { oid: *oid, data, data_tid: record.same_as });
                    self.reading = Some((committed, shown + 1));
                    flow
                }
                None => {
                    let Some(committed) = self.left.next() else { return Ok(true) };
                    let metadata = &committed.metadata;
                    let flow = visit(LogItem::Transaction {
                        tid: committed.tid,
                        status: committed.status,
                        user: &metadata.user,
                        description: &metadata.description,
                        extension: &metadata.extension,
                    });
                    self.reading = Some((committed, 0));
                    flow
                }
            };
            if flow.is_break() {
                return Ok(false);
            }
        }
    }
}

/// The records of one transaction.
struct Records(IntoIter<TransactionRecord>);

impl RecordCursor for Records {
    fn step(&mut self) -> Result<Option<TransactionRecord>, StorageError> {
        Ok(self.0.next())
    }
}

fn records_of(committed: &Committed) -> Vec<TransactionRecord> {
    let tid = committed.tid;
    let record = |(oid, record): &(_, Record)| TransactionRecord {
        oid: *oid,
        tid,
        data: record.data.clone(),
        data_tid: record.same_as,
    };
    committed.records.iter().map(record).collect()
}
