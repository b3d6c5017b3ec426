//! The stores of one transaction: what was asked of which storage, and what it answered. No I/O.
//!
//! Key decision: conflicts are handed out when all answers are there. Until then the transaction
//! gives its locks back wherever an older one needs them, so none waits for ever.

use std::collections::{BTreeMap, BTreeSet};

use zodium_neo::{NodeId, Partition};
use zodium_types::{Oid, Tid};

use crate::NeoError;

/// What happened at a storage.
#[derive(Debug)]
pub(crate) enum Event {
    /// A store or a check was answered: `None` is a lock, [`Tid::ZERO`] none by a cell that is
    /// being replicated, and others are the revision that is current.
    Stored { node: NodeId, oid: Oid, conflict: Option<Tid> },
    /// A lock was given back and asked for again; `None`: it is held again, else as above.
    Relocked { node: NodeId, oid: Oid, conflict: Option<Tid> },
    /// A store, a check or a relock failed.
    Failed { node: NodeId, error: NeoError },
    /// An older transaction waits for a lock of this one.
    Deadlock { node: NodeId, oid: Oid },
}

/// The stores and checks of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    objects: BTreeMap<Oid, Object>,
    /// Answers that are still to come.
    awaited: usize,
    involved: BTreeSet<NodeId>,
    failed: BTreeSet<NodeId>,
    conflicts: BTreeMap<Oid, Tid>,
}

#[derive(Debug)]
struct Object {
    /// The place among the objects, in the order of their first stores.
    place: usize,
    partition: Partition,
    kind: Kind,
    /// The storages that hold the lock.
    locked: BTreeSet<NodeId>,
    /// The storages that have the store without a lock.
    lockless: BTreeSet<NodeId>,
}

/// What is asked for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Delete,
    Check,
}

impl Stores {
    /// Begins a store or a check of an object, perhaps once more after a conflict. A write of an
    /// object that is checked too stays a write.
    pub(crate) fn begin(&mut self, oid: Oid, partition: Partition, kind: Kind) {
        self.conflicts.remove(&oid);
        let place = self.objects.len();
        let object = self.objects.entry(oid).or_insert_with(|| Object {
            place,
            partition,
            kind,
            locked: BTreeSet::new(),
            lockless: BTreeSet::new(),
        });
        if kind != Kind::Check {
            object.kind = kind;
        }
    }

    /// Notes a request to a storage, whose answer will be an [`Event`].
    pub(crate) fn asked(&mut self, node: NodeId) {
        self.involved.insert(node);
        self.awaited += 1;
    }

    /// Notes that a storage cannot be asked.
    pub(crate) fn lost(&mut self, node: NodeId) {
        self.involved.insert(node);
        self.failed.insert(node);
    }

    /// Takes an event. `true`: the lock of [`Event::Deadlock`] must be given back, and the request
    /// to do so is [asked](Stores::asked).
    ///
    /// # Errors
    /// When a storage refused a request.
    pub(crate) fn take(&mut self, event: Event) -> Result<bool, NeoError> {
        match event {
            Event::Stored { node, oid, conflict } | Event::Relocked { node, oid, conflict } => {
                self.awaited -= 1;
                self.answered(node, oid, conflict);
            }
            Event::Failed { node, error } => {
                self.awaited -= 1;
                if !error.is_of_node() {
                    return Err(error);
                }
                self.failed.insert(node);
            }
            // Without an answer to come it ends by itself soon.
            Event::Deadlock { node, oid } => {
                let holds = |object: &Object| object.locked.contains(&node);
                return Ok(self.objects.get(&oid).is_some_and(holds));
            }
        }
        Ok(false)
    }

    fn answered(&mut self, node: NodeId, oid: Oid, conflict: Option<Tid>) {
        let Some(object) = self.objects.get_mut(&oid) else { return };
        match conflict {
            None => drop(object.locked.insert(node)),
            Some(Tid::ZERO) => drop(object.lockless.insert(node)),
            Some(committed) => {
                object.locked.remove(&node);
                let newest = self.conflicts.entry(oid).or_insert(committed);
                *newest = committed.max(*newest);
            }
        }
    }

    /// Whether all answers are there.
    pub(crate) fn is_settled(&self) -> bool {
        self.awaited == 0
    }

    /// The objects that other transactions have changed, each with its current revision. All
    /// answers are there.
    pub(crate) fn conflicts(&self) -> &BTreeMap<Oid, Tid> {
        &self.conflicts
    }

    /// The storages that have heard of the transaction.
    pub(crate) fn involved(&self) -> impl Iterator<Item = NodeId> {
        self.involved.iter().copied()
    }

    /// Whether a request to the storage failed: it gets none any more.
    pub(crate) fn has_failed(&self, node: NodeId) -> bool {
        self.failed.contains(&node)
    }

    /// The storages that failed.
    pub(crate) fn failed(&self) -> impl Iterator<Item = NodeId> {
        self.failed.iter().copied()
    }

    /// The partition with an object that no storage has locked which is still there, if any.
    pub(crate) fn unlocked(&self) -> Option<Partition> {
        let is_held = |object: &&Object| object.locked.iter().any(|node| !self.has_failed(*node));
        self.objects.values().find(|object| !is_held(object)).map(|object| object.partition)
    }

    /// The objects that are written or deleted, in the order of their first stores.
    pub(crate) fn changed(&self) -> Vec<Oid> {
        let changed = self.objects.iter().filter(|(_, object)| object.kind != Kind::Check);
        let mut changed: Vec<_> = changed.map(|(oid, object)| (object.place, *oid)).collect();
        changed.sort_unstable();
        changed.into_iter().map(|(_, oid)| oid).collect()
    }

    /// The objects of a kind.
    pub(crate) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (Oid, Partition)> {
        let objects = self.objects.iter().filter(move |(_, object)| object.kind == kind);
        objects.map(|(oid, object)| (*oid, object.partition))
    }
}

#[cfg(test)]
mod tests {
    use zodium_neo::{ErrorCode, NodeType};

    use super::*;

    const PARTITION: Partition = Partition(3);

    fn storage(number: u32) -> NodeId {
        NodeId::of(NodeType::Storage, number).unwrap()
    }

    fn stored(number: u32, oid: u64, conflict: Option<u64>) -> Event {
        Event::Stored { node: storage(number), oid: Oid(oid), conflict: conflict.map(Tid) }
    }

    fn lost(number: u32) -> Event {
        let error = NeoError::lost(&"S".into(), "gone");
        Event::Failed { node: storage(number), error }
    }

    /// A transaction that stores an object at these storages.
    fn storing(oid: u64, nodes: &[u32]) -> Stores {
        let mut stores = Stores::default();
        ask(&mut stores, oid, nodes);
        stores
    }

    fn ask(stores: &mut Stores, oid: u64, nodes: &[u32]) {
        stores.begin(Oid(oid), PARTITION, Kind::Write);
        nodes.iter().for_each(|number| stores.asked(storage(*number)));
    }

    #[test]
    fn all_cells_answer_before_conflicts_are_told() {
        let mut stores = storing(1, &[1, 2]);
        assert!(!stores.take(stored(1, 1, Some(50))).unwrap());
        assert!(!stores.is_settled());
        stores.take(stored(2, 1, Some(60))).unwrap();
        assert!(stores.is_settled());
        assert_eq!(stores.conflicts().iter().next(), Some((&Oid(1), &Tid(60))));
        ask(&mut stores, 1, &[1, 2]);
        stores.take(stored(1, 1, None)).unwrap();
        stores.take(stored(2, 1, Some(0))).unwrap();
        assert!(stores.is_settled() && stores.conflicts().is_empty());
        assert_eq!(stores.unlocked(), None);
    }

    #[test]
    fn locks_are_given_back_only_where_they_are_held() {
        let mut stores = storing(1, &[1]);
        let deadlock = || Event::Deadlock { node: storage(1), oid: Oid(1) };
        assert!(!stores.take(deadlock()).unwrap(), "the lock is not held yet");
        stores.take(stored(1, 1, None)).unwrap();
        assert!(stores.take(deadlock()).unwrap());
        stores.asked(storage(1));
        assert!(!stores.is_settled());
        let conflict = Some(Tid(9));
        stores.take(Event::Relocked { node: storage(1), oid: Oid(1), conflict }).unwrap();
        assert!(stores.is_settled());
        assert_eq!(stores.conflicts().len(), 1);
        assert_eq!(stores.unlocked(), Some(PARTITION));
    }

    #[test]
    fn lost_storages_are_noted_and_refusals_end_the_transaction() {
        let mut stores = storing(1, &[1, 2]);
        stores.lost(storage(3));
        stores.take(stored(1, 1, None)).unwrap();
        stores.take(lost(2)).unwrap();
        assert!(stores.is_settled());
        assert_eq!(stores.failed().collect::<Vec<_>>(), [storage(2), storage(3)]);
        assert_eq!(stores.involved().count(), 3);
        assert_eq!(stores.unlocked(), None);
        stores.lost(storage(1));
        assert_eq!(stores.unlocked(), Some(PARTITION));
        let mut stores = storing(1, &[1]);
        let (peer, message) = ("S1".into(), "".into());
        let error = NeoError::Refused { peer, code: ErrorCode::ProtocolError, message };
        assert!(stores.take(Event::Failed { node: storage(1), error }).is_err());
    }

    #[test]
    fn cell_that_replicates_locks_nothing() {
        let mut stores = storing(1, &[1]);
        stores.take(stored(1, 1, Some(0))).unwrap();
        assert_eq!(stores.unlocked(), Some(PARTITION));
    }

    #[test]
    fn objects_are_written_deleted_or_checked() {
        let mut stores = Stores::default();
        for (oid, kind) in [
            (1, Kind::Check),
            (1, Kind::Write),
            (2, Kind::Write),
            (2, Kind::Check),
            (3, Kind::Delete),
        ] {
            stores.begin(Oid(oid), PARTITION, kind);
        }
        let of = |kind| stores.of_kind(kind).map(|(oid, _)| oid.0).collect::<Vec<_>>();
        assert_eq!((of(Kind::Write), of(Kind::Delete)), (vec![1, 2], vec![3]));
        assert!(of(Kind::Check).is_empty());
    }

    #[test]
    fn changed_objects_keep_the_order_of_their_first_stores() {
        let mut stores = Stores::default();
        for (oid, kind) in [
            (5, Kind::Write),
            (9, Kind::Check),
            (3, Kind::Delete),
            (5, Kind::Write),
            (1, Kind::Write),
        ] {
            stores.begin(Oid(oid), PARTITION, kind);
        }
        assert_eq!(stores.changed(), [Oid(5), Oid(3), Oid(1)]);
    }
}
