//! The model of the server's storage: a storage in memory, which passes the same claims as any.
//!
//! The model adds what the engine remembers, which a pack does not change: the last tid, and the
//! objects of the last commits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Poll;

use zodium_memorystorage::MemoryStorage;
use zodium_storage::{
    Access, Load, LogItem, NewBody, NewRecord, NewTransaction, ObjectStep, Pack, PackOptions, Read,
    StorageError, Transaction, Undo, Write,
};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::support::server::REMEMBERED;

/// The data of a revision; `None` for a deletion.
pub(super) type Data = Option<Vec<u8>>;

/// A committed transaction with its records.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    pub(super) tid: Tid,
    pub(super) description: Vec<u8>,
    pub(super) records: BTreeMap<Oid, Data>,
}

/// The result of an undo.
#[derive(Clone, Debug)]
pub(super) enum Undone {
    Records(BTreeMap<Oid, Data>),
    Conflict,
    /// The model does not predict whether a deletion counts as the same data.
    Unsure,
}

pub(super) struct StorageModel {
    storage: MemoryStorage,
    remembered: VecDeque<(Tid, BTreeSet<Oid>)>,
    pub(super) last_tid: Tid,
}

impl StorageModel {
    pub(super) fn new(last_tid: Tid) -> StorageModel {
        let remembered = VecDeque::from([(last_tid, BTreeSet::new())]);
        StorageModel { storage: MemoryStorage::new(), remembered, last_tid }
    }

    pub(super) fn commit(&mut self, tid: Tid, description: Vec<u8>, records: BTreeMap<Oid, Data>) {
        if self.remembered.len() == REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back((tid, records.keys().copied().collect()));
        self.last_tid = tid;
        let body = |data: Data| data.map_or(NewBody::Deleted, |data| NewBody::Data(data.into()));
        let record = |(oid, data)| NewRecord { oid, body: body(data) };
        let transaction = NewTransaction {
            status: TransactionStatus::Normal,
            metadata: TransactionMetadata { description, ..TransactionMetadata::default() },
            records: records.into_iter().map(record).collect(),
        };
        let prepared = self.storage.prepare(transaction, Access::Blocking).unwrap();
        let Poll::Ready(prepared) = prepared else { panic!("memory does not wait") };
        self.storage.commit(vec![(tid, prepared)]).unwrap();
    }

    /// The current serial, which may be that of a deletion.
    pub(super) fn current_serial(&self, oid: Oid) -> Option<Tid> {
        self.storage.current_serial(oid).unwrap()
    }

    pub(super) fn serial_of_living(&self, oid: Oid) -> Option<Tid> {
        self.storage.serial_of_living(oid).unwrap()
    }

    pub(super) fn load_before(&self, oid: Oid, before: Tid) -> Load {
        self.storage.load_before(oid, before, Access::Blocking).unwrap()
    }

    pub(super) fn load_serial(&self, oid: Oid, serial: Tid) -> Data {
        self.storage.load_serial(oid, serial).unwrap().map(|data| data.to_vec())
    }

    /// Newest first; empty for an unknown object.
    pub(super) fn history(&self, oid: Oid, count: usize) -> Vec<Tid> {
        let entries = self.storage.history(oid, count).unwrap();
        entries.into_iter().map(|entry| entry.transaction.tid).collect()
    }

    /// The first object from `from` on with its current revision, and the oid after it.
    pub(super) fn next_object(&self, from: Oid) -> Option<ObjectStep> {
        self.storage.next_object(from).unwrap()
    }

    /// The tids of the last transactions, at most `count`, oldest first.
    pub(super) fn last_tids(&self, count: usize) -> Vec<Tid> {
        self.storage.recent(count).unwrap().into_iter().map(|(tid, _)| tid).collect()
    }

    /// The transactions from `start` on, at most `count`.
    pub(super) fn transactions_from(&self, start: Tid, count: usize) -> Vec<Committed> {
        let mut found: Vec<Committed> = Vec::new();
        let mut cursor = self.storage.iterate(Some(start), None).unwrap();
        let mut visit = |item: LogItem<'_>| {
            match item {
                LogItem::Transaction { .. } if found.len() == count => {
                    return ControlFlow::Break(());
                }
                LogItem::Transaction { tid, description, .. } => found.push(Committed {
                    tid,
                    description: description.to_vec(),
                    records: BTreeMap::new(),
                }),
                LogItem::Record { oid, data, .. } => {
                    let last = found.last_mut().expect("a record follows its transaction");
                    last.records.insert(oid, data.map(<[u8]>::to_vec));
                }
                LogItem::Skipped => panic!("records were asked for"),
            }
            ControlFlow::Continue(())
        };
        cursor.read(true, &mut visit).unwrap();
        found
    }

    /// The objects of a transaction that is still there.
    pub(super) fn objects_of(&self, tid: Tid) -> BTreeSet<Oid> {
        let found = self.transactions_from(tid, 1).into_iter().filter(|one| one.tid == tid);
        found.flat_map(|transaction| transaction.records.into_keys()).collect()
    }

    /// Objects changed since `since`; `None` if that is too long ago.
    pub(super) fn changed_since(&self, since: Tid) -> Option<BTreeSet<Oid>> {
        if since >= self.last_tid {
            return Some(BTreeSet::new());
        }
        if self.remembered.front()?.0 > since {
            return None;
        }
        let newer = self.remembered.iter().filter(|(tid, _)| *tid > since);
        Some(newer.flat_map(|(_, oids)| oids.iter().copied()).collect())
    }

    /// Transactions that can be undone, newest first, at most `count`.
    pub(super) fn undoable(&self, count: usize) -> Vec<Transaction> {
        let mut found = Vec::new();
        let mut accept = |transaction: &Transaction| {
            found.push(transaction.clone());
            found.len() < count
        };
        self.storage.undo_log(&mut accept).unwrap();
        found
    }

    /// The result of undoing a transaction; `None` if it cannot be undone at all.
    pub(super) fn undo(&self, tid: Tid) -> Option<Undone> {
        let undone = match self.storage.records_to_undo(tid) {
            Ok(undone) => undone,
            Err(StorageError::NotUndoable { .. }) => return None,
            Err(error) => panic!("{error}"),
        };
        let mut records = BTreeMap::new();
        for record in undone {
            let Some(current) = self.current_serial(record.oid) else {
                return Some(Undone::Unsure);
            };
            if current != tid {
                match (self.load_serial(record.oid, current), self.load_serial(record.oid, tid)) {
                    (Some(current), Some(data)) if current == data => {}
                    (Some(_), Some(_)) => return Some(Undone::Conflict),
                    _ => return Some(Undone::Unsure),
                }
            }
            let previous = record.previous.and_then(|serial| self.load_serial(record.oid, serial));
            records.insert(record.oid, previous);
        }
        Some(Undone::Records(records))
    }

    /// Packs everything up to now, without garbage collection; returns whether that dropped
    /// anything.
    pub(super) fn pack(&mut self) -> bool {
        let cancelled = Arc::default();
        let options = PackOptions::new(&cancelled);
        self.storage.pack(self.last_tid, &options).unwrap().is_some()
    }
}
