//! Locks that are kept for a client that met a conflict, while the log writer's thread runs.

use std::sync::Arc;

use bytes::Bytes;
use zodium_disk::MemoryDisk;
use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Database, Transaction, VoteStart};
use zodium_types::{Oid, Tid};

use crate::support::{Outcome, Session, assert_idle, start, transaction};

fn store(serial: Tid) -> Transaction {
    let mut transaction = transaction();
    transaction.store(Oid(1), serial, Bytes::from_static(b"data"));
    transaction
}

/// A storage whose object has this serial, a session whose locks of it are kept after a conflict,
/// with the number of its vote, and one that waits for them.
fn reserved() -> (Arc<Database>, Tid, Session, TransactionNumber, Session, TransactionNumber) {
    let storage = start(MemoryDisk::new());
    let [mut refused, waiting] = [(); 2].map(|()| Session::new(&storage));
    let tid = refused.commit(store(Tid::ZERO));
    let Ok(Outcome::Conflicts(number, _)) = refused.try_vote(&mut store(Tid::ZERO)) else {
        panic!("the object was created before")
    };
    let (waits, start) = waiting.begin(&store(tid)).unwrap();
    assert_eq!(start, VoteStart::Waiting);
    assert!(storage.reserve(number));
    (storage, tid, refused, number, waiting, waits)
}

#[test]
fn a_reservation_ends_by_itself_while_nothing_else_happens() {
    let (storage, tid, _refused, number, mut waiting, waits) = reserved();
    waiting.wait_granted(waits);
    assert!(!storage.resume_vote(number, &store(tid)), "it is over");
    storage.abort(waits, None);
    storage.close().unwrap();
    assert_idle(&storage);
}

#[test]
fn reserved_locks_serve_the_next_transaction_before_those_that_wait() {
    let (storage, tid, mut refused, number, mut waiting, waits) = reserved();
    let next = store(tid);
    assert!(storage.resume_vote(number, &next));
    let Ok(Outcome::Voted(number, voted)) = refused.check(number, &next) else {
        panic!("it knows the current revision")
    };
    refused.finish(number, voted).unwrap();
    waiting.wait_granted(waits);
    storage.abort(waits, None);
    storage.close().unwrap();
    assert_idle(&storage);
}

#[test]
fn reserved_locks_are_free_when_the_next_transaction_needs_others() {
    let (storage, tid, _refused, number, mut waiting, waits) = reserved();
    let mut other = store(tid);
    other.store(Oid(2), Tid::ZERO, Bytes::from_static(b"data"));
    assert!(!storage.resume_vote(number, &other));
    waiting.wait_granted(waits);
    storage.abort(waits, None);
    storage.close().unwrap();
    assert_idle(&storage);
}

#[test]
fn a_transaction_that_undoes_gets_no_reserved_locks() {
    let (storage, tid, _refused, number, mut waiting, waits) = reserved();
    let mut undo = transaction();
    undo.undo(tid);
    assert!(!storage.resume_vote(number, &undo), "its objects are not known yet");
    waiting.wait_granted(waits);
    storage.abort(waits, None);
    storage.close().unwrap();
    assert_idle(&storage);
}
