//! Cursors over the transactions of the log.

use std::ops::ControlFlow;

use zodium_storage::{
    LogItem, RecordCursor, StorageError, Transaction, TransactionCursor, TransactionRecord,
};

use crate::{RecordIterator, TransactionIterator};

impl TransactionCursor for TransactionIterator {
    fn step(&mut self) -> Result<Option<Transaction>, StorageError> {
        Ok(TransactionIterator::step(self)?)
    }

    fn records(&self) -> Option<Box<dyn RecordCursor>> {
        Some(Box::new(TransactionIterator::records(self)?))
    }

    fn read(
        &mut self,
        with_records: bool,
        visit: &mut dyn FnMut(LogItem<'_>) -> ControlFlow<()>,
    ) -> Result<bool, StorageError> {
        Ok(TransactionIterator::read(self, with_records, visit)?)
    }
}

impl RecordCursor for RecordIterator {
    fn step(&mut self) -> Result<Option<TransactionRecord>, StorageError> {
        Ok(RecordIterator::step(self)?)
    }
}
