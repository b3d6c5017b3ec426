//! A model of a storage: revisions in a map, transactions in a list.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zodium_types::{Oid, Tid};

use crate::support::server::REMEMBERED;

/// The data of a revision; `None` for a deletion.
pub(super) type Data = Option<Vec<u8>>;

#[derive(Clone, Debug)]
pub(super) struct Revision {
    pub(super) tid: Tid,
    pub(super) data: Data,
}

#[derive(Clone, Debug)]
pub(super) struct Committed {
    pub(super) tid: Tid,
    pub(super) description: Vec<u8>,
    pub(super) records: BTreeMap<Oid, Data>,
    packed: bool,
}

/// The result of a load.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Loaded {
    Missing,
    NoRevision,
    Revision { data: Vec<u8>, tid: Tid, end: Option<Tid> },
}

/// The result of an undo.
#[derive(Clone, Debug)]
pub(super) enum Undone {
    Records(BTreeMap<Oid, Data>),
    Conflict,
    /// The model does not predict whether a deletion counts as the same data.
    Unsure,
}

#[derive(Debug)]
pub(super) struct StorageModel {
    /// Revisions by object, oldest first.
    pub(super) objects: BTreeMap<Oid, Vec<Revision>>,
    pub(super) transactions: Vec<Committed>,
    recent: VecDeque<(Tid, BTreeSet<Oid>)>,
    pub(super) last_tid: Tid,
}

impl StorageModel {
    pub(super) fn new(last_tid: Tid) -> StorageModel {
        StorageModel {
            objects: BTreeMap::new(),
            transactions: Vec::new(),
            recent: VecDeque::from([(last_tid, BTreeSet::new())]),
            last_tid,
        }
    }

    pub(super) fn commit(&mut self, tid: Tid, description: Vec<u8>, records: BTreeMap<Oid, Data>) {
        for (oid, data) in &records {
            let revision = Revision { tid, data: data.clone() };
            self.objects.entry(*oid).or_default().push(revision);
        }
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((tid, records.keys().copied().collect()));
        self.transactions.push(Committed { tid, description, records, packed: false });
        self.last_tid = tid;
    }

    pub(super) fn current(&self, oid: Oid) -> Option<&Revision> {
        self.objects.get(&oid)?.last()
    }

    pub(super) fn load_before(&self, oid: Oid, before: Tid) -> Loaded {
        let Some(revisions) = self.objects.get(&oid) else { return Loaded::Missing };
        let mut end = None;
        for revision in revisions.iter().rev() {
            if revision.tid < before {
                return match &revision.data {
                    Some(data) => Loaded::Revision { data: data.clone(), tid: revision.tid, end },
                    None => Loaded::Missing,
                };
            }
            end = Some(revision.tid);
        }
        Loaded::NoRevision
    }

    pub(super) fn load_serial(&self, oid: Oid, serial: Tid) -> Data {
        let revisions = self.objects.get(&oid)?;
        revisions.iter().find(|revision| revision.tid == serial)?.data.clone()
    }

    /// Newest first; `None` for an unknown object.
    pub(super) fn history(&self, oid: Oid, count: usize) -> Option<Vec<Tid>> {
        let revisions = self.objects.get(&oid)?;
        Some(revisions.iter().rev().take(count).map(|revision| revision.tid).collect())
    }

    /// The first object from `from` on with its current revision, and the oid after it.
    pub(super) fn next_object(&self, from: Oid) -> Option<(Oid, &Revision, Option<Oid>)> {
        let mut objects = self.objects.range(from..);
        let (oid, revisions) = objects.next()?;
        Some((*oid, revisions.last()?, objects.next().map(|(oid, _)| *oid)))
    }

    /// Objects changed since `since`; `None` if that is too long ago.
    pub(super) fn changed_since(&self, since: Tid) -> Option<BTreeSet<Oid>> {
        if since >= self.last_tid {
            return Some(BTreeSet::new());
        }
        if self.recent.front()?.0 > since {
            return None;
        }
        let newer = self.recent.iter().filter(|(tid, _)| *tid > since);
        Some(newer.flat_map(|(_, oids)| oids.iter().copied()).collect())
    }

    /// Transactions that can be undone, newest first.
    pub(super) fn undoable(&self) -> impl Iterator<Item = &Committed> {
        self.transactions.iter().rev().take_while(|transaction| !transaction.packed)
    }

    pub(super) fn undo(&self, undone: &Committed) -> Undone {
        let mut records = BTreeMap::new();
        for (oid, data) in &undone.records {
            let Some(revisions) = self.objects.get(oid) else { return Undone::Unsure };
            let Some(current) = revisions.last() else { return Undone::Unsure };
            if current.tid != undone.tid {
                match (&current.data, data) {
                    (Some(current), Some(data)) if current == data => {}
                    (Some(_), Some(_)) => return Undone::Conflict,
                    _ => return Undone::Unsure,
                }
            }
            let before = revisions.iter().rev().find(|revision| revision.tid < undone.tid);
            records.insert(*oid, before.and_then(|revision| revision.data.clone()));
        }
        Undone::Records(records)
    }

    /// Whether a pack up to now would drop anything.
    pub(super) fn pack_drops(&self) -> bool {
        let drops = |revisions: &Vec<Revision>| {
            revisions.len() > 1 || revisions.last().is_some_and(|last| last.data.is_none())
        };
        self.objects.values().any(drops)
    }

    /// Packs everything up to now, without garbage collection.
    pub(super) fn pack(&mut self) {
        for revisions in self.objects.values_mut() {
            revisions.drain(..revisions.len().saturating_sub(1));
            revisions.retain(|revision| revision.data.is_some());
        }
        self.objects.retain(|_, revisions| !revisions.is_empty());
        let objects = &self.objects;
        for transaction in &mut self.transactions {
            let tid = transaction.tid;
            transaction.packed = true;
            transaction.records.retain(|oid, _| {
                let revisions = objects.get(oid);
                revisions.is_some_and(|revisions| revisions.iter().any(|one| one.tid == tid))
            });
        }
        self.transactions.retain(|transaction| !transaction.records.is_empty());
    }
}
