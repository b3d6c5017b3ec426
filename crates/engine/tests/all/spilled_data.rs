//! Large transactions, whose data are in a spool file until the commit.

use crate::support::{Outcome, Session, assert_idle, start, text, transaction};
use bytes::Bytes;
use zodium_disk::MemoryDisk;
use zodium_engine::{Check, Database, Transaction, VoteError};
use zodium_storage::Access;
use zodium_types::{Memory, Oid, Tid};

fn store(transaction: &mut Transaction, oid: u64, serial: Tid, data: &'static str) {
    transaction.store(Oid(oid), serial, Bytes::from_static(data.as_bytes()));
}

/// Moves all data to the spool; fails if there are none in memory.
fn spill(database: &Database, transaction: &mut Transaction) {
    let spill = transaction.spill(0).expect("there are data in memory");
    transaction.spilled(database.run_spill(spill).unwrap());
}

#[test]
fn data_are_spilled_once_they_are_more_than_allowed_and_take_no_memory_then() {
    let database = start(MemoryDisk::volatile());
    let mut transaction = transaction();
    assert!(transaction.spill(0).is_none());
    store(&mut transaction, 1, Tid::ZERO, "0123456789");
    store(&mut transaction, 2, Tid::ZERO, "0123456789");
    assert!(transaction.spill(20).is_none());
    let memory_bytes = transaction.memory_bytes();
    let spill = transaction.spill(19).expect("that is more");
    transaction.spilled(database.run_spill(spill).unwrap());
    assert_eq!(transaction.memory_bytes(), memory_bytes - 20);
    assert_eq!(transaction.memory_bytes(), transaction.entries_bytes());
    store(&mut transaction, 3, Tid::ZERO, "0123456789");
    assert!(transaction.spill(10).is_none());
    assert!(transaction.spill(9).is_some());
    database.close().unwrap();
}

#[test]
fn spilled_data_are_committed_beside_those_in_memory() {
    let database = start(MemoryDisk::volatile());
    let mut session = Session::new(&database);
    let old = session.store(&[(9, "nine")]);
    let mut transaction = transaction();
    store(&mut transaction, 1, Tid::ZERO, "one");
    store(&mut transaction, 2, Tid::ZERO, "two");
    spill(&database, &mut transaction);
    store(&mut transaction, 3, Tid::ZERO, "three");
    spill(&database, &mut transaction);
    transaction.delete(Oid(9), old);
    store(&mut transaction, 4, Tid::ZERO, "four");
    session.commit(transaction);
    for (oid, data) in [(1, "one"), (2, "two"), (3, "three"), (4, "four")] {
        assert_eq!(text(&database, oid).as_deref(), Some(data));
    }
    assert_eq!(text(&database, 9), None);
    database.close().unwrap();
    assert_idle(&database);
}

#[test]
fn a_conflict_gives_back_spilled_data() {
    let database = start(MemoryDisk::volatile());
    let mut session = Session::new(&database);
    let old = session.store(&[(1, "a"), (2, "x")]);
    session.store(&[(1, "b")]);
    let mut transaction = transaction();
    store(&mut transaction, 1, old, "mine");
    spill(&database, &mut transaction);
    let number = session.lock(&transaction).unwrap();
    let checked = database.check(number, &transaction, Access::NonBlocking);
    assert!(matches!(checked, Ok(Check::WouldBlock)), "{checked:?}, without a look at the disk");
    let Outcome::Conflicts(number, found) = session.check(number, &transaction).unwrap() else {
        panic!("another client has changed it");
    };
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].conflict.oid, &found[0].data[..]), (Oid(1), &b"mine"[..]));
    database.abort(number, None);
    database.close().unwrap();
}

#[test]
fn conflicts_are_given_back_as_far_as_memory_has_room_for_their_data() {
    let database = start(MemoryDisk::volatile());
    let mut session = Session::new(&database);
    let old = session.store(&[(1, "a"), (2, "b"), (3, "c")]);
    session.store(&[(1, "x"), (2, "y"), (3, "z")]);
    let memory = Memory::new(1 << 20);
    for objects in 1..=3 {
        let mut transaction = transaction();
        transaction.count_conflicts(&memory);
        for oid in 1..=objects {
            transaction.store(Oid(oid), old, vec![b'd'; 61_440].into());
        }
        spill(&database, &mut transaction);
        let number = session.lock(&transaction).unwrap();
        let checked = database.check(number, &transaction, Access::Blocking);
        if objects < 3 {
            let Ok(Check::Conflicts(found)) = checked else { panic!("{checked:?}") };
            assert_eq!(found.len() as u64, objects);
            assert_eq!(memory.held_bytes() / 61_440, objects, "they are counted");
            drop(found);
            database.abort(number, None);
        } else {
            let Err(VoteError::ManyConflicts { one }) = checked else { panic!("{checked:?}") };
            assert_eq!((one.conflict.sent, one.data.len()), (old, 61_440));
        }
        assert_idle(&database);
        assert_eq!(memory.held_bytes(), 0);
    }
    database.close().unwrap();
}

#[test]
fn a_record_without_data_is_refused_in_memory_and_spilled() {
    let database = start(MemoryDisk::volatile());
    let mut session = Session::new(&database);
    for is_spilled in [false, true] {
        let mut transaction = transaction();
        store(&mut transaction, 1, Tid::ZERO, "");
        store(&mut transaction, 2, Tid::ZERO, "two");
        if is_spilled {
            spill(&database, &mut transaction);
        }
        let refused = session.try_vote(&mut transaction).err().unwrap();
        assert!(matches!(refused, VoteError::EmptyData { oid: Oid(1) }), "{refused:?}");
        assert_idle(&database);
    }
    database.close().unwrap();
}
