//! Cursors over the transactions of the log.

use std::ops::ControlFlow;

use zodium_storage::{
    LogItem, RecordCursor, StorageError, Transaction, TransactionCursor, TransactionRecord,
};

use crate::{RecordIterator, TransactionIterator};

/// An iterator, and the transaction that it returned last.
pub(super) struct LogCursor {
    iterator: TransactionIterator,
    last: Option<crate::Transaction>,
}

impl LogCursor {
    pub(super) fn new(iterator: TransactionIterator) -> LogCursor {
        LogCursor { iterator, last: None }
    }
}

impl TransactionCursor for LogCursor {
    fn step(&mut self) -> Result<Option<Transaction>, StorageError> {
        self.last = self.iterator.step()?;
        Ok(self.last.as_ref().map(|transaction| transaction.clone().into()))
    }

    fn records(&self) -> Option<Box<dyn RecordCursor>> {
        let records = self.iterator.records(self.last.as_ref()?);
        Some(Box::new(records))
    }

    fn read(
        &mut self,
        with_records: bool,
        visit: &mut dyn FnMut(LogItem<'_>) -> ControlFlow<()>,
    ) -> Result<bool, StorageError> {
        self.last = None;
        Ok(self.iterator.read(with_records, visit)?)
    }
}

impl RecordCursor for RecordIterator {
    fn step(&mut self) -> Result<Option<TransactionRecord>, StorageError> {
        Ok(RecordIterator::step(self)?)
    }
}

impl From<crate::Transaction> for Transaction {
    fn from(transaction: crate::Transaction) -> Transaction {
        let crate::Transaction { tid, status, metadata, length, .. } = transaction;
        Transaction { tid, status, metadata, length }
    }
}
