//! Conflicts that the server resolves: on the worker where they are small, else on a thread that
//! may take its time.

use std::sync::Arc;

use crate::support::{CONFIG, Outcome, Session, start, start_with, transaction};
use bytes::Bytes;
use parking_lot::Mutex;
use zodium_disk::{MemoryDisk, SystemClock};
use zodium_engine::{Config, Merge, Resolver, VoteError};
use zodium_storage::Access;
use zodium_types::{Memory, Oid, Tid};

/// The most bytes of three revisions that are merged on a worker.
const WORKER_BYTES_MAX: usize = 16 << 10;

/// Takes the client's data, and notes how each conflict was resolved.
#[derive(Debug, Default)]
struct Ours(Mutex<Vec<Access>>);

impl Resolver for Ours {
    fn resolve(&self, _: &[u8], _: &[u8], new: &[u8], access: Access) -> Merge {
        self.0.lock().push(access);
        Merge::Resolved(new.to_vec())
    }
}

#[test]
fn a_worker_resolves_conflicts_up_to_a_size_and_leaves_larger_ones_to_another_thread() {
    let resolver = Arc::new(Ours::default());
    let config = Config { resolver: Some(Arc::<Ours>::clone(&resolver)), ..CONFIG };
    let storage = start_with(MemoryDisk::volatile(), Arc::new(SystemClock::new()), &config);
    let mut session = Session::new(&storage);
    // Sizes of the old, the committed and the new revision.
    let (third, rest) = (WORKER_BYTES_MAX / 3, WORKER_BYTES_MAX - 2 * (WORKER_BYTES_MAX / 3));
    for (oid, (sizes, expected)) in (1..).map(Oid).zip([
        ([10, 10, 10], Access::NonBlocking),
        ([third, third, rest], Access::NonBlocking),
        ([third + 1, third, rest], Access::Blocking),
        ([third, third + 1, rest], Access::Blocking),
        ([third, third, rest + 1], Access::Blocking),
    ]) {
        let mut serial = Tid::ZERO;
        let [old, committed, new] = sizes.map(|size| Bytes::from(vec![b'x'; size]));
        for data in [&old, &committed] {
            let mut transaction = transaction();
            transaction.store(oid, serial, data.clone());
            let tid = session.commit(transaction);
            serial = if serial == Tid::ZERO { tid } else { serial };
        }
        let mut transaction = transaction();
        transaction.store(oid, serial, new);
        let (number, voted) = session.vote(transaction);
        assert_eq!((voted.changed(), voted.resolved()), (&[oid][..], 1));
        session.finish(number, voted).unwrap();
        assert_eq!(*resolver.0.lock(), [expected], "{sizes:?}");
        resolver.0.lock().clear();
    }
    storage.close().unwrap();
}

#[test]
fn conflicts_are_resolved_as_far_as_memory_has_room_for_the_merged_data() {
    let config = Config { resolver: Some(Arc::new(Ours::default())), ..CONFIG };
    let storage = start_with(MemoryDisk::volatile(), Arc::new(SystemClock::new()), &config);
    let mut session = Session::new(&storage);
    let old = session.store(&[(1, "one"), (2, "two"), (3, "three")]);
    session.store(&[(1, "eins"), (2, "zwei"), (3, "drei")]);
    let memory = Memory::new(1 << 20);
    for objects in 2..=3 {
        let mut transaction = transaction();
        transaction.count_conflicts(&memory);
        for oid in 1..=objects {
            transaction.store(Oid(oid), old, vec![b'd'; 61_440].into());
        }
        match session.try_vote(&mut transaction) {
            Ok(Outcome::Voted(number, voted)) => {
                assert_eq!((objects, voted.resolved()), (2, 2));
                assert_eq!(memory.held_bytes() / 61_440, 2, "they are counted until the finish");
                storage.abort(number, Some(voted));
            }
            Err(VoteError::ManyConflicts { one }) => {
                assert_eq!((objects, one.data.len()), (3, 61_440))
            }
            _ => panic!("the server resolves or refuses them"),
        }
        assert_eq!(memory.held_bytes(), 0);
    }
    storage.close().unwrap();
}

#[test]
fn a_client_is_told_of_all_stores_to_resolve_and_of_nothing_else() {
    let storage = start(MemoryDisk::volatile());
    let mut session = Session::new(&storage);
    let old = session.store(&[(1, "one"), (2, "two"), (3, "three")]);
    session.store(&[(1, "eins"), (2, "zwei"), (3, "drei")]);
    let mut transaction = transaction();
    for oid in [1, 2] {
        transaction.store(Oid(oid), old, Bytes::from_static(b"new"));
    }
    // A client cannot resolve that. It is told so once the stores are resolved.
    transaction.read_current(Oid(3), old);
    let Ok(Outcome::Conflicts(number, found)) = session.try_vote(&mut transaction) else {
        panic!("all of it has changed")
    };
    let oids: Vec<_> = found.iter().map(|found| found.conflict.oid).collect();
    assert_eq!(oids, [Oid(1), Oid(2)]);
    storage.abort(number, None);
    storage.close().unwrap();
}

#[test]
fn nothing_is_merged_with_a_revision_that_the_client_did_not_see() {
    let resolver: Option<Arc<dyn Resolver>> = Some(Arc::new(Ours::default()));
    let config = Config { resolver, ..CONFIG };
    let storage = start_with(MemoryDisk::volatile(), Arc::new(SystemClock::new()), &config);
    let mut session = Session::new(&storage);
    let first = session.store(&[(1, "one")]);
    session.store(&[(1, "eins")]);
    let mut transaction = transaction();
    // Later than a revision that is there, which is in memory.
    transaction.store(Oid(1), first.next(), Bytes::from_static(b"new"));
    let Ok(Outcome::Conflicts(number, found)) = session.try_vote(&mut transaction) else {
        panic!("it has no revision of this serial")
    };
    assert_eq!(found[0].conflict.sent, first.next());
    storage.abort(number, None);
    storage.close().unwrap();
}
