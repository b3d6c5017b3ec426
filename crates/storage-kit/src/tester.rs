//! A storage under test, with the few calls that most claims are made of.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::task::Poll;

use bytes::Bytes;
use zodium_storage::{
    Access, Committed, Load, NewBody, NewRecord, NewTransaction, Prepared, SharedWrite, Storage,
    StorageError, TransactionRecord,
};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

/// A storage under test. It gives the tids, unless the storage does.
pub struct Tester {
    /// The storage.
    pub storage: Arc<dyn Storage>,
    last: AtomicU64,
    /// Commits go through [`Storage::shared`].
    is_shared: bool,
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

impl From<Arc<dyn Storage>> for Tester {
    fn from(storage: Arc<dyn Storage>) -> Tester {
        Tester::new(storage)
    }
}

/// With what the storage needs for as long as it is tested, such as a folder.
impl<K: Any + Send + Sync> From<(Arc<dyn Storage>, K)> for Tester {
    fn from((storage, kept): (Arc<dyn Storage>, K)) -> Tester {
        Tester { _kept: Some(Box::new(kept)), ..Tester::new(storage) }
    }
}

impl Tester {
    /// Tests this storage, which is empty.
    pub fn new(storage: Arc<dyn Storage>) -> Tester {
        Tester { storage, last: AtomicU64::new(1 << 40), is_shared: false, _kept: None }
    }

    /// Has the storage decide about commits, and give the tids.
    #[must_use]
    pub fn sharing(self) -> Tester {
        Tester { is_shared: true, ..self }
    }

    /// A tid later than all before it, and not the next one.
    pub fn next_tid(&self) -> Tid {
        // A pack may be a transaction.
        self.last.fetch_max(self.storage.last_tid().0, Ordering::Relaxed);
        Tid(self.last.fetch_add(100, Ordering::Relaxed) + 100)
    }

    /// Prepares and commits records.
    pub fn commit(&self, records: Vec<NewRecord>) -> Tid {
        self.commit_as(TransactionStatus::Normal, TransactionMetadata::default(), records)
    }

    /// As [`Tester::commit`], with a status and metadata.
    pub fn commit_as(
        &self,
        status: TransactionStatus,
        metadata: TransactionMetadata,
        records: Vec<NewRecord>,
    ) -> Tid {
        let prepared = self.prepare_new(NewTransaction { status, metadata, records }).unwrap();
        if self.is_shared {
            return self.commit_batch(vec![prepared])[0].tid;
        }
        let tid = self.next_tid();
        let committed = self.storage.commit(vec![(tid, prepared)]).unwrap();
        assert_eq!(committed.iter().map(|one| one.tid).collect::<Vec<_>>(), [tid]);
        tid
    }

    /// Prepares records.
    pub fn prepare(&self, records: Vec<NewRecord>) -> Result<Prepared, StorageError> {
        let (status, metadata) = (TransactionStatus::Normal, TransactionMetadata::default());
        self.prepare_new(NewTransaction { status, metadata, records })
    }

    fn prepare_new(&self, new: NewTransaction) -> Result<Prepared, StorageError> {
        if self.is_shared {
            return self.vote(new);
        }
        match self.storage.prepare(new, Access::Blocking)? {
            Poll::Ready(prepared) => Ok(prepared),
            Poll::Pending => panic!("a blocking call does not wait"),
        }
    }

    /// Prepares a transaction as a client that has seen the last revision of each object.
    fn vote(&self, new: NewTransaction) -> Result<Prepared, StorageError> {
        let mut writes: Vec<SharedWrite> = Vec::new();
        for NewRecord { oid, body } in new.records {
            let serial = self.storage.current_serial(oid)?.unwrap_or(Tid::ZERO);
            let write = SharedWrite { oid, serial, body };
            // As the engine has it: the last record of an object counts.
            match writes.iter_mut().find(|earlier| earlier.oid == oid) {
                Some(earlier) => *earlier = write,
                None => writes.push(write),
            }
        }
        let mut transaction = self.storage.shared().unwrap().begin(&new.metadata)?;
        assert_eq!(transaction.store(&writes, &[])?, []);
        transaction.vote()
    }

    /// Commits prepared transactions as one batch, with the next tids.
    pub fn commit_batch(&self, batch: Vec<Prepared>) -> Vec<Committed> {
        if self.is_shared {
            return batch.into_iter().map(|prepared| self.finish(prepared)).collect();
        }
        let batch = batch.into_iter().map(|prepared| (self.next_tid(), prepared)).collect();
        self.storage.commit(batch).unwrap()
    }

    fn finish(&self, prepared: Prepared) -> Committed {
        let (done, outcome) = sync_channel(1);
        let told = Box::new(move |finished| done.send(finished).unwrap());
        self.storage.shared().unwrap().finish(prepared, told);
        outcome.recv().unwrap().unwrap()
    }

    /// Commits one object's new data.
    pub fn store(&self, oid: u64, data: &str) -> Tid {
        self.commit(vec![data_of(oid, data)])
    }

    /// Commits a deletion.
    pub fn delete(&self, oid: u64) -> Tid {
        self.commit(vec![NewRecord { oid: Oid(oid), body: NewBody::Deleted }])
    }

    /// Commits a record that is the same as that of another transaction.
    pub fn store_same(&self, oid: u64, tid: Tid) -> Tid {
        self.commit(vec![NewRecord { oid: Oid(oid), body: NewBody::SameAs(tid) }])
    }

    /// The revision before `before`: data, serial and end.
    pub fn load(&self, oid: u64, before: Tid) -> Option<(String, Tid, Option<Tid>)> {
        match self.storage.load_before(Oid(oid), before, Access::Blocking).unwrap() {
            Load::Revision(found) => {
                let data = String::from_utf8(found.data.to_vec()).unwrap();
                Some((data, found.serial, found.end))
            }
            Load::NoRevision | Load::Missing => None,
            Load::WouldBlock => panic!("a blocking load does not wait"),
        }
    }

    /// The current data.
    pub fn current(&self, oid: u64) -> Option<String> {
        self.load(oid, Tid::MAX).map(|(data, ..)| data)
    }

    /// All transactions with their records.
    pub fn transactions(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Vec<(Tid, Vec<TransactionRecord>)> {
        let mut cursor = self.storage.iterate(start, stop).unwrap();
        let mut found = Vec::new();
        while let Some(transaction) = cursor.step().unwrap() {
            let mut steps = cursor.records().unwrap();
            let mut records = Vec::new();
            while let Some(record) = steps.step().unwrap() {
                records.push(record);
            }
            found.push((transaction.tid, records));
        }
        found
    }
}

/// A record with these data.
pub(crate) fn data_of(oid: u64, data: &str) -> NewRecord {
    NewRecord { oid: Oid(oid), body: NewBody::Data(Bytes::copy_from_slice(data.as_bytes())) }
}
