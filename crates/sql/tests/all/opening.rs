//! What is opened, and what is refused in which words.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use zodium_sql::{NodeDatabase, NodeOptions, SqlError, SqlOptions, SqlStorage};
use zodium_storage::{Access, Load, Read, Storage, StorageError, Write, WriteState};
use zodium_types::{Oid, Tid};

use crate::support::{commit, current, data, make_older, noise, options, pack, prepare, record};

fn existing(path: &Path) -> SqlOptions {
    SqlOptions { create: None, ..options(path, 1) }
}

fn refused(options: &SqlOptions) -> SqlError {
    let error = SqlStorage::open(options).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&options.location.to_string()), "{text}");
    error
}

fn execute(path: &Path, script: &str) {
    Connection::open(path).unwrap().execute_batch(script).unwrap();
}

fn in_folder(test: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    test(&folder.path().join("neo.sqlite"));
}

/// A database with one object.
fn with_database(test: impl FnOnce(&Path)) {
    in_folder(|path| {
        commit(&SqlStorage::open(&options(path, 2)).unwrap(), vec![data(0, "root")]);
        test(path);
    });
}

#[test]
fn missing_database_is_not_created_unasked() {
    in_folder(|path| {
        assert!(matches!(refused(&existing(path)), SqlError::Missing { .. }));
        let read_only = SqlOptions { read_only: true, ..options(path, 1) };
        assert!(matches!(refused(&read_only), SqlError::Missing { .. }));
        assert!(!path.exists());
    });
}

#[test]
fn other_files_are_refused_and_left_alone() {
    in_folder(|path| {
        let content = b"FS30 is the magic of a FileStorage".repeat(100);
        std::fs::write(path, &content).unwrap();
        assert!(matches!(refused(&options(path, 1)), SqlError::NotADatabase { .. }));
        assert_eq!(std::fs::read(path).unwrap(), content);
    });
    for script in ["CREATE TABLE users (name TEXT)", "CREATE TABLE config (key TEXT)"] {
        in_folder(|path| {
            execute(path, script);
            let before = std::fs::read(path).unwrap();
            assert!(matches!(refused(&options(path, 1)), SqlError::ForeignDatabase { .. }));
            assert_eq!(std::fs::read(path).unwrap(), before);
        });
    }
}

#[test]
fn later_schema_is_refused() {
    with_database(|path| {
        execute(path, "UPDATE config SET value = '5' WHERE name = 'version'");
        let error = refused(&existing(path));
        assert!(matches!(error, SqlError::TooNew { version: 5, known: 4, .. }), "{error}");
    });
}

#[test]
fn part_of_a_cluster_is_refused() {
    for (script, said) in [
        ("INSERT INTO pt VALUES (1, 2, -1, NULL)", "also on node 2"),
        ("UPDATE pt SET tid = 77 WHERE partition = 1", "partition 1 of 2 is not up to date"),
        ("DELETE FROM pt", "no partition table"),
        ("INSERT INTO config VALUES ('backup_tid', '00')", "backup cluster"),
        ("INSERT INTO config VALUES ('truncate_tid', '00')", "truncated"),
    ] {
        with_database(|path| {
            execute(path, script);
            let text = refused(&existing(path)).to_string();
            assert!(text.contains(said), "{text}");
        });
    }
}

#[test]
fn second_opener_is_refused_and_others_can_read() {
    with_database(|path| {
        let storage = SqlStorage::open(&existing(path)).unwrap();
        assert!(matches!(refused(&existing(path)), SqlError::InUse { .. }));
        commit(&storage, vec![data(1, "one")]);
        let reader = Connection::open(path).unwrap();
        let count = "SELECT COUNT(*) FROM obj";
        assert_eq!(reader.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap(), 2);
        drop(storage);
        SqlStorage::open(&existing(path)).unwrap();
    });
}

#[test]
fn a_node_waits_until_another_program_unlocks_its_database() {
    in_folder(|path| {
        let location = &path.into();
        let (cluster, keep_equal_data_once, room_bytes) = ("test", false, 0);
        let options = NodeOptions { location, cluster, keep_equal_data_once, room_bytes };
        let (database, _) = NodeDatabase::open(&options).unwrap();
        while_locked(path, || {
            database.write(true, |database| database.set_backup_tid(Some(Tid(7)))).unwrap();
        });
    });
}

/// Writes while another program has the database locked for longer than a statement waits.
fn while_locked(path: &Path, write: impl FnOnce()) {
    let other = Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (started, locked) = (Instant::now(), Duration::from_millis(5500));
    let unlocked = std::thread::spawn(move || {
        std::thread::sleep(locked);
        other.execute_batch("COMMIT").unwrap();
    });
    write();
    assert!(started.elapsed() >= locked);
    unlocked.join().unwrap();
}

#[test]
fn a_voted_transaction_waits_until_another_program_unlocks_the_database() {
    with_database(|path| {
        let storage = SqlStorage::open(&existing(path)).unwrap();
        while_locked(path, || {
            commit(&storage, vec![data(0, "later")]);
        });
        assert_eq!(current(&storage, 0).as_deref(), Some("later"));
    });
}

#[test]
fn read_only_storage_reads_and_changes_nothing() {
    with_database(|path| {
        commit(&SqlStorage::open(&existing(path)).unwrap(), vec![data(0, "again")]);
        let before = std::fs::read(path).unwrap();
        let read_only = SqlOptions { read_only: true, ..existing(path) };
        let storage = SqlStorage::open(&read_only).unwrap();
        assert_eq!(current(&storage, 0).as_deref(), Some("again"));
        zodium_storage_kit::read_only::writes_are_refused(&storage);
        storage.close().unwrap();
        drop(storage);
        assert_eq!(std::fs::read(path).unwrap(), before);
    });
}

#[test]
fn counters_are_read_again() {
    in_folder(|path| {
        let storage = SqlStorage::open(&options(path, 3)).unwrap();
        for oid in [0, 1, 2, 1, 100] {
            commit(&storage, vec![data(oid, "x")]);
        }
        let tid = commit(&storage, vec![record(2, zodium_storage::NewBody::Deleted)]);
        let found = (storage.last_tid(), storage.object_count());
        assert_eq!(found, (tid, 4));
        drop(storage);
        let gap = SqlOptions { new_oids_gap: 1000, ..existing(path) };
        let storage = SqlStorage::open(&gap).unwrap();
        assert_eq!((storage.last_tid(), storage.object_count()), found);
        assert_eq!(storage.new_oids(1), Some(1101..=1101));
    });
}

#[test]
fn damaged_pages_are_told_from_other_errors() {
    in_folder(|path| {
        let plain = SqlOptions { compress: false, ..options(path, 1) };
        let storage = SqlStorage::open(&plain).unwrap();
        for oid in 0..300 {
            commit(&storage, vec![data(oid, &format!("{oid}").repeat(500))]);
        }
        storage.close().unwrap();
        drop(storage);
        let mut bytes = std::fs::read(path).unwrap();
        // What was written last: pages of objects.
        let last = bytes.len() - 40 * 4096;
        bytes[last..].fill(0xa5);
        std::fs::write(path, &bytes).unwrap();
        let damaged = |error: &StorageError| matches!(error, StorageError::Corrupt(_));
        let storage = match SqlStorage::open(&existing(path)) {
            Ok(storage) => storage,
            Err(error) => {
                assert!(damaged(&error.into()));
                return;
            }
        };
        let loads = (0..300).map(|oid| storage.load_before(Oid(oid), Tid::MAX, Access::Blocking));
        let loads: Vec<_> = loads.collect();
        assert!(loads.iter().any(|load| load.as_ref().is_err_and(damaged)));
        assert!(loads.iter().all(|load| load.as_ref().err().is_none_or(damaged)));
        assert!(loads.iter().any(|load| matches!(load, Ok(Load::Revision(_)))));
    });
}

#[test]
fn damaged_data_are_told_of_their_object_only() {
    with_database(|path| {
        execute(path, "UPDATE data SET value = x'00'");
        let storage = SqlStorage::open(&existing(path)).unwrap();
        commit(&storage, vec![data(1, "one")]);
        let error = storage.load_before(Oid(0), Tid::MAX, Access::Blocking).unwrap_err();
        assert!(matches!(error, StorageError::Corrupt(_)), "{error}");
        assert!(error.to_string().contains("SHA-1"), "{error}");
        assert_eq!(current(&storage, 1).as_deref(), Some("one"));
    });
}

#[test]
fn quota_refuses_what_exceeds_it() {
    in_folder(|path| {
        let small = SqlOptions { quota_bytes: Some(180_000), ..options(path, 1) };
        let storage = SqlStorage::open(&small).unwrap();
        commit(&storage, vec![data(0, "root")]);
        let error = prepare(&storage, vec![noise(1, 9000)]).unwrap_err();
        assert!(matches!(error, StorageError::Quota { .. }), "{error}");
        assert!(matches!(storage.write_state(), WriteState::Full { .. }));
        commit(&storage, vec![data(1, "small")]);
        assert_eq!(storage.write_state(), WriteState::Writable);
    });
}

#[test]
fn votes_are_refused_when_those_before_them_take_all_room() {
    in_folder(|path| {
        let small = SqlOptions { quota_bytes: Some(400_000), ..options(path, 1) };
        let storage = SqlStorage::open(&small).unwrap();
        let first = prepare(&storage, vec![noise(1, 9000)]).unwrap();
        let error = prepare(&storage, vec![noise(2, 9000)]).unwrap_err();
        assert!(matches!(error, StorageError::Quota { .. }), "{error}");
        storage.abort(first);
        let third = prepare(&storage, vec![noise(3, 9000)]).unwrap();
        storage.commit(vec![(Tid(1000), third)]).unwrap();
        prepare(&storage, vec![data(4, "small")]).unwrap();
    });
}

#[test]
fn ids_beyond_signed_numbers_are_refused() {
    with_database(|path| {
        let storage = SqlStorage::open(&existing(path)).unwrap();
        let error = prepare(&storage, vec![data(1 << 63, "x")]).unwrap_err();
        assert!(matches!(error, StorageError::Unsupported { .. }), "{error}");
        assert_eq!(storage.write_state(), WriteState::Writable);
        let prepared = prepare(&storage, vec![data(1, "y")]).unwrap();
        let error = storage.commit(vec![(Tid(1 << 63), prepared)]).unwrap_err();
        assert!(matches!(error, StorageError::Unsupported { .. }), "{error}");
        let error = prepare(&storage, vec![data(1, "x")]).unwrap_err();
        assert!(matches!(error, StorageError::Failed(_)), "{error}");
        assert_eq!(storage.write_state(), WriteState::Failed);
        storage.reopen().unwrap();
        commit(&storage, vec![data(1, "x")]);
        assert_eq!((current(&storage, 0), current(&storage, 1 << 63)), (Some("root".into()), None));
    });
}

#[test]
fn data_that_no_row_holds_are_refused_at_the_vote() {
    in_folder(|path| {
        // Not even those that would fit once they are compressed: a load has the same limit.
        let storage = SqlStorage::open(&options(path, 1)).unwrap();
        let long = record(1, zodium_storage::NewBody::Data(vec![0; 1_000_000_000].into()));
        let error = prepare(&storage, vec![data(2, "x"), long]).unwrap_err();
        assert!(matches!(error, StorageError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("has 1000000000 bytes, a row"), "{error}");
        assert_eq!(storage.write_state(), WriteState::Writable);
        commit(&storage, vec![data(2, "x")]);
    });
}

#[test]
fn database_that_neo_packed_keeps_its_undos_safe() {
    with_database(|path| {
        let storage = SqlStorage::open(&existing(path)).unwrap();
        let first = commit(&storage, vec![data(1, "a"), data(3, "a")]);
        let second = commit(&storage, vec![data(1, "b")]);
        let third = commit(&storage, vec![data(3, "c")]);
        drop(storage);
        // A partial order of a cluster: of object 1, up to its second revision.
        let script = "INSERT INTO pack VALUES (7, 1, 1, x'0000000000000001', TID)";
        execute(path, &script.replace("TID", &second.0.to_string()));
        execute(path, &format!("DELETE FROM obj WHERE oid = 1 AND tid = {}", first.0));
        let storage = SqlStorage::open(&existing(path)).unwrap();
        let undo = storage.undo().unwrap();
        for packed in [first, second] {
            let refused = undo.records_to_undo(packed);
            assert!(matches!(refused, Err(StorageError::NotUndoable { .. })), "{refused:?}");
        }
        assert_eq!(undo.records_to_undo(third).unwrap()[0].previous, Some(first));
        pack(&storage, third, false);
        assert!(undo.records_to_undo(third).is_err());
    });
}

#[test]
fn pack_that_frees_nothing_ends_undo_all_the_same() {
    with_database(|path| {
        let storage = SqlStorage::open(&existing(path)).unwrap();
        let first = commit(&storage, vec![data(1, "a")]);
        let second = commit(&storage, vec![data(2, "b")]);
        assert_eq!(pack(&storage, first, false), None);
        let undo = storage.undo().unwrap();
        assert!(undo.records_to_undo(first).is_err() && undo.records_to_undo(second).is_ok());
        let mut log = Vec::new();
        undo.undo_log(&mut |transaction| {
            log.push(transaction.tid);
            true
        })
        .unwrap();
        assert_eq!(log, [second]);
    });
}

/// Opens a database in vain, and looks whether it is as before.
fn assert_left_alone<T: std::fmt::Debug>(
    path: &Path,
    open: impl FnOnce() -> Result<T, SqlError>,
) -> SqlError {
    let before = std::fs::read(path).unwrap();
    let error = open().unwrap_err();
    assert_eq!(std::fs::read(path).unwrap(), before);
    error
}

#[test]
fn a_refused_database_is_left_as_it_is() {
    for version in 0..=4 {
        with_database(|path| {
            make_older(path, version);
            // Not the journal that this program sets.
            execute(path, "PRAGMA journal_mode = DELETE");
            let other = SqlOptions { cluster: Some("other".to_owned()), ..existing(path) };
            let error = assert_left_alone(path, || SqlStorage::open(&other));
            assert!(matches!(error, SqlError::OtherCluster { .. }), "{error}");
            let error = assert_left_alone(path, || {
                let (location, cluster) = (&path.into(), "other");
                let (keep_equal_data_once, room_bytes) = (false, 0);
                NodeDatabase::open(&NodeOptions {
                    location,
                    cluster,
                    keep_equal_data_once,
                    room_bytes,
                })
            });
            assert!(matches!(error, SqlError::OtherCluster { .. }), "{error}");
            let partition = if version < 3 { "rid" } else { "partition" };
            execute(path, &format!("UPDATE pt SET nid = 7 WHERE {partition} = 1"));
            let error = assert_left_alone(path, || SqlStorage::open(&existing(path)));
            assert!(matches!(error, SqlError::NotWhole { .. }), "{error}");
        });
    }
}
