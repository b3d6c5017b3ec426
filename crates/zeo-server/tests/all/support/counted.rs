//! A storage that counts how loads come to it.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use zodium_disk::Missed;
use zodium_storage::{
    Access, Committed, HistoryEntry, Load, NewTransaction, ObjectStep, Prepared, Read,
    ResidentRevisions, Spool, Stamp, Storage, StorageError, StoredRecord, TransactionCursor, Write,
    WriteState,
};
use zodium_types::{Distribution, Oid, Tid};

/// How loads have come to a storage, and how many it takes at once.
pub(crate) struct Loads {
    at_once_max: usize,
    alone: AtomicUsize,
    together: AtomicUsize,
}

/// Another storage, whose loads are counted.
pub(crate) struct Counted {
    storage: Arc<dyn Storage>,
    loads: Arc<Loads>,
}

impl Loads {
    /// Those of a storage that takes so many cold ones at once.
    pub(crate) fn new(at_once_max: usize) -> Arc<Loads> {
        Arc::new(Loads { at_once_max, alone: AtomicUsize::new(0), together: AtomicUsize::new(0) })
    }

    /// Loads that were looked up alone.
    pub(crate) fn alone(&self) -> usize {
        self.alone.load(Ordering::Relaxed)
    }

    /// Cold loads that were answered together with others.
    pub(crate) fn together(&self) -> usize {
        self.together.load(Ordering::Relaxed)
    }
}

impl Counted {
    pub(crate) fn new(storage: Arc<dyn Storage>, loads: Arc<Loads>) -> Counted {
        Counted { storage, loads }
    }
}

impl Storage for Counted {}

impl Read for Counted {
    fn name(&self) -> String {
        self.storage.name()
    }

    fn is_read_only(&self) -> bool {
        self.storage.is_read_only()
    }

    fn size(&self) -> u64 {
        self.storage.size()
    }

    fn object_count(&self) -> u64 {
        self.storage.object_count()
    }

    fn last_tid(&self) -> Tid {
        self.storage.last_tid()
    }

    fn last_oid(&self) -> Oid {
        self.storage.last_oid()
    }

    fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError> {
        self.storage.load_before(oid, before, access)
    }

    fn load_resident(&self, oid: Oid, before: Tid, missed: &Missed) -> Result<Load, StorageError> {
        self.loads.alone.fetch_add(1, Ordering::Relaxed);
        self.storage.load_resident(oid, before, missed)
    }

    fn loads_at_once(&self) -> usize {
        self.loads.at_once_max
    }

    fn load_many_before(&self, asked: &[(Oid, Tid)]) -> Vec<Result<Load, StorageError>> {
        assert!(asked.len() <= self.loads.at_once_max, "{} loads at once", asked.len());
        self.loads.together.fetch_add(asked.len(), Ordering::Relaxed);
        self.storage.load_many_before(asked)
    }

    fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool {
        self.storage.is_still_current(oid, stamp)
    }

    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError> {
        self.storage.record(oid, serial)
    }

    fn poll_serial(&self, oid: Oid, access: Access) -> Result<Poll<Option<Tid>>, StorageError> {
        self.storage.poll_serial(oid, access)
    }

    fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        accept: &mut dyn FnMut(HistoryEntry) -> bool,
    ) -> Result<(), StorageError> {
        self.storage.each_revision(oid, count, accept)
    }

    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
        self.storage.next_object(from)
    }

    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError> {
        self.storage.iterate(start, stop)
    }

    fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
        self.storage.recent(count)
    }

    fn read_resident(&self, look_up: &mut dyn FnMut(&dyn ResidentRevisions)) {
        self.storage.read_resident(look_up);
    }
}

impl Write for Counted {
    fn new_oids(&self, count: u64) -> Option<RangeInclusive<u64>> {
        self.storage.new_oids(count)
    }

    fn write_state(&self) -> WriteState {
        self.storage.write_state()
    }

    fn sync_durations(&self) -> Distribution {
        self.storage.sync_durations()
    }

    fn new_spool(&self) -> Result<Spool, StorageError> {
        self.storage.new_spool()
    }

    fn prepare(
        &self,
        transaction: NewTransaction,
        access: Access,
    ) -> Result<Poll<Prepared>, StorageError> {
        self.storage.prepare(transaction, access)
    }

    fn commit(&self, batch: Vec<(Tid, Prepared)>) -> Result<Vec<Committed>, StorageError> {
        self.storage.commit(batch)
    }

    fn abort(&self, prepared: Prepared) {
        self.storage.abort(prepared);
    }

    fn reopen(&self) -> Result<(), StorageError> {
        self.storage.reopen()
    }

    fn close(&self) -> Result<(), StorageError> {
        self.storage.close()
    }
}
