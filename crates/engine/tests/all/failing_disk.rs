//! A write or sync fails while sessions commit.
//!
//! From then on no commit is acknowledged. Pending finishes fail, waiting transactions get their
//! locks and are refused, and later votes are refused at once. Reads go on. Acknowledged commits
//! survive a restart, even after a power cut.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use crate::support::{
    Outcome, Refusal, Session, assert_idle, load, open_file, start, text, transaction,
};
use bytes::Bytes;
use zodium_disk::{FaultyDisk, MemoryDisk, Operation};
use zodium_engine::commit::CommitError;
use zodium_engine::{Database, Notice, VoteError, VoteStart};
use zodium_filestorage::OpenOptions;
use zodium_storage::StorageError;
use zodium_types::{Oid, Tid};

const SESSIONS: u64 = 4;

#[test]
fn nothing_is_acknowledged_after_a_failed_write_or_sync_and_nothing_before_is_lost() {
    for operation in [Operation::Write, Operation::Sync] {
        for nth in [1, 2, 3, 5, 8, 20, 50] {
            let disk = FaultyDisk::new(MemoryDisk::new());
            let storage = start(disk.clone());
            disk.fail(operation, nth, ErrorKind::Other);
            let sessions: Vec<_> = (1..=SESSIONS)
                .map(|number| {
                    let session = Session::new(&storage);
                    thread::spawn(move || commit_until_refused(session, number))
                })
                .collect();
            let mut acknowledged = BTreeMap::new();
            for session in sessions {
                acknowledged.extend(session.join().unwrap());
            }
            assert!(disk.has_failed());
            let syncs = disk.count(Operation::Sync);
            check_acknowledged(&storage, &acknowledged);
            let mut session = Session::new(&storage);
            let mut late = transaction();
            late.store(Oid(99), Tid::ZERO, Bytes::from_static(b"late"));
            assert!(matches!(session.try_vote(&mut late), Err(VoteError::Commit(_))));
            assert!(storage.commit_status().failed);
            // No failed sync is tried again.
            assert_eq!(disk.count(Operation::Sync), syncs);
            storage.close().unwrap();
            assert_idle(&storage);
            for crashed in [disk.files().after_power_cut(), disk.files().after_kill()] {
                let reopened = start(crashed);
                check_acknowledged(&reopened, &acknowledged);
                Session::new(&reopened).store(&[(100, "works again")]);
                reopened.close().unwrap();
            }
        }
    }
}

/// Writes an object of its own and one that all write; what was acknowledged.
fn commit_until_refused(mut session: Session, number: u64) -> BTreeMap<Tid, u64> {
    let mut acknowledged = BTreeMap::new();
    loop {
        let mut transaction = transaction();
        for oid in [number, SESSIONS + 1] {
            let serial = load(&session.storage, oid, Tid::MAX).map_or(Tid::ZERO, |(_, tid)| tid);
            transaction.store(Oid(oid), serial, Bytes::from_static(b"data"));
        }
        match session.try_vote(&mut transaction) {
            Ok(Outcome::Voted(vote, voted)) => match session.finish(vote, voted) {
                Ok(tid) => {
                    acknowledged.insert(tid, number);
                }
                Err(Refusal::AtOnce(CommitError::StorageFailed) | Refusal::Later(_)) => break,
                Err(other) => panic!("{other:?}"),
            },
            Ok(Outcome::Conflicts(vote, _)) => session.storage.abort(vote, None),
            Err(VoteError::Commit(CommitError::StorageFailed))
            | Err(VoteError::Storage(StorageError::Failed { .. })) => break,
            Err(other) => panic!("{other}"),
        }
    }
    // A commit that a session is told of was written before the failure.
    while session.poll().is_some() {}
    acknowledged
}

fn check_acknowledged(storage: &Database, acknowledged: &BTreeMap<Tid, u64>) {
    for (tid, number) in acknowledged {
        for oid in [*number, SESSIONS + 1] {
            let data = storage.reader().load_serial(Oid(oid), *tid).unwrap();
            assert_eq!(data.as_deref(), Some(b"data".as_slice()), "{oid} of {tid}");
        }
    }
}

#[test]
fn all_who_wait_are_told_of_the_failure() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = start(disk.clone());
    let mut session = Session::new(&storage);
    session.store(&[(1, "first")]);
    let serial = storage.last_tid();

    // The sync of the first finish is held up until all sessions wait for something, then it fails.
    let (all_wait, go_on) = mpsc::channel();
    disk.before_next(Operation::Sync, move || go_on.recv().unwrap());
    disk.fail(Operation::Sync, 1, ErrorKind::Other);
    let store = |oid: u64, serial| {
        let mut transaction = transaction();
        transaction.store(Oid(oid), serial, Bytes::from_static(b"second"));
        transaction
    };
    let (being_written, voted) = session.vote(store(1, serial));
    storage.finish(being_written, voted).unwrap();
    let (asked, asked_voted) = session.vote(store(2, Tid::ZERO));
    let (only_voted, only_voted_voted) = session.vote(store(3, Tid::ZERO));
    let wanting = store(1, serial);
    let (waiting, start) = session.begin(&wanting).unwrap();
    assert_eq!(start, VoteStart::Waiting);
    while storage.commit_status().writing == 0 {
        thread::yield_now();
    }
    storage.finish(asked, asked_voted).unwrap();
    all_wait.send(()).unwrap();

    for expected in [being_written, asked] {
        match session.next() {
            Notice::Failed(number, error) => {
                assert_eq!(number, expected);
                assert!(error.to_string().contains("sync failed"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    session.wait_granted(waiting);
    assert!(session.check(waiting, &wanting).is_err());
    let refused = session.finish(only_voted, only_voted_voted);
    assert!(matches!(refused, Err(Refusal::AtOnce(CommitError::StorageFailed))));
    assert_idle(&storage);
    assert_eq!(text(&storage, 1).as_deref(), Some("first"));
    assert_eq!(text(&storage, 2), None);
    storage.close().unwrap();
}

#[test]
fn full_disk_refuses_votes_until_there_is_room() {
    let disk = MemoryDisk::with_capacity(4 << 20);
    let storage = start(disk.clone());
    let mut session = Session::new(&storage);
    session.store(&[(1, "first")]);
    let mut large = transaction();
    large.store(Oid(2), Tid::ZERO, vec![7; 4 << 20].into());
    match session.try_vote(&mut large).err() {
        Some(VoteError::Storage(StorageError::Full { bytes, .. })) => assert!(bytes > 4 << 20),
        other => panic!("{other:?}"),
    }
    session.store(&[(1, "second")]);
    disk.set_capacity(16 << 20);
    session.commit(large);
    assert!(load(&storage, 2, Tid::MAX).is_some());
    storage.close().unwrap();
    assert_idle(&storage);
}

#[test]
fn reader_of_a_file_is_refused_at_the_vote() {
    let disk = MemoryDisk::new();
    drop(open_file(disk.clone()));
    let options = OpenOptions { read_only: true, create: false, ..OpenOptions::new("Data.fs") };
    let file = zodium_filestorage::FileStorage::open(Arc::new(disk), &options).unwrap();
    let clock = Arc::new(zodium_disk::SystemClock::new());
    let storage = Database::start(Arc::new(file), clock, &crate::support::CONFIG).unwrap();
    let mut new = transaction();
    new.store(Oid(1), Tid::ZERO, Bytes::from_static(b"new"));
    let refused = Session::new(&storage).try_vote(&mut new).err();
    assert!(matches!(refused, Some(VoteError::Storage(StorageError::ReadOnly { .. }))));
    assert_idle(&storage);
    storage.close().unwrap();
}
