//! A server that only reads a storage, which another server writes to.

use std::sync::Arc;

use crate::support::{CONFIG, Session, text, transaction};
use zodium_disk::SystemClock;
use zodium_engine::{Database, VoteError};
use zodium_memorystorage::MemoryStorage;
use zodium_storage::{StorageError, WriteState};
use zodium_types::Oid;

fn serve(storage: MemoryStorage) -> Arc<Database> {
    Database::start(Arc::new(storage), Arc::new(SystemClock::new()), &CONFIG).unwrap()
}

#[test]
fn commits_of_the_writer_reach_clients_of_the_reader() {
    let written = MemoryStorage::new();
    let reader = written.reader();
    let writer = serve(written);
    let mut writing = Session::new(&writer);
    let first = writing.store(&[(1, "a")]);
    let following = serve(reader);
    assert_eq!(following.last_tid(), first);
    let (since, mut reading) = Session::subscribed(&following);
    assert_eq!(since, first);
    let second = writing.store(&[(1, "b"), (2, "b")]);
    let third = writing.store(&[(2, "c")]);
    // They are told before the writer's own client is.
    while reading.poll().is_some() {}
    let seen: Vec<_> = reading.seen.iter().map(|one| (one.tid, one.oids.clone())).collect();
    assert_eq!(seen, [(second, vec![Oid(1), Oid(2)]), (third, vec![Oid(2)])]);
    assert_eq!(text(&following, 2).as_deref(), Some("c"));
    assert_eq!(following.last_tid(), third);
    assert_eq!(following.subscribers().recently_changed(second, third), Some(vec![Oid(2)]));
    following.close().unwrap();
    writing.store(&[(3, "after the reader has gone")]);
    writer.close().unwrap();
}

#[test]
fn reader_refuses_to_write() {
    let written = MemoryStorage::new();
    let following = serve(written.reader());
    assert_eq!(following.write_state(), WriteState::ReadOnly);
    let session = Session::new(&following);
    let mut transaction = transaction();
    transaction.store(Oid(1), zodium_types::Tid::ZERO, "x".into());
    let (number, _) = session.begin(&transaction).unwrap();
    let refused = session.check(number, &transaction).err().unwrap();
    assert!(matches!(refused, VoteError::Storage(StorageError::ReadOnly(_))), "{refused}");
    following.close().unwrap();
}
