//! Places among the transactions.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec::IntoIter;

use zodium_storage::{
    LogItem, RecordCursor, StorageError, Transaction, TransactionCursor, TransactionRecord,
};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use super::tids::Tids;
use crate::NeoError;
use crate::cluster::Cluster;
use crate::reads::{Loaded, Reads, TransactionInformation};

/// Transactions, oldest first.
pub(super) struct Transactions {
    cluster: Arc<Cluster>,
    tids: Tids,
    last: Option<(Tid, Vec<Oid>)>,
    /// The records of the transaction that is being read.
    reading: Option<Records>,
}

/// The records of one transaction.
struct Records {
    cluster: Arc<Cluster>,
    tid: Tid,
    left: IntoIter<Oid>,
}

impl Transactions {
    /// The transactions of a range as they are now.
    pub(super) fn new(cluster: &Arc<Cluster>, range: (Tid, Tid)) -> Result<Transactions, NeoError> {
        let tids = Tids::new(&Reads::new(cluster), range, false)?;
        Ok(Transactions { cluster: Arc::clone(cluster), tids, last: None, reading: None })
    }

    fn next(&mut self) -> Result<Option<(Tid, TransactionInformation)>, NeoError> {
        let reads = Reads::new(&self.cluster);
        while let Some(tid) = self.tids.peek(&reads)? {
            let found = reads.transaction(tid)?;
            self.tids.take(tid);
            if let Some(found) = found {
                return Ok(Some((tid, found)));
            }
        }
        Ok(None)
    }

    fn records_of(&self, tid: Tid, oids: Vec<Oid>) -> Records {
        Records { cluster: Arc::clone(&self.cluster), tid, left: oids.into_iter() }
    }
}

/// A transaction as callers see it. Its length is that of what is kept beside its data.
pub(super) fn transaction(tid: Tid, found: TransactionInformation) -> Transaction {
    let status = status(&found);
    let TransactionInformation { metadata, oids, .. } = found;
    let TransactionMetadata { user, description, extension } = &metadata;
    let bytes = user.len() + description.len() + extension.len();
    let length = (bytes + oids.len() * size_of::<Oid>()) as u64;
    Transaction { tid, status, metadata, length }
}

pub(super) fn status(found: &TransactionInformation) -> TransactionStatus {
    if found.is_packed { TransactionStatus::Packed } else { TransactionStatus::Normal }
}

impl TransactionCursor for Transactions {
    fn step(&mut self) -> Result<Option<Transaction>, StorageError> {
        (self.reading, self.last) = (None, None);
        let Some((tid, found)) = self.next()? else { return Ok(None) };
        self.last = Some((tid, found.oids.clone()));
        Ok(Some(transaction(tid, found)))
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
                    let Some((tid, found)) = self.next()? else { return Ok(true) };
                    self.reading = Some(self.records_of(tid, found.oids.clone()));
                    let (status, metadata) = (status(&found), &found.metadata);
                    visit(LogItem::Transaction {
                        tid,
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
    fn next(&mut self) -> Result<Option<TransactionRecord>, NeoError> {
        let (reads, tid) = (Reads::new(&self.cluster), self.tid);
        while let Some(oid) = self.left.as_slice().first().copied() {
            let loaded = reads.load(oid, Some(tid), None)?;
            self.left.next();
            if let Loaded::Found(record) = loaded {
                let (data, data_tid) = (record.data, record.data_serial);
                return Ok(Some(TransactionRecord { oid, tid, data, data_tid }));
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
