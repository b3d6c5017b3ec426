//! A storage in memory that several engines share: it decides about conflicts, tids and order.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use parking_lot::Mutex;
use zodium_memorystorage::MemoryStorage;
use zodium_storage::{
    Access, Committed, Finished, Follow, Follower, HistoryEntry, Load, NewRecord, NewTransaction,
    ObjectStep, Prepared, Read, Shared, SharedConflict, SharedTransaction, SharedWrite, Spool,
    Stamp, Storage, StorageError, StoredRecord, TransactionCursor, Undo, Write, WriteState,
};
use zodium_types::{Distribution, Oid, Tid, TransactionMetadata, TransactionStatus};

/// What the engines share.
#[derive(Default)]
struct Common {
    memory: MemoryStorage,
    /// Held from the tid of a commit until all are told of it.
    followers: Mutex<Vec<(usize, Arc<dyn Follower>)>>,
    fails: AtomicBool,
}

/// One engine's door to it.
pub(crate) struct SharedMemory {
    common: Arc<Common>,
    number: usize,
    is_read_only: bool,
}

struct Open {
    common: Arc<Common>,
    metadata: TransactionMetadata,
    writes: Vec<SharedWrite>,
}

impl SharedMemory {
    /// The doors of so many engines.
    pub(crate) fn doors(count: usize) -> Vec<SharedMemory> {
        let common = Arc::<Common>::default();
        let door = |number| {
            let common = Arc::clone(&common);
            SharedMemory { common, number, is_read_only: false }
        };
        (0..count).map(door).collect()
    }

    /// A door through which nothing is written.
    pub(crate) fn read_only(self) -> SharedMemory {
        SharedMemory { is_read_only: true, ..self }
    }

    /// Has the next finish or catching up fail; gives what can do it again.
    pub(crate) fn failing(&self) -> impl Fn() + use<> {
        let common = Arc::clone(&self.common);
        move || common.fails.store(true, Ordering::Relaxed)
    }

    fn memory(&self) -> &MemoryStorage {
        &self.common.memory
    }
}

impl SharedTransaction for Open {
    fn store(
        &mut self,
        writes: &[SharedWrite],
        reads: &[(Oid, Tid)],
    ) -> Result<Vec<SharedConflict>, StorageError> {
        let mut conflicts = Vec::new();
        let written = writes.iter().map(|write| (write.oid, write.serial));
        for (oid, serial) in written.chain(reads.iter().copied()) {
            let committed = self.common.memory.current_serial(oid)?.unwrap_or(Tid::ZERO);
            if committed != serial && committed != Tid::ZERO {
                conflicts.push(SharedConflict { oid, committed });
            }
        }
        let is_again = |one: &SharedWrite| writes.iter().any(|write| write.oid == one.oid);
        self.writes.retain(|one| !is_again(one));
        self.writes.extend_from_slice(writes);
        Ok(conflicts)
    }

    fn vote(self: Box<Self>) -> Result<Prepared, StorageError> {
        let record = |write: SharedWrite| NewRecord { oid: write.oid, body: write.body };
        let records = self.writes.into_iter().map(record).collect();
        let (status, metadata) = (TransactionStatus::Normal, self.metadata);
        let new = NewTransaction { status, metadata, records };
        match self.common.memory.prepare(new, Access::Blocking)? {
            Poll::Ready(prepared) => Ok(prepared),
            Poll::Pending => unreachable!("access is blocking"),
        }
    }
}

impl Shared for SharedMemory {
    fn begin(
        &self,
        metadata: &TransactionMetadata,
    ) -> Result<Box<dyn SharedTransaction>, StorageError> {
        let (common, metadata) = (Arc::clone(&self.common), metadata.clone());
        Ok(Box::new(Open { common, metadata, writes: Vec::new() }))
    }

    fn finish(&self, prepared: Prepared, done: Finished) {
        let followers = self.common.followers.lock();
        if self.common.fails.swap(false, Ordering::Relaxed) {
            return done(Err(StorageError::Io("the cluster is away".into())));
        }
        let tid = self.memory().last_tid().next();
        let committed = self.memory().commit(vec![(tid, prepared)]).unwrap();
        for (_, follower) in followers.iter().filter(|(number, _)| *number != self.number) {
            follower.committed(committed.clone());
        }
        done(Ok(committed[0].clone()));
    }
}

impl Follow for SharedMemory {
    fn follow(&self, _: Tid, follower: Arc<dyn Follower>) -> Result<(), StorageError> {
        self.common.followers.lock().push((self.number, follower));
        Ok(())
    }

    fn catch_up(&self) -> Result<(), StorageError> {
        match self.common.fails.swap(false, Ordering::Relaxed) {
            true => Err(StorageError::Io("the cluster is away".into())),
            false => Ok(()),
        }
    }
}

impl Storage for SharedMemory {
    fn undo(&self) -> Option<&dyn Undo> {
        self.memory().undo()
    }

    fn following(&self) -> Option<&dyn Follow> {
        Some(self)
    }

    fn shared(&self) -> Option<&dyn Shared> {
        (!self.is_read_only).then_some(self as _)
    }
}

impl Read for SharedMemory {
    fn name(&self) -> String {
        self.memory().name()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn size(&self) -> u64 {
        self.memory().size()
    }

    fn object_count(&self) -> u64 {
        self.memory().object_count()
    }

    fn last_tid(&self) -> Tid {
        self.memory().last_tid()
    }

    fn last_oid(&self) -> Oid {
        self.memory().last_oid()
    }

    fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError> {
        self.memory().load_before(oid, before, access)
    }

    fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool {
        self.memory().is_still_current(oid, stamp)
    }

    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError> {
        self.memory().record(oid, serial)
    }

    fn poll_serial(&self, oid: Oid, access: Access) -> Result<Poll<Option<Tid>>, StorageError> {
        self.memory().poll_serial(oid, access)
    }

    fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        accept: &mut dyn FnMut(HistoryEntry) -> bool,
    ) -> Result<(), StorageError> {
        self.memory().each_revision(oid, count, accept)
    }

    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
        self.memory().next_object(from)
    }

    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError> {
        self.memory().iterate(start, stop)
    }

    fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
        self.memory().recent(count)
    }
}

impl Write for SharedMemory {
    fn new_oids(&self, count: u64) -> Option<RangeInclusive<u64>> {
        self.memory().new_oids(count)
    }

    fn write_state(&self) -> WriteState {
        WriteState::Writable
    }

    fn sync_durations(&self) -> Distribution {
        self.memory().sync_durations()
    }

    fn new_spool(&self) -> Result<Spool, StorageError> {
        self.memory().new_spool()
    }

    fn prepare(&self, _: NewTransaction, _: Access) -> Result<Poll<Prepared>, StorageError> {
        unreachable!("a shared storage is not asked to prepare")
    }

    fn commit(&self, _: Vec<(Tid, Prepared)>) -> Result<Vec<Committed>, StorageError> {
        unreachable!("a shared storage is not asked to commit")
    }

    fn abort(&self, prepared: Prepared) {
        self.memory().abort(prepared);
    }

    fn reopen(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn close(&self) -> Result<(), StorageError> {
        Ok(())
    }
}
