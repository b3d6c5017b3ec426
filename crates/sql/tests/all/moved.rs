//! Files that another program moves, removes or replaces while they are open, and what it may do.

use std::path::Path;
use std::process::Command;

use rusqlite::types::Value;
use zodium_sql::{NodeDatabase, NodeOptions, SqlStorage};
use zodium_storage::{StorageError, Write, WriteState};
use zodium_types::Tid;

use crate::support::{commit, current, data, options, prepare, rows};

/// Moves a file away, and puts a copy in its place if asked.
fn move_away(path: &Path, replaces: bool) -> std::path::PathBuf {
    let aside = path.with_extension("aside");
    std::fs::rename(path, &aside).unwrap();
    if replaces {
        std::fs::copy(&aside, path).unwrap();
    }
    aside
}

#[test]
fn nothing_is_committed_to_a_file_without_its_name() {
    for replaces in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("neo.sqlite");
        let storage = SqlStorage::open(&options(&path, 1)).unwrap();
        let tid = commit(&storage, vec![data(0, "kept")]);
        let aside = move_away(&path, replaces);

        let refused = prepare(&storage, vec![data(0, "refused")]).unwrap();
        let error = storage.commit(vec![(Tid(tid.0 + 1), refused)]).unwrap_err();
        assert!(matches!(error, StorageError::Changed(_)), "{error}");
        assert_eq!(storage.write_state(), WriteState::Failed);
        let error = storage.reopen().unwrap_err();
        assert!(matches!(error, StorageError::Changed(_)), "{error}");
        assert_eq!(current(&storage, 0).as_deref(), Some("kept"));

        std::fs::rename(&aside, &path).unwrap();
        storage.reopen().unwrap();
        assert_eq!(current(&storage, 0).as_deref(), Some("kept"));
        commit(&storage, vec![data(0, "later")]);
        assert_eq!(current(&storage, 0).as_deref(), Some("later"));
    }
}

/// Removes the log of a database.
fn remove_log(path: &Path) {
    std::fs::remove_file(path.with_extension("sqlite-wal")).unwrap();
}

#[test]
fn nothing_is_committed_to_a_log_without_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let link = folder.path().join("link.sqlite");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    std::fs::write(&path, b"").unwrap();
    for opened in [&path, &link] {
        let storage = SqlStorage::open(&options(opened, 1)).unwrap();
        let tid = commit(&storage, vec![data(0, "kept")]);
        remove_log(&path);
        // As a loader makes one that has no idle connection.
        std::fs::write(path.with_extension("sqlite-wal"), b"").unwrap();

        let refused = prepare(&storage, vec![data(0, "refused")]).unwrap();
        let error = storage.commit(vec![(Tid(tid.0 + 1), refused)]).unwrap_err();
        assert!(matches!(error, StorageError::Changed(_)), "{error}");
        assert!(error.to_string().contains("neo.sqlite-wal: the log"), "{error}");
        let error = storage.reopen().unwrap_err();
        assert!(matches!(error, StorageError::Changed(_)), "{error}");

        storage.close().unwrap();
        drop(storage);
        let storage = SqlStorage::open(&options(opened, 1)).unwrap();
        assert_eq!(current(&storage, 0).as_deref(), Some("kept"));
    }
}

/// What a script of SQLite does to the database as another process.
fn run_sqlite(path: &Path, script: &str) {
    let program = "import sqlite3, sys\nconnection = sqlite3.connect(sys.argv[1], \
        isolation_level=None)\nfor line in sys.argv[2].split(';'):\n  \
        connection.execute(line).fetchall()\nconnection.close()";
    let done = Command::new("python3").args(["-c", program]).arg(path).arg(script).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn what_sqlite_itself_does_to_a_log_is_no_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    for round in 0..2 {
        let storage = SqlStorage::open(&options(&path, 1)).unwrap();
        for script in [
            "SELECT COUNT(*) FROM obj",
            "PRAGMA wal_checkpoint(RESTART)",
            "PRAGMA wal_checkpoint(TRUNCATE)",
            "PRAGMA journal_size_limit = 0; PRAGMA wal_checkpoint(TRUNCATE)",
            "VACUUM",
            "CREATE TABLE other (x); DROP TABLE other",
        ] {
            commit(&storage, vec![data(round, script)]);
            run_sqlite(&path, script);
            commit(&storage, vec![data(round, "later")]);
            assert_eq!(current(&storage, round).as_deref(), Some("later"));
        }
        storage.close().unwrap();
        drop(storage);
        assert!(!path.with_extension("sqlite-wal").exists());
    }
}

#[test]
fn a_node_writes_nothing_to_a_file_without_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let (location, cluster) = (&(*path).into(), "test");
    let options = NodeOptions { location, cluster, keep_equal_data_once: false, room_bytes: 0 };
    let (database, _) = NodeDatabase::open(&options).unwrap();
    let write = || database.write(true, |database| database.set_backup_tid(Some(Tid(7))));
    write().unwrap();
    let aside = move_away(&path, false);
    let error = write().unwrap_err();
    assert!(error.to_string().contains("removed, renamed or replaced"), "{error}");
    std::fs::rename(&aside, &path).unwrap();
    write().unwrap();
    remove_log(&path);
    let error = write().unwrap_err();
    assert!(error.to_string().contains("neo.sqlite-wal: the log"), "{error}");
    drop(database);
    NodeDatabase::open(&options).unwrap();
    let expected = Value::Text("0000000000000007".to_owned());
    assert!(rows(&path, "config").iter().any(|row| row.contains(&expected)));
}

#[test]
fn what_another_process_has_committed_is_not_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let storage = SqlStorage::open(&options(&path, 1)).unwrap();
    let tid = commit(&storage, vec![data(0, "kept")]);
    // As a server in another network namespace does.
    run_sqlite(&path, "UPDATE trans SET tid = tid + 10; UPDATE obj SET tid = tid + 10");
    let other = rows(&path, "trans");

    let refused = prepare(&storage, vec![data(0, "refused")]).unwrap();
    let error = storage.commit(vec![(Tid(tid.0 + 20), refused)]).unwrap_err();
    assert!(matches!(error, StorageError::Changed(_)), "{error}");
    assert!(error.to_string().contains("another process"), "{error}");
    let error = storage.reopen().unwrap_err();
    assert!(matches!(error, StorageError::Changed(_)), "{error}");
    assert_eq!(rows(&path, "trans"), other);
}

#[test]
fn loads_read_no_file_that_was_put_in_the_place_of_the_open_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("neo.sqlite"), folder.path().join("other.sqlite"));
    for (path, text) in [(&path, "kept"), (&other, "other")] {
        commit(&SqlStorage::open(&options(path, 1)).unwrap(), vec![data(0, text)]);
    }
    for replaces in [false, true] {
        let storage = SqlStorage::open(&options(&path, 1)).unwrap();
        let aside = move_away(&path, false);
        if replaces {
            std::fs::copy(&other, &path).unwrap();
        }
        // More readers than there are connections.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert_eq!(current(&storage, 0).as_deref(), Some("kept"));
                    }
                });
            }
        });
        std::fs::rename(&aside, &path).unwrap();
    }
}
