//! Servers that share a storage, which decides about conflicts, tids and order.

use std::sync::Arc;

use bytes::Bytes;
use zodium_disk::{MemoryDisk, SystemClock};
use zodium_engine::commit::ConflictKind;
use zodium_engine::{Check, Config, Database, Merge, Resolver, Transaction, VoteError, VoteStart};
use zodium_storage::{Access, StorageError};
use zodium_types::{Oid, Tid};

use crate::support::shared_memory::SharedMemory;
use crate::support::{
    CONFIG, Outcome, Refusal, Session, assert_idle, start, text, transaction, transaction_with,
};

/// Merges texts by joining them.
#[derive(Debug)]
struct Join;

impl Resolver for Join {
    fn resolve(&self, _: &[u8], committed: &[u8], new: &[u8], _: Access) -> Merge {
        Merge::Resolved([committed, new].concat())
    }
}

fn serve(storage: SharedMemory, config: &Config) -> Arc<Database> {
    Database::start(Arc::new(storage), Arc::new(SystemClock::new()), config).unwrap()
}

fn two(config: &Config) -> [Arc<Database>; 2] {
    let mut doors = SharedMemory::doors(2).into_iter();
    [(); 2].map(|()| serve(doors.next().unwrap(), config))
}

fn storing(oid: u64, serial: Tid, data: &'static str) -> Transaction {
    let mut transaction = transaction();
    transaction.store(Oid(oid), serial, Bytes::from_static(data.as_bytes()));
    transaction
}

fn conflicts_of(outcome: Outcome) -> Vec<(ConflictKind, Oid, Tid, Tid)> {
    let Outcome::Conflicts(_, found) = outcome else { panic!("there is no conflict") };
    let found = found.iter().map(|found| found.conflict);
    found.map(|one| (one.kind, one.oid, one.committed, one.sent)).collect()
}

#[test]
fn all_servers_tell_their_clients_of_all_commits_in_one_order() {
    let [one, other] = two(&CONFIG);
    let (mut first, mut second) = (Session::new(&one), Session::new(&other));
    let mut tids = vec![first.store(&[(1, "a")])];
    tids.push(second.store(&[(1, "b"), (2, "b")]));
    tids.push(first.store(&[(2, "c")]));
    tids.push(second.store(&[(3, "d")]));
    for session in [&mut first, &mut second] {
        while session.poll().is_some() {}
        let seen: Vec<Tid> = session.seen.iter().map(|commit| commit.tid).collect();
        assert_eq!(seen, tids);
    }
    assert_eq!(first.seen[1].oids, [Oid(1), Oid(2)]);
    assert_eq!(text(&one, 2).as_deref(), Some("c"));
    assert_eq!((one.last_tid(), other.last_tid()), (tids[3], tids[3]));
    for database in [one, other] {
        assert_idle(&database);
        database.close().unwrap();
    }
}

#[test]
fn a_worker_does_not_wait_for_a_shared_storage() {
    let [one, _other] = two(&CONFIG);
    let (session, transaction) = (Session::new(&one), storing(1, Tid::ZERO, "a"));
    let (number, start) = session.begin(&transaction).unwrap();
    assert_eq!(start, VoteStart::Granted);
    let checked = one.check(number, &transaction, Access::NonBlocking);
    assert!(matches!(checked, Ok(Check::WouldBlock)), "{checked:?}");
    let checked = one.check(number, &transaction, Access::Blocking);
    let Ok(Check::Voted(voted)) = checked else { panic!("{checked:?}") };
    one.abort(number, Some(voted));
    assert_idle(&one);
}

#[test]
fn conflicts_with_clients_of_other_servers_are_found() {
    let [one, other] = two(&CONFIG);
    let (mut first, mut second) = (Session::new(&one), Session::new(&other));
    let old = first.store(&[(1, "a"), (2, "a")]);
    let new = second.store(&[(1, "b")]);
    let found = conflicts_of(first.try_vote(&mut storing(1, old, "c")).unwrap());
    assert_eq!(found, [(ConflictKind::Store, Oid(1), new, old)]);
    let mut reading = storing(2, old, "c");
    reading.read_current(Oid(1), old);
    let mut third = Session::new(&other);
    let found = conflicts_of(third.try_vote(&mut reading).unwrap());
    assert_eq!(found, [(ConflictKind::Read, Oid(1), new, old)]);
    let mut deleting = transaction();
    deleting.delete(Oid(1), old);
    let found = conflicts_of(third.try_vote(&mut deleting).unwrap());
    assert_eq!(found, [(ConflictKind::Delete, Oid(1), new, old)]);
    assert_idle(&other);
}

#[test]
fn client_that_resolves_keeps_the_locks_of_its_server() {
    let [one, other] = two(&CONFIG);
    let (mut first, mut second) = (Session::new(&one), Session::new(&other));
    let old = first.store(&[(1, "a")]);
    let new = second.store(&[(1, "b")]);
    let mut transaction = storing(1, old, "c");
    let Outcome::Conflicts(number, _) = first.try_vote(&mut transaction).unwrap() else { panic!() };
    let waiting = Session::new(&one);
    assert_eq!(waiting.begin(&storing(1, new, "later")).unwrap().1, VoteStart::Waiting);
    transaction.store(Oid(1), new, Bytes::from_static(b"merged"));
    assert!(one.vote_again(number, &transaction).unwrap());
    let Outcome::Voted(number, voted) = first.check(number, &transaction).unwrap() else {
        panic!()
    };
    first.finish(number, voted).unwrap();
    assert_eq!(text(&other, 1).as_deref(), Some("merged"));
}

#[test]
fn server_resolves_conflicts_over_the_revision_that_is_current() {
    let config = Config { resolver: Some(Arc::new(Join)), ..CONFIG };
    let [one, other] = two(&config);
    let (mut first, mut second) = (Session::new(&one), Session::new(&other));
    let old = first.store(&[(1, "a"), (2, "x")]);
    second.store(&[(1, "b")]);
    let mut transaction = storing(1, old, "c");
    transaction.store(Oid(2), old, Bytes::from_static(b"y"));
    let (number, voted) = first.vote(transaction);
    assert_eq!((voted.changed(), voted.resolved()), (&[Oid(1)][..], 1));
    first.finish(number, voted).unwrap();
    assert_eq!(text(&other, 1).as_deref(), Some("bc"));
    assert_eq!(text(&other, 2).as_deref(), Some("y"));
}

/// The first answer to a client whose conflicts are of several kinds.
#[test]
fn conflicts_of_stores_are_resolved_before_a_client_hears_of_others() {
    let config = Config { resolver: Some(Arc::new(Join)), ..CONFIG };
    let [one, other] = two(&config);
    let (mut first, mut second) = (Session::new(&one), Session::new(&other));
    let old = first.store(&[(1, "a"), (2, "x"), (3, "y")]);
    let new = second.store(&[(1, "b"), (2, "z"), (3, "z")]);
    let mut transaction = storing(3, old, "c");
    transaction.read_current(Oid(1), old);
    transaction.delete(Oid(2), old);
    let found = conflicts_of(first.try_vote(&mut transaction).unwrap());
    let (read, delete) = (ConflictKind::Read, ConflictKind::Delete);
    assert_eq!(found, [(read, Oid(1), new, old), (delete, Oid(2), new, old)]);
    assert_idle(&one);
}

#[test]
fn a_server_waits_for_the_commits_of_others_only_where_there_are_any() {
    let mut doors = SharedMemory::doors(1);
    let door = doors.remove(0);
    let fail = door.failing();
    let shared = serve(door, &CONFIG);
    assert!(shared.is_shared());
    shared.catch_up().unwrap();
    fail();
    assert!(matches!(shared.catch_up(), Err(StorageError::Io(_))));
    let alone = start(MemoryDisk::volatile());
    assert!(!alone.is_shared());
    alone.catch_up().unwrap();
}

#[test]
fn a_server_that_only_reads_what_others_write_does_not_wait_for_them() {
    let door = SharedMemory::doors(1).remove(0).read_only();
    door.failing()();
    let reading = serve(door, &CONFIG);
    assert!(!reading.is_shared());
    reading.catch_up().unwrap();
}

#[test]
fn undos_are_stored_over_the_revision_that_they_were_computed_from() {
    let [one, other] = two(&CONFIG);
    let (mut first, mut second) = (Session::new(&one), Session::new(&other));
    first.store(&[(1, "a")]);
    let undone = second.store(&[(1, "b")]);
    let mut undo = transaction();
    undo.undo(undone);
    let (number, voted) = first.vote(undo);
    assert_eq!(voted.changed(), [Oid(1)]);
    first.finish(number, voted).unwrap();
    assert_eq!(text(&other, 1).as_deref(), Some("a"));
}

#[test]
fn failed_finish_frees_the_locks_and_tells_its_client_alone() {
    let mut doors = SharedMemory::doors(1);
    let door = doors.remove(0);
    let fail = door.failing();
    let database = serve(door, &CONFIG);
    let (mut session, mut witness) = (Session::new(&database), Session::new(&database));
    let first = session.store(&[(1, "a")]);
    fail();
    let (number, voted) = session.vote(storing(1, first, "b"));
    assert!(matches!(session.finish(number, voted), Err(Refusal::Later(_))));
    assert_idle(&database);
    session.store(&[(1, "c")]);
    while witness.poll().is_some() {}
    assert_eq!(witness.seen.len(), 2);
    let (number, voted) = session.vote(storing(2, Tid::ZERO, "x"));
    database.abort(number, Some(voted));
    assert_idle(&database);
    database.close().unwrap();
}

#[test]
fn what_a_shared_storage_does_not_take_is_said() {
    let [one, _] = two(&CONFIG);
    let mut session = Session::new(&one);
    let mut copied = transaction_with(Some(Tid(77)));
    copied.restore(Oid(1), Tid(77), Some(Bytes::from_static(b"a")), None);
    let refused = session.try_vote(&mut copied).err().unwrap();
    assert!(
        matches!(&refused, VoteError::Storage(StorageError::Unsupported { what }) if what
            .contains("copied")),
        "{refused}"
    );
    assert_idle(&one);
}
