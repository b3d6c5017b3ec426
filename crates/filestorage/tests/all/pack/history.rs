//! Random histories, and a model of what a pack must leave of them.
//!
//! The model knows transactions, revisions and references, and nothing of files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use zodium_filestorage::{FileStorage, TransactionIterator};
use zodium_storage::{NewBody, NewRecord, NewTransaction};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::support::{Undoing, commit, copied_body, undo_record};

/// Objects of a history; small, so that things happen to the same ones again and again.
const OBJECTS: u64 = 14;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) tid: Tid,
    pub(crate) status: TransactionStatus,
    pub(crate) metadata: TransactionMetadata,
    pub(crate) records: Vec<Record>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) oid: Oid,
    pub(crate) data: Option<Bytes>,
    /// The transaction of the record it points back to.
    pub(crate) source: Option<Tid>,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let length = self.data.as_ref().map(Bytes::len);
        write!(f, "{:?}: {length:?} bytes", self.oid)?;
        if let Some(source) = self.source { write!(f, " as in {source:?}") } else { Ok(()) }
    }
}

pub(crate) struct History {
    pub(crate) random: SmallRng,
    pub(crate) transactions: Vec<Transaction>,
    /// The time of the last pack: what was visible before it need not be any more.
    pub(crate) packed_to: Tid,
    /// What each record's data refer to.
    references: BTreeMap<Bytes, Vec<Oid>>,
}

impl History {
    pub(crate) fn new(seed: u64) -> History {
        History {
            random: SmallRng::seed_from_u64(seed),
            transactions: Vec::new(),
            packed_to: Tid::ZERO,
            references: BTreeMap::new(),
        }
    }

    pub(crate) fn last_tid(&self) -> Tid {
        self.transactions.last().map_or(Tid::ZERO, |transaction| transaction.tid)
    }

    /// Commits random transactions; the first of all creates the root.
    pub(crate) fn write(&mut self, storage: &FileStorage, count: usize) {
        for _ in 0..count {
            let kind = self.random.random_range(0..10);
            match kind {
                _ if self.transactions.is_empty() => self.store(storage, &[Oid::ROOT]),
                0 => self.delete(storage),
                1 | 2 => self.undo(storage),
                3 => self.restore(storage),
                4 => self.commit(storage, Vec::new()),
                _ => {
                    let count = self.random.random_range(1..5);
                    let oids: Vec<_> = (0..count).map(|_| self.some_oid()).collect();
                    self.store(storage, &oids);
                }
            }
        }
    }

    /// Stores data with random references.
    pub(crate) fn store(&mut self, storage: &FileStorage, oids: &[Oid]) {
        let records = oids.iter().map(|oid| {
            let count = self.random.random_range(0..4);
            let references: Vec<_> = (0..count).map(|_| self.some_oid()).collect();
            (*oid, self.record(&references))
        });
        let records = records.collect::<Vec<_>>();
        self.commit_data(storage, records);
    }

    /// Stores an object that refers to others.
    pub(crate) fn store_references(&mut self, storage: &FileStorage, oid: Oid, references: &[Oid]) {
        self.store_all_references(storage, &[(oid, references)]);
    }

    /// Stores objects that refer to others, in one transaction.
    pub(crate) fn store_all_references(
        &mut self,
        storage: &FileStorage,
        objects: &[(Oid, &[Oid])],
    ) {
        let records = objects.iter().map(|(oid, references)| (*oid, self.record(references)));
        let records = records.collect();
        self.commit_data(storage, records);
    }

    /// Undoes transaction `tid`; whether that was possible.
    pub(crate) fn undo_transaction(&mut self, storage: &FileStorage, tid: Tid) -> bool {
        let Ok(found) = storage.reader().records_to_undo(tid) else { return false };
        let (mut undoing, mut records) = (Undoing::default(), Vec::new());
        for record in found {
            let Some(body) = undo_record(storage, tid, record, &mut undoing).unwrap() else {
                return false;
            };
            let before = self.revision(record.oid, Tid(tid.0 - 1));
            let (source, data) = match &body {
                NewBody::Deleted => (None, None),
                _ => before.map_or((None, None), |(tid, data)| (Some(tid), data)),
            };
            records.push((Record { oid: record.oid, data, source }, body));
        }
        self.commit(storage, records);
        true
    }

    /// The newest revision of an object not later than `tid`.
    pub(crate) fn revision(&self, oid: Oid, tid: Tid) -> Option<(Tid, Option<Bytes>)> {
        revision(&self.transactions, oid, tid)
    }

    /// What data refer to.
    pub(crate) fn references(&self, data: &Bytes) -> &[Oid] {
        &self.references[data]
    }

    /// What is left after a pack to `pack_tid` which has seen transactions up to `seen`.
    pub(crate) fn packed(&self, pack_tid: Tid, seen: Tid, gc: bool) -> Vec<Transaction> {
        let kept = self.kept(pack_tid, seen, gc);
        let mut left = Vec::new();
        for transaction in &self.transactions {
            let mut transaction = transaction.clone();
            if transaction.tid <= pack_tid {
                transaction.status = TransactionStatus::Packed;
                let mut seen_oids = BTreeSet::new();
                transaction.records.reverse();
                transaction.records.retain(|record| {
                    seen_oids.insert(record.oid) && kept.contains(&(record.oid, transaction.tid))
                });
                transaction.records.reverse();
                transaction.records.iter_mut().for_each(|record| record.source = None);
                if transaction.records.is_empty() {
                    continue;
                }
            }
            left.push(transaction);
        }
        left
    }

    /// The revisions at the pack time and before that are kept.
    fn kept(&self, pack_tid: Tid, seen: Tid, gc: bool) -> BTreeSet<(Oid, Tid)> {
        let at_pack = |oid| self.revision(oid, pack_tid);
        let later = self.transactions.iter().filter(|t| t.tid > pack_tid && t.tid <= seen);
        let later: Vec<_> = later.flat_map(|transaction| &transaction.records).collect();
        let targets: BTreeSet<_> = later
            .iter()
            .filter_map(|record| Some((record.oid, record.source?)))
            .filter(|(_, source)| *source <= pack_tid)
            .collect();
        let mut pending = vec![Oid::ROOT];
        for record in &later {
            pending.extend(record.data.iter().flat_map(|data| self.references(data)));
            if record.data.is_some() && record.source.is_some_and(|source| source <= pack_tid) {
                pending.push(record.oid);
            }
        }
        if !gc {
            let records = self.transactions.iter().flat_map(|t| &t.records);
            pending = records.map(|record| record.oid).collect();
        }
        let mut marked = BTreeSet::new();
        while let Some(oid) = pending.pop() {
            if let Some((_, data)) = at_pack(oid)
                && marked.insert(oid)
            {
                pending.extend(data.iter().flat_map(|data| self.references(data)));
            }
        }
        let mut kept = targets.clone();
        for oid in marked {
            let Some((tid, data)) = at_pack(oid) else { continue };
            // A deletion only where something older would seem to be current.
            if data.is_some() || targets.iter().any(|(target, _)| *target == oid) {
                kept.insert((oid, tid));
            }
        }
        kept
    }

    fn commit_data(&mut self, storage: &FileStorage, records: Vec<(Oid, Bytes)>) {
        let records = records.into_iter().map(|(oid, data)| {
            let record = Record { oid, data: Some(data.clone()), source: None };
            (record, NewBody::Data(data))
        });
        self.commit(storage, records.collect());
    }

    fn delete(&mut self, storage: &FileStorage) {
        let oid = Oid(self.random.random_range(1..OBJECTS));
        let record = Record { oid, data: None, source: None };
        self.commit(storage, vec![(record, NewBody::Deleted)]);
    }

    fn undo(&mut self, storage: &FileStorage) {
        // Not the creation of the root.
        let newest = self.transactions.iter().skip(1).rev().take(15).collect::<Vec<_>>();
        if let Some(tid) = newest.choose(&mut self.random).map(|transaction| transaction.tid) {
            self.undo_transaction(storage, tid);
        }
    }

    /// Writes some old revision again, as a copy from another storage would.
    fn restore(&mut self, storage: &FileStorage) {
        let transaction = self.transactions.choose(&mut self.random).cloned();
        let Some(transaction) = transaction else { return };
        let Some(record) = transaction.records.choose(&mut self.random) else { return };
        self.restore_from(storage, record.oid, transaction.tid);
    }

    /// Writes what transaction `tid` made of an object again.
    pub(crate) fn restore_from(&mut self, storage: &FileStorage, oid: Oid, tid: Tid) {
        let Some((_, Some(data))) = self.revision(oid, tid) else { return };
        let body = copied_body(storage, oid, Some(data.clone()), Some(tid)).unwrap();
        let source = matches!(body, NewBody::SameAs(_)).then_some(tid);
        self.commit(storage, vec![(Record { oid, data: Some(data), source }, body)]);
    }

    fn commit(&mut self, storage: &FileStorage, records: Vec<(Record, NewBody)>) {
        let tid = Tid(self.last_tid().0 + self.random.random_range(1..100));
        let mut user = String::new();
        write!(user, "{}", tid.0).unwrap();
        let metadata = TransactionMetadata { user: user.into(), ..TransactionMetadata::default() };
        let status = TransactionStatus::Normal;
        let (records, bodies): (Vec<_>, Vec<_>) = records.into_iter().unzip();
        let new =
            records.iter().zip(bodies).map(|(record, body)| NewRecord { oid: record.oid, body });
        let new = NewTransaction { status, metadata: metadata.clone(), records: new.collect() };
        commit(storage, (tid, new)).unwrap();
        self.transactions.push(Transaction { tid, status, metadata, records });
    }

    fn some_oid(&mut self) -> Oid {
        match self.random.random_range(0..20) {
            0 => Oid(1 << 40 | self.random.random_range(0..2)),
            _ => Oid(self.random.random_range(0..OBJECTS)),
        }
    }

    /// A data record that refers to objects, to another weakly, and is like no other.
    fn record(&mut self, references: &[Oid]) -> Bytes {
        let mut data = b"\x80\x03cpersistent.list\nPersistentList\nq\0.\x80\x03](".to_vec();
        for oid in references {
            data.extend_from_slice(b"C\x08");
            data.extend_from_slice(&oid.to_bytes());
            data.extend_from_slice(b"h\0\x86Q");
        }
        // ['w', (oid,)]
        data.extend_from_slice(b"](X\x01\0\0\0wC\x08");
        data.extend_from_slice(&self.some_oid().to_bytes());
        data.extend_from_slice(b"\x85eQ");
        let filler = self.random.random_range(0..200_u32);
        data.extend_from_slice(b"B");
        data.extend_from_slice(&(filler + 8).to_le_bytes());
        data.extend_from_slice(&self.random.random::<u64>().to_be_bytes());
        data.resize(data.len() + filler as usize, b'.');
        data.extend_from_slice(b"e.");
        let data = Bytes::from(data);
        self.references.insert(data.clone(), references.to_vec());
        data
    }
}

/// The newest revision of an object not later than `tid` among transactions.
pub(crate) fn revision(
    transactions: &[Transaction],
    oid: Oid,
    tid: Tid,
) -> Option<(Tid, Option<Bytes>)> {
    transactions.iter().rev().filter(|transaction| transaction.tid <= tid).find_map(|t| {
        let record = t.records.iter().rev().find(|record| record.oid == oid)?;
        Some((t.tid, record.data.clone()))
    })
}

/// All that an iterator gives.
pub(crate) fn read_all(mut iterator: TransactionIterator) -> Vec<Transaction> {
    let mut transactions = Vec::new();
    while let Some(transaction) = iterator.step().unwrap() {
        let mut records = Vec::new();
        let mut place = iterator.records().unwrap();
        while let Some(record) = place.step().unwrap() {
            assert_eq!(record.tid, transaction.tid);
            records.push(Record { oid: record.oid, data: record.data, source: record.data_tid });
        }
        transactions.push(Transaction {
            tid: transaction.tid,
            status: transaction.status,
            metadata: transaction.metadata,
            records,
        });
    }
    transactions
}
