//! A storage that commits while it is closed, and does not hear that it has committed.

use std::ops::RangeInclusive;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use zodium_memorystorage::MemoryStorage;
use zodium_storage::{
    Access, Committed, HistoryEntry, Load, NewTransaction, ObjectStep, Prepared, Read, Spool,
    Stamp, Storage, StorageError, StoredRecord, TransactionCursor, Write, WriteState,
};
use zodium_types::{Distribution, Oid, Tid};

/// Each commit says that it has begun, and waits until it is told to go on. It is then reported as
/// failed.
pub(crate) struct LosingStorage {
    pub(crate) memory: Arc<MemoryStorage>,
    pub(crate) begun: Sender<()>,
    pub(crate) goes_on: Mutex<Receiver<()>>,
}

impl Storage for LosingStorage {}

impl Write for LosingStorage {
    fn new_oids(&self, count: u64) -> Option<RangeInclusive<u64>> {
        self.memory.new_oids(count)
    }

    fn write_state(&self) -> WriteState {
        self.memory.write_state()
    }

    fn sync_durations(&self) -> Distribution {
        self.memory.sync_durations()
    }

    fn new_spool(&self) -> Result<Spool, StorageError> {
        self.memory.new_spool()
    }

    fn prepare(
        &self,
        transaction: NewTransaction,
        access: Access,
    ) -> Result<Poll<Prepared>, StorageError> {
        self.memory.prepare(transaction, access)
    }

    fn commit(&self, batch: Vec<(Tid, Prepared)>) -> Result<Vec<Committed>, StorageError> {
        self.begun.send(()).unwrap();
        self.goes_on.lock().unwrap().recv().unwrap();
        self.memory.commit(batch)?;
        Err(StorageError::Io("the storage was closed".into()))
    }

    fn abort(&self, prepared: Prepared) {
        self.memory.abort(prepared);
    }

    fn reopen(&self) -> Result<(), StorageError> {
        self.memory.reopen()
    }

    fn close(&self) -> Result<(), StorageError> {
        self.memory.close()
    }
}

impl Read for LosingStorage {
    fn name(&self) -> String {
        self.memory.name()
    }

    fn is_read_only(&self) -> bool {
        self.memory.is_read_only()
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn object_count(&self) -> u64 {
        self.memory.object_count()
    }

    fn last_tid(&self) -> Tid {
        self.memory.last_tid()
    }

    fn last_oid(&self) -> Oid {
        self.memory.last_oid()
    }

    fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError> {
        self.memory.load_before(oid, before, access)
    }

    fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool {
        self.memory.is_still_current(oid, stamp)
    }

    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError> {
        self.memory.record(oid, serial)
    }

    fn poll_serial(&self, oid: Oid, access: Access) -> Result<Poll<Option<Tid>>, StorageError> {
        self.memory.poll_serial(oid, access)
    }

    fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        accept: &mut dyn FnMut(HistoryEntry) -> bool,
    ) -> Result<(), StorageError> {
        self.memory.each_revision(oid, count, accept)
    }

    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
        self.memory.next_object(from)
    }

    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError> {
        self.memory.iterate(start, stop)
    }

    fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
        self.memory.recent(count)
    }
}
