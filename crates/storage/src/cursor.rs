//! The cursor of storages that read transactions and records one by one.

use std::ops::ControlFlow;

use crate::{
    LogItem, RecordCursor, StorageError, Transaction, TransactionCursor, TransactionRecord,
};

/// Transactions one by one, each with a cursor of its records.
pub trait TransactionSource: Send {
    /// The records of one transaction.
    type Records: RecordSource;

    /// The next transaction; `None` at the end. After an error it is still the next one.
    fn next(&mut self) -> Result<Option<(Transaction, Self::Records)>, StorageError>;
}

/// Records of a transaction one by one. After an error the record is still the next one.
pub trait RecordSource: RecordCursor + Clone + 'static {
    /// Whether there is certainly no further record.
    fn is_at_end(&self) -> bool;
}

/// A [`TransactionCursor`] over a [`TransactionSource`].
pub struct SteppingCursor<Source: TransactionSource> {
    source: Source,
    /// The records of the transaction that [`TransactionCursor::step`] gave last.
    last: Option<Source::Records>,
    /// What is left of the transaction that is being read.
    reading: Option<Source::Records>,
}

impl<Source: TransactionSource> SteppingCursor<Source> {
    /// A cursor before the next transaction of the source.
    pub fn new(source: Source) -> SteppingCursor<Source> {
        SteppingCursor { source, last: None, reading: None }
    }
}

impl<Source: TransactionSource> TransactionCursor for SteppingCursor<Source> {
    fn step(&mut self) -> Result<Option<Transaction>, StorageError> {
        (self.reading, self.last) = (None, None);
        let Some((transaction, records)) = self.source.next()? else { return Ok(None) };
        self.last = Some(records);
        Ok(Some(transaction))
    }

    fn records(&self) -> Option<Box<dyn RecordCursor>> {
        Some(Box::new(self.last.clone()?))
    }

    fn read(
        &mut self,
        with_records: bool,
        visit: &mut dyn FnMut(LogItem<'_>) -> ControlFlow<()>,
    ) -> Result<bool, StorageError> {
        self.last = None;
        loop {
            let flow = match &mut self.reading {
                Some(records) if records.is_at_end() => {
                    self.reading = None;
                    continue;
                }
                Some(_) if !with_records => {
                    self.reading = None;
                    visit(LogItem::Skipped)
                }
                Some(records) => match records.step()? {
                    Some(TransactionRecord { oid, data, data_tid, .. }) => {
                        visit(LogItem::Record { oid, data: data.as_deref(), data_tid })
                    }
                    None => continue,
                },
                None => {
                    let Some((transaction, records)) = self.source.next()? else {
                        return Ok(true);
                    };
                    self.reading = Some(records);
                    let Transaction { tid, status, metadata, .. } = &transaction;
                    visit(LogItem::Transaction {
                        tid: *tid,
                        status: *status,
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
