//! Places among the transactions.

use std::sync::Arc;
use std::vec::IntoIter;

use zodium_storage::{
    RecordCursor, RecordSource, StorageError, Transaction, TransactionRecord, TransactionSource,
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
}

/// The records of one transaction.
#[derive(Clone)]
pub(super) struct Records {
    cluster: Arc<Cluster>,
    tid: Tid,
    left: IntoIter<Oid>,
}

impl Transactions {
    /// The transactions of a range as they are now.
    pub(super) fn new(cluster: &Arc<Cluster>, range: (Tid, Tid)) -> Result<Transactions, NeoError> {
        let tids = Tids::new(&Reads::new(cluster), range, false)?;
        Ok(Transactions { cluster: Arc::clone(cluster), tids })
    }

    fn next_found(&mut self) -> Result<Option<(Tid, TransactionInformation)>, NeoError> {
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
}

/// A transaction as callers see it. Its length is that of what is kept beside its data.
pub(super) fn transaction(tid: Tid, found: TransactionInformation) -> Transaction {
    let TransactionInformation { metadata, oids, is_packed } = found;
    let status = if is_packed { TransactionStatus::Packed } else { TransactionStatus::Normal };
    let TransactionMetadata { user, description, extension } = &metadata;
    let bytes = user.len() + description.len() + extension.len();
    let length = (bytes + oids.len() * size_of::<Oid>()) as u64;
    Transaction { tid, status, metadata, length }
}

impl TransactionSource for Transactions {
    type Records = Records;

    fn next(&mut self) -> Result<Option<(Transaction, Records)>, StorageError> {
        let Some((tid, found)) = self.next_found()? else { return Ok(None) };
        let (cluster, left) = (Arc::clone(&self.cluster), found.oids.clone().into_iter());
        Ok(Some((transaction(tid, found), Records { cluster, tid, left })))
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

impl RecordSource for Records {
    fn is_at_end(&self) -> bool {
        self.left.as_slice().is_empty()
    }
}
