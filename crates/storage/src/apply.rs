//! Writes whole transactions that bring their tids: for copies and replicas.

use std::collections::BTreeSet;
use std::mem;
use std::task::Poll;

use bytes::Bytes;
use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::{Access, LogItem, NewBody, NewRecord, NewTransaction, Prepared, StorageError, Write};

/// Most transactions in one commit.
const BATCH_TRANSACTIONS_MAX: usize = 1024;
/// Bytes of data in memory that end a batch.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// Takes the items of a [cursor](crate::TransactionCursor::read) and commits them, batch by batch,
/// with their tids, statuses, metadata and back pointers. Nothing else may write to the storage
/// meanwhile. What was not [finished](Applier::finish) may be lost.
pub struct Applier<'s> {
    storage: &'s dyn Write,
    /// The transaction whose records come now.
    current: Option<(Tid, NewTransaction)>,
    batch: Vec<(Tid, Prepared)>,
    /// The objects of the batch: no two transactions of a batch may write the same one.
    oids: BTreeSet<Oid>,
    bytes: usize,
    last_tid: Tid,
    committed_tid: Tid,
}

impl<'s> Applier<'s> {
    /// Writes behind the last transaction of `storage`.
    pub fn new(storage: &'s dyn Write) -> Applier<'s> {
        let last_tid = storage.last_tid();
        let (batch, oids) = (Vec::new(), BTreeSet::new());
        let (current, bytes, committed_tid) = (None, 0, last_tid);
        Applier { storage, current, batch, oids, bytes, last_tid, committed_tid }
    }

    /// Takes the next item. Blocking.
    ///
    /// # Errors
    /// `Other` for items in an order that no cursor has, and for a transaction that is not newer
    /// than those before it; and what [`Write::prepare`] and [`Write::commit`] give.
    pub fn apply(&mut self, item: LogItem<'_>) -> Result<(), StorageError> {
        match item {
            LogItem::Transaction { tid, status, user, description, extension } => {
                self.prepare()?;
                if tid <= self.last_tid {
                    let (name, last) = (self.storage.name(), self.last_tid);
                    let refused =
                        format!("{name}: transaction {tid} is not newer than the last one, {last}");
                    return Err(StorageError::Other(refused.into()));
                }
                let [user, description, extension] =
                    [user, description, extension].map(<[u8]>::to_vec);
                let metadata = TransactionMetadata { user, description, extension };
                self.last_tid = tid;
                self.current = Some((tid, NewTransaction { status, metadata, records: vec![] }));
                Ok(())
            }
            LogItem::Record { oid, data, data_tid } => {
                let body = self.body(oid, data, data_tid)?;
                let Some((_, transaction)) = &mut self.current else {
                    return Err(no_transaction());
                };
                transaction.records.push(NewRecord { oid, body });
                Ok(())
            }
            LogItem::Skipped => Err(no_transaction()),
        }
    }

    /// Takes a record with the same data as the one that an earlier transaction wrote for the
    /// object: a back pointer, whose data need not be at hand. Blocking.
    ///
    /// # Errors
    /// `Other` when the storage has no such record; otherwise as [`Applier::apply`].
    pub fn apply_same_as(&mut self, oid: Oid, earlier: Tid) -> Result<(), StorageError> {
        if self.oids.contains(&oid) {
            self.commit()?;
        }
        if self.storage.record(oid, earlier)?.is_none() {
            let name = self.storage.name();
            let refused =
                format!("{name}: has no record of object {oid} in transaction {earlier} to copy");
            return Err(StorageError::Other(refused.into()));
        }
        let Some((_, transaction)) = &mut self.current else { return Err(no_transaction()) };
        transaction.records.push(NewRecord { oid, body: NewBody::SameAs(earlier) });
        Ok(())
    }

    /// Forgets the transaction whose records come now: they are not all there.
    pub fn forget_unfinished(&mut self) {
        self.current = None;
    }

    /// The last transaction that is committed.
    pub fn committed_tid(&self) -> Tid {
        self.committed_tid
    }

    /// Commits what is left; the last transaction of the storage. Blocking.
    ///
    /// # Errors
    /// As [`Applier::apply`].
    pub fn finish(mut self) -> Result<Tid, StorageError> {
        self.prepare()?;
        self.commit()?;
        Ok(self.committed_tid)
    }

    /// The same data as an earlier record's stay a back pointer where the storage has that record.
    fn body(
        &mut self,
        oid: Oid,
        data: Option<&[u8]>,
        data_tid: Option<Tid>,
    ) -> Result<NewBody, StorageError> {
        // Also an undo that leads back to a deletion.
        if let Some(earlier) = data_tid {
            if self.oids.contains(&oid) {
                self.commit()?;
            }
            if self.storage.record(oid, earlier)?.is_some() {
                return Ok(NewBody::SameAs(earlier));
            }
        }
        let Some(data) = data else { return Ok(NewBody::Deleted) };
        self.bytes += data.len();
        Ok(NewBody::Data(Bytes::copy_from_slice(data)))
    }

    /// Prepares the transaction whose records are all there.
    fn prepare(&mut self) -> Result<(), StorageError> {
        let Some((tid, transaction)) = self.current.take() else { return Ok(()) };
        let oids: BTreeSet<Oid> = transaction.records.iter().map(|record| record.oid).collect();
        if !self.oids.is_disjoint(&oids) {
            self.commit()?;
        }
        let Poll::Ready(prepared) = self.storage.prepare(transaction, Access::Blocking)? else {
            return Err(StorageError::Other("a blocking call did not wait".into()));
        };
        self.batch.push((tid, prepared));
        self.oids.extend(oids);
        if self.batch.len() >= BATCH_TRANSACTIONS_MAX || self.bytes >= BATCH_BYTES_MAX {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StorageError> {
        self.oids.clear();
        self.bytes = 0;
        let batch = mem::take(&mut self.batch);
        if !batch.is_empty() {
            let committed = self.storage.commit(batch)?;
            self.committed_tid = committed.last().map_or(self.committed_tid, |last| last.tid);
        }
        Ok(())
    }
}

impl Drop for Applier<'_> {
    fn drop(&mut self) {
        self.batch.drain(..).for_each(|(_, prepared)| self.storage.abort(prepared));
    }
}

fn no_transaction() -> StorageError {
    StorageError::Other("a record without the beginning of its transaction cannot be copied".into())
}
