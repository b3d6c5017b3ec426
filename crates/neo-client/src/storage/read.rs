//! The reading trait of the seam.

use std::sync::Arc;
use std::task::Poll;

use zodium_neo::Message;
use zodium_neo::messages::Ping;
use zodium_storage::{
    Access, Committed, Follow, Follower, HistoryEntry, Load, ObjectStep, Read, ResidentRevisions,
    Revision, Stamp, SteppingCursor, StorageError, StoredRecord, Transaction, TransactionCursor,
};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use super::NeoStorage;
use super::cursor::{self, Transactions};
use super::tids::Tids;
use crate::NeoError;
use crate::cache::Current;
use crate::reads::{Loaded, Reads, Record};

/// Loads that are requested together. It bounds how long the first answer waits for the others.
const LOADS_AT_ONCE: usize = 256;

/// Whether a cluster may have an object of that oid: its databases have signed numbers.
pub(super) fn is_possible(oid: Oid) -> bool {
    i64::try_from(oid.0).is_ok()
}

impl NeoStorage {
    pub(super) fn reads(&self) -> Reads<'_> {
        Reads::new(&self.cluster)
    }

    /// The current revision, if it is in memory and from before a transaction.
    pub(super) fn resident(&self, oid: Oid, before: Tid) -> Option<Load> {
        // First, so that a commit meanwhile makes the answer stale.
        let stamp = Stamp(self.cluster.current.now(), 0);
        let Current { serial, data } = self.cluster.current.find(oid)?;
        (serial < before).then_some(Load::Revision(Revision { data, serial, end: None, stamp }))
    }

    fn load(&self, oid: Oid, before: Tid) -> Result<Load, NeoError> {
        if let Some(found) = self.resident(oid, before) {
            return Ok(found);
        }
        // First, so that a commit during the read makes the answer stale.
        let number = self.cluster.current.now();
        let loaded = self.reads().load(oid, None, Some(before.min(Tid::MAX)))?;
        Ok(self.answered(oid, number, loaded))
    }

    /// What a storage has answered. What is current is kept in memory; `number` is from before the
    /// storage was asked.
    pub(super) fn answered(&self, oid: Oid, number: u64, loaded: Loaded) -> Load {
        match loaded {
            Loaded::Found(Record { serial, next, data: Some(data), .. }) => {
                if next.is_none() {
                    let current = Current { serial, data: data.clone() };
                    self.cluster.current.insert(oid, current, number);
                }
                Load::Revision(Revision { data, serial, end: next, stamp: Stamp(number, 0) })
            }
            Loaded::Found(Record { data: None, .. }) | Loaded::Never => Load::Missing,
            Loaded::NotThen => Load::NoRevision,
        }
    }

    /// A transaction; one that is only records is damage, and can still be told.
    pub(super) fn transaction(&self, tid: Tid) -> Result<Transaction, NeoError> {
        Ok(match self.reads().transaction(tid)? {
            Some(found) => cursor::transaction(tid, found),
            None => Transaction {
                tid,
                status: TransactionStatus::Packed,
                metadata: TransactionMetadata::default(),
                length: 0,
            },
        })
    }
}

impl Read for NeoStorage {
    fn name(&self) -> String {
        let masters = self.cluster.options.masters.iter().map(ToString::to_string);
        format!("neo://{}@{}", self.cluster.options.cluster, Vec::from_iter(masters).join(","))
    }

    fn is_read_only(&self) -> bool {
        self.cluster.options.read_only
    }

    /// Clients cannot tell a cluster that a transaction was packed elsewhere.
    fn keeps_statuses(&self) -> bool {
        false
    }

    /// NEO keeps records with equal data in a chain by age.
    fn keeps_back_pointers(&self) -> bool {
        false
    }

    /// A cluster does not tell its clients.
    fn size(&self) -> u64 {
        0
    }

    /// A cluster does not tell its clients: the largest oid of the commits that were seen. The oids
    /// of objects begin with 0.
    fn object_count(&self) -> u64 {
        self.cluster.commits.last_committed_oid().0
    }

    fn last_tid(&self) -> Tid {
        self.cluster.commits.last_tid()
    }

    fn last_oid(&self) -> Oid {
        self.cluster.commits.last_oid()
    }

    fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError> {
        if !is_possible(oid) {
            return Ok(Load::Missing);
        }
        match access {
            Access::NonBlocking => Ok(self.resident(oid, before).unwrap_or(Load::WouldBlock)),
            Access::Blocking => Ok(self.load(oid, before)?),
        }
    }

    fn loads_at_once(&self) -> usize {
        LOADS_AT_ONCE
    }

    fn load_many_before(&self, asked: &[(Oid, Tid)]) -> Vec<Result<Load, StorageError>> {
        self.load_many(asked)
    }

    fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool {
        self.cluster.current.is_current(oid, stamp.0)
    }

    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError> {
        if !is_possible(oid) {
            return Ok(None);
        }
        Ok(match self.reads().load(oid, Some(serial), None)? {
            Loaded::Found(record) => {
                let data_tid = record.data_serial.unwrap_or(serial);
                Some(StoredRecord { data: record.data, data_tid })
            }
            Loaded::NotThen | Loaded::Never => None,
        })
    }

    fn poll_serial(&self, oid: Oid, access: Access) -> Result<Poll<Option<Tid>>, StorageError> {
        if !is_possible(oid) {
            return Ok(Poll::Ready(None));
        }
        if access == Access::NonBlocking {
            return Ok(Poll::Pending);
        }
        let newest = self.reads().history(oid, 1)?;
        Ok(Poll::Ready(newest.first().map(|record| record.serial)))
    }

    fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        accept: &mut dyn FnMut(HistoryEntry) -> bool,
    ) -> Result<(), StorageError> {
        if !is_possible(oid) || count == 0 {
            return Ok(());
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        for record in self.reads().history(oid, count)? {
            let transaction = self.transaction(record.serial)?;
            if !accept(HistoryEntry { size: record.size, transaction }) {
                break;
            }
        }
        Ok(())
    }

    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
        if !is_possible(from) {
            return Ok(None);
        }
        let mut from = from;
        while let Some((oid, following)) = self.objects.next(&self.reads(), from)? {
            match self.reads().load(oid, None, Some(Tid::MAX))? {
                Loaded::Found(Record { serial, data, .. }) => {
                    return Ok(Some(ObjectStep { oid, serial, data, following }));
                }
                // It was deleted and packed meanwhile.
                Loaded::NotThen | Loaded::Never => from = Oid(oid.0 + 1),
            }
        }
        Ok(None)
    }

    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError> {
        let last = self.last_tid();
        let range = (start.unwrap_or(Tid::ZERO), stop.map_or(last, |stop| stop.min(last)));
        Ok(Box::new(SteppingCursor::new(Transactions::new(&self.cluster, range)?)))
    }

    fn read_resident(&self, look_up: &mut dyn FnMut(&dyn ResidentRevisions)) {
        look_up(self.cluster.current.as_ref());
    }

    fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
        let reads = self.reads();
        let mut tids = Tids::new(&reads, (Tid::ZERO, self.last_tid()), true)?;
        let mut recent = Vec::new();
        while recent.len() < count
            && let Some(tid) = tids.peek(&reads)?
        {
            tids.take(tid);
            if let Some(found) = reads.transaction(tid)? {
                recent.push((tid, found.oids));
            }
        }
        recent.reverse();
        Ok(recent)
    }
}

impl Follow for NeoStorage {
    fn follow(&self, since: Tid, follower: Arc<dyn Follower>) -> Result<(), StorageError> {
        let missed = |last: Tid| -> Result<Vec<Committed>, NeoError> {
            self.reads().committed(since.next(), last)
        };
        self.cluster.commits.follow(since, follower, missed)
    }

    /// The primary master tells of commits before it answers.
    fn catch_up(&self) -> Result<(), StorageError> {
        let session = self.cluster.session(self.cluster.deadline())?;
        let asked = session
            .master
            .ask(Ping {}, |answer| matches!(answer, Message::Pong(_)).then_some(()))?;
        Ok(asked.wait()?)
    }
}
