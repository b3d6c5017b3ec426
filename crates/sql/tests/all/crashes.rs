//! What is on disk at any moment, and how votes of a NEO node survive a crash.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use zodium_sql::{Database, OpenDatabase, SqlOptions, SqlStorage, StoredData, VotedRecord};
use zodium_storage::{NewBody, Read, Storage, Write};
use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::support::{commit, current, data, options, pack, prepare, record, rows};

/// Copies a database that is open, with its log: what a crash would leave.
fn crashed(path: &Path, name: &str) -> PathBuf {
    let copy = path.with_file_name(name);
    std::fs::copy(path, &copy).unwrap();
    if log(path).exists() {
        std::fs::copy(log(path), log(&copy)).unwrap();
    }
    copy
}

fn log(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-wal", path.display()))
}

#[test]
fn what_was_acknowledged_is_in_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let storage = SqlStorage::open(&options(&path, 3)).unwrap();
    for n in 0..40_u64 {
        let batch =
            (0..3).map(|m| prepare(&storage, vec![data(n * 3 + m, "x".repeat(2000).as_str())]));
        let tid = storage.last_tid().0 + 3;
        let batch = (tid..).map(Tid).zip(batch.map(Result::unwrap)).collect();
        let committed = storage.commit(batch).unwrap();
        if n % 4 == 0 {
            let copy = crashed(&path, &format!("copy{n}"));
            let other = SqlOptions { create: None, ..options(&copy, 1) };
            let other = SqlStorage::open(&other).unwrap();
            assert_eq!(other.last_tid(), committed[2].tid);
            assert_eq!(other.object_count(), (n + 1) * 3);
            assert_eq!(current(&other, n * 3 + 2), Some("x".repeat(2000)));
        }
    }
}

#[test]
fn a_commit_whose_sync_failed_is_not_in_the_log_after_the_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let storage = SqlStorage::open(&options(&path, 1)).unwrap();
    commit(&storage, vec![data(1, "kept")]);
    let holds = |name: &str| {
        let connection = Connection::open(crashed(&path, name)).unwrap();
        let find = "SELECT COUNT(*) FROM config WHERE name = 'refused'";
        connection.query_row(find, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    // All of a transaction is behind what was acknowledged, and SQLite has given it up.
    let twin = crashed(&path, "twin.sqlite");
    let connection = Connection::open(&twin).unwrap();
    connection.execute_batch("INSERT INTO config VALUES ('refused', '')").unwrap();
    std::fs::copy(log(&twin), log(&path)).unwrap();
    assert_eq!(holds("before.sqlite"), 1);
    storage.reopen().unwrap();
    assert_eq!(holds("after.sqlite"), 0);
    let again = SqlOptions { create: None, ..options(&crashed(&path, "again.sqlite"), 1) };
    let again = SqlStorage::open(&again).unwrap();
    assert_eq!(current(&again, 1).as_deref(), Some("kept"));
}

#[test]
fn data_of_a_prepared_undo_survive_a_pack() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let storage = SqlStorage::open(&options(&path, 1)).unwrap();
    let first = commit(&storage, vec![data(1, "first")]);
    commit(&storage, vec![data(1, "second")]);
    let kept = prepare(&storage, vec![record(1, NewBody::SameAs(first))]).unwrap();
    let given_up = prepare(&storage, vec![record(1, NewBody::SameAs(first))]).unwrap();
    assert!(pack(&storage, Tid::MAX, false).is_some());
    storage.abort(given_up);
    let tid = Tid(storage.last_tid().0 + 1);
    storage.commit(vec![(tid, kept)]).unwrap();
    assert_eq!(current(&storage, 1).as_deref(), Some("first"));
    // It has data of its own now: what it was the same as is gone.
    assert_eq!(storage.record(Oid(1), tid).unwrap().unwrap().data_tid, tid);
    commit(&storage, vec![data(1, "third")]);
    assert!(pack(&storage, Tid::MAX, false).is_some());
    assert_eq!(rows(&path, "data").len(), 1);
}

#[test]
fn a_log_that_a_removed_database_left_behind_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let storage = SqlStorage::open(&options(&path, 1)).unwrap();
    commit(&storage, vec![data(1, "removed")]);
    let left = crashed(&path, "left.sqlite");
    assert!(folder.path().join("left.sqlite-wal").exists());
    std::fs::remove_file(&left).unwrap();
    let anew = SqlStorage::open(&options(&left, 1)).unwrap();
    assert_eq!((anew.object_count(), anew.last_tid()), (0, Tid::ZERO));
}

fn open_database(path: &Path) -> Database {
    let location = &path.into();
    let (create, cluster, read_only) = (None, None, false);
    Database::open(&OpenDatabase { location, create, cluster, read_only }).unwrap()
}

#[test]
fn locked_transactions_are_committed_after_a_crash_and_voted_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    drop(SqlStorage::open(&options(&path, 2)).unwrap());
    let database = open_database(&path);
    let vote = |ttid: u64, oid: u64, text: &[u8]| {
        let metadata = TransactionMetadata { user: b"u".to_vec(), ..Default::default() };
        let voted = database.write(0, |writer| {
            let data_id = Some(writer.store(Oid(oid), &StoredData::compress(text))?);
            let record = VotedRecord { oid: Oid(oid), data_id, value_tid: None };
            writer.vote(Tid(ttid), &[record], Some((&[Oid(oid)], &metadata)))
        });
        voted.unwrap();
    };
    vote(1000, 1, b"unlocked");
    vote(1002, 2, b"locked");
    vote(1004, 3, b"voted");
    vote(1006, 4, b"aborted");
    database.write(0, |writer| writer.lock(Tid(1000), Tid(2000))).unwrap();
    database.write(0, |writer| writer.unlock(Tid(1000), Tid(2000))).unwrap();
    database.write(0, |writer| writer.lock(Tid(1002), Tid(2002))).unwrap();
    database.write(0, |writer| writer.abort(Tid(1006))).unwrap();
    let found = database.unfinished().unwrap();
    assert_eq!(found, [(Tid(1002), Some(Tid(2002))), (Tid(1004), None)]);
    assert_eq!(rows(&path, "data").len(), 3);
    let copy = crashed(&path, "copy.sqlite");
    let database = open_database(&copy);
    assert!(database.unfinished().unwrap().is_empty());
    for (ttid, oid, tid) in [(1000, 1, Some(2000)), (1002, 2, Some(2002)), (1004, 3, None)] {
        let tid = tid.map(Tid);
        assert_eq!(database.final_tid(Tid(ttid)).unwrap(), tid);
        let found = database.load_before(Oid(oid), Tid::MAX).unwrap();
        assert_eq!(found.map(|row| row.serial), tid);
    }
    assert_eq!(rows(&copy, "data").len(), 2);
    assert!(rows(&copy, "tobj").is_empty() && rows(&copy, "ttrans").is_empty());
}

#[test]
fn pack_that_is_cancelled_on_its_way_leaves_a_sound_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let storage = SqlStorage::open(&options(&path, 1)).unwrap();
    for n in 0..2 {
        let all = (0..1000).map(|oid| data(oid, &format!("{n}"))).collect();
        commit(&storage, all);
    }
    let cancelled = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let progress = |_, done: u64, _: u64| {
        cancelled.store(done >= 400, std::sync::atomic::Ordering::Relaxed);
    };
    let pack_options = zodium_storage::PackOptions {
        progress: &progress,
        packed: &|_| panic!("it is not packed"),
        ..zodium_storage::PackOptions::new(&cancelled)
    };
    let refused = storage.packing().unwrap().pack(Tid::MAX, &pack_options);
    assert!(matches!(refused, Err(zodium_storage::StorageError::PackCancelled(_))));
    // Of some objects the first revision is gone: the second transaction is not undone any more.
    assert!(storage.undo().unwrap().records_to_undo(storage.last_tid()).is_err());
    assert!((0..1000).all(|oid| current(&storage, oid).as_deref() == Some("1")));
    assert!(pack(&storage, Tid::MAX, false).is_some());
    assert_eq!((rows(&path, "obj").len(), rows(&path, "data").len()), (1000, 1000));
    assert_eq!(storage.object_count(), 1000);
}
