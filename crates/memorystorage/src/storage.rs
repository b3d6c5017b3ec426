//! The storage: its state under one lock, and the traits of the seam over it.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use zodium_disk::MemoryDisk;
use zodium_storage::{
    Access, Committed as CommittedTransaction, Follow, Follower, HistoryEntry, Load, NewBody,
    NewTransaction, ObjectStep, Pack, Prepared, Read, Spool, Stamp, SteppingCursor, Storage,
    StorageError, StoredRecord, TransactionCursor, Undo, Write, WriteState,
};
use zodium_types::{Distribution, Durations, Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::cursor::Transactions;
use crate::state::{Committed, Record, State, own_bytes};

/// The largest oid that is handed out: ZODB's tools take oids for signed numbers.
const NEW_OID_MAX: u64 = i64::MAX as u64;

/// A transaction that was prepared: its data are at hand, whatever a pack drops until its commit.
struct PreparedTransaction {
    status: TransactionStatus,
    metadata: TransactionMetadata,
    records: Vec<(Oid, PreparedRecord)>,
}

/// A record of it.
struct PreparedRecord {
    data: Option<Bytes>,
    /// The transaction whose record holds the data, and the one that it is the same as.
    source: Option<(Tid, Tid)>,
}

/// A storage in memory.
#[derive(Default)]
pub struct MemoryStorage {
    pub(crate) state: Arc<RwLock<State>>,
    /// Held by a batch from its first transaction until its followers know of it.
    pub(crate) followers: Arc<Mutex<Vec<Arc<dyn Follower>>>>,
    last_oid: Arc<AtomicU64>,
    is_read_only: bool,
}

impl MemoryStorage {
    /// An empty storage.
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }

    /// The same storage for reading only: it sees, and can follow, what this one commits.
    pub fn reader(&self) -> MemoryStorage {
        let (state, followers) = (Arc::clone(&self.state), Arc::clone(&self.followers));
        MemoryStorage { state, followers, last_oid: Arc::clone(&self.last_oid), is_read_only: true }
    }

    pub(crate) fn check_writable(&self) -> Result<(), StorageError> {
        match self.is_read_only {
            true => Err(StorageError::ReadOnly("the storage was opened for reading only".into())),
            false => Ok(()),
        }
    }
}

impl Read for MemoryStorage {
    fn name(&self) -> String {
        "(memory)".to_owned()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn size(&self) -> u64 {
        self.state.read().transactions.values().map(|committed| committed.bytes()).sum()
    }

    fn object_count(&self) -> u64 {
        self.state.read().objects.len() as u64
    }

    fn last_tid(&self) -> Tid {
        self.state.read().last_tid()
    }

    fn last_oid(&self) -> Oid {
        Oid(self.last_oid.load(Ordering::Relaxed))
    }

    fn load_before(&self, oid: Oid, before: Tid, _: Access) -> Result<Load, StorageError> {
        Ok(self.state.read().load_before(oid, before))
    }

    fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool {
        self.state.read().stamp(oid) == stamp
    }

    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError> {
        let record =
            |record: &Record| StoredRecord { data: record.data.clone(), data_tid: record.data_tid };
        Ok(self.state.read().record(oid, serial).map(record))
    }

    fn poll_serial(&self, oid: Oid, _: Access) -> Result<Poll<Option<Tid>>, StorageError> {
        Ok(Poll::Ready(self.state.read().current_serial(oid)))
    }

    fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        accept: &mut dyn FnMut(HistoryEntry) -> bool,
    ) -> Result<(), StorageError> {
        let state = self.state.read();
        let revisions = state.objects.get(&oid).into_iter().flatten().rev();
        let entry = |(tid, record): (&Tid, &Record)| {
            let transaction = state.transactions.get(tid)?.transaction();
            Some(HistoryEntry { size: own_bytes(*tid, record), transaction })
        };
        let _ = revisions.filter_map(entry).take(count).all(accept);
        Ok(())
    }

    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
        let state = self.state.read();
        let mut objects = state.objects.range(from..);
        let Some((oid, revisions)) = objects.next() else { return Ok(None) };
        let Some((serial, record)) = revisions.last_key_value() else { return Ok(None) };
        Ok(Some(ObjectStep {
            oid: *oid,
            serial: *serial,
            data: record.data.clone(),
            following: objects.next().map(|(oid, _)| *oid),
        }))
    }

    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError> {
        let (start, stop) = (start.unwrap_or(Tid::ZERO), stop.unwrap_or(Tid(u64::MAX)));
        let state = self.state.read();
        let in_range = state.transactions.values();
        let in_range = in_range.filter(|one| start <= one.tid && one.tid <= stop);
        let counting = in_range.filter(|one| one.status != TransactionStatus::Undone);
        let transactions: Vec<_> = counting.cloned().collect();
        Ok(Box::new(SteppingCursor::new(Transactions(transactions.into_iter()))))
    }

    fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
        let state = self.state.read();
        let newest = state.transactions.values().rev().take(count);
        let mut recent: Vec<_> = newest.map(|one| (one.tid, oids_of(one))).collect();
        recent.reverse();
        Ok(recent)
    }
}

impl Write for MemoryStorage {
    fn new_oids(&self, count: u64) -> Option<RangeInclusive<u64>> {
        let next = |last: u64| last.checked_add(count).filter(|last| *last <= NEW_OID_MAX);
        let last = self.last_oid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(last + 1..=last + count)
    }

    fn write_state(&self) -> WriteState {
        if self.is_read_only { WriteState::ReadOnly } else { WriteState::Writable }
    }

    fn sync_durations(&self) -> Distribution {
        Durations::default().distribution()
    }

    fn new_spool(&self) -> Result<Spool, StorageError> {
        Spool::new(&MemoryDisk::new(), Path::new("spool"), Arc::default())
    }

    fn prepare(
        &self,
        transaction: NewTransaction,
        access: Access,
    ) -> Result<Poll<Prepared>, StorageError> {
        self.check_writable()?;
        let state = self.state.read();
        let NewTransaction { status, metadata, records } = transaction;
        let mut prepared = Vec::with_capacity(records.len());
        for record in records {
            let (data, source) = match record.body {
                NewBody::Spooled(_) if access == Access::NonBlocking => return Ok(Poll::Pending),
                NewBody::Spooled(data) => (Some(data.read()?), None),
                NewBody::Data(data) => (Some(data), None),
                NewBody::Deleted => (None, None),
                NewBody::SameAs(tid) => {
                    let packed = StorageError::NotUndoable { tid, reason: "it was packed" };
                    let same = state.record(record.oid, tid).ok_or(packed)?;
                    (same.data.clone(), Some((same.data_tid, tid)))
                }
            };
            prepared.push((record.oid, PreparedRecord { data, source }));
        }
        let records = prepared;
        Ok(Poll::Ready(Prepared::new(PreparedTransaction { status, metadata, records })))
    }

    fn commit(
        &self,
        batch: Vec<(Tid, Prepared)>,
    ) -> Result<Vec<CommittedTransaction>, StorageError> {
        let followers = self.followers.lock();
        let mut committed = Vec::with_capacity(batch.len());
        for (tid, prepared) in batch {
            let transaction = prepared.into_inner::<PreparedTransaction>()?;
            let mut state = self.state.write();
            let new = committed_as(&state, tid, transaction);
            let oids = oids_of(&new);
            for oid in &oids {
                self.last_oid.fetch_max(oid.0, Ordering::Relaxed);
            }
            state.add(new);
            committed.push(CommittedTransaction { tid, oids });
        }
        followers.iter().for_each(|follower| follower.committed(committed.clone()));
        Ok(committed)
    }

    fn abort(&self, _: Prepared) {}

    fn reopen(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn close(&self) -> Result<(), StorageError> {
        Ok(())
    }
}

impl Storage for MemoryStorage {
    fn undo(&self) -> Option<&dyn Undo> {
        Some(self)
    }

    fn packing(&self) -> Option<&dyn Pack> {
        Some(self)
    }

    fn following(&self) -> Option<&dyn Follow> {
        self.is_read_only.then_some(self)
    }
}

/// A prepared transaction as it is kept. A record that it is the same as may have been packed away
/// since: it has data of its own then.
fn committed_as(state: &State, tid: Tid, transaction: PreparedTransaction) -> Committed {
    let PreparedTransaction { status, metadata, records } = transaction;
    let kept = |(oid, record): (Oid, PreparedRecord)| {
        let is_there = |source: &(Tid, Tid)| state.record(oid, source.1).is_some();
        let source = record.source.filter(is_there);
        let data_tid = source.map_or(tid, |(data_tid, _)| data_tid);
        let same_as = source.map(|(_, same)| same);
        (oid, Record { data: record.data, data_tid, same_as })
    };
    Committed { tid, status, metadata, records: records.into_iter().map(kept).collect() }
}

/// The objects that have a new revision by a transaction, each once.
pub(crate) fn oids_of(committed: &Committed) -> Vec<Oid> {
    let mut oids = Vec::new();
    if committed.status != TransactionStatus::Undone {
        for (oid, _) in &committed.records {
            if !oids.contains(oid) {
                oids.push(*oid);
            }
        }
    }
    oids
}
