//! Files that another program moves, removes or replaces while they are open, and what it may do.

use std::path::Path;
use std::process::Command;

use rusqlite::types::Value;
use zodium_sql::{NodeDatabase, NodeOptions, SqlError, SqlOptions, SqlStorage};
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

/// Puts a backup with `restored` over an open database with `later`; gives the bytes of the backup.
fn restore_over_open(path: &Path) -> (SqlStorage, std::path::PathBuf, Vec<u8>) {
    let backup = path.with_extension("backup");
    let storage = SqlStorage::open(&options(path, 1)).unwrap();
    commit(&storage, vec![data(0, "restored")]);
    storage.close().unwrap();
    std::fs::copy(path, &backup).unwrap();
    commit(&storage, vec![data(0, "later")]);
    let aside = path.with_extension("aside");
    std::fs::rename(path, &aside).unwrap();
    std::fs::rename(&backup, path).unwrap();
    let restored = std::fs::read(path).unwrap();
    (storage, aside, restored)
}

#[test]
fn a_backup_that_is_put_in_the_place_of_an_open_file_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    for name in ["neo.sqlite-wal.replaced", "neo.sqlite-wal.replaced.1"] {
        let (storage, aside, restored) = restore_over_open(&path);
        assert_eq!(current(&storage, 0).as_deref(), Some("later"));
        let error = storage.close().unwrap_err();
        assert!(matches!(error, StorageError::Changed(_)), "{error}");
        assert!(error.to_string().contains(&format!("{name},")), "{error}");
        assert_eq!(current(&storage, 0).as_deref(), Some("later"));
        drop(storage);
        assert_eq!(std::fs::read(&path).unwrap(), restored);
        assert!(folder.path().join(name).metadata().unwrap().len() > 0);
        for (path, text) in [(&path, "restored"), (&aside, "later")] {
            let storage = SqlStorage::open(&options(path, 1)).unwrap();
            assert_eq!(current(&storage, 0).as_deref(), Some(text));
        }
    }
}

#[test]
fn a_file_is_not_opened_beside_the_log_of_a_server_that_has_an_earlier_one_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let (storage, aside, restored) = restore_over_open(&path);
    for read_only in [false, true] {
        let error = SqlStorage::open(&SqlOptions { read_only, ..options(&path, 1) }).err().unwrap();
        assert!(matches!(error, SqlError::LogInUse { .. }), "{error}");
        assert!(error.to_string().contains("neo.sqlite-wal, is in use"), "{error}");
    }
    assert_eq!(current(&storage, 0).as_deref(), Some("later"));
    storage.close().unwrap_err();
    drop(storage);
    assert_eq!(std::fs::read(&path).unwrap(), restored);
    for (path, text) in [(&path, "restored"), (&aside, "later")] {
        let storage = SqlStorage::open(&options(path, 1)).unwrap();
        assert_eq!(current(&storage, 0).as_deref(), Some(text));
    }
}

#[test]
fn the_log_of_a_file_that_was_replaced_by_a_copy_of_itself_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let log = path.with_extension("sqlite-wal");
    let storage = SqlStorage::open(&options(&path, 1)).unwrap();
    commit(&storage, vec![data(0, "kept")]);
    std::fs::remove_file(move_away(&path, true)).unwrap();
    storage.close().unwrap_err();
    drop(storage);
    std::fs::rename(path.with_extension("sqlite-wal.replaced"), log).unwrap();
    let storage = SqlStorage::open(&options(&path, 1)).unwrap();
    assert_eq!(current(&storage, 0).as_deref(), Some("kept"));
}

#[test]
fn a_log_that_was_moved_with_its_file_stays_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let [path, aside] = ["neo.sqlite", "aside.sqlite"].map(|name| folder.path().join(name));
    let storage = SqlStorage::open(&options(&path, 1)).unwrap();
    commit(&storage, vec![data(0, "kept")]);
    for extension in ["sqlite", "sqlite-wal", "sqlite-shm"] {
        std::fs::rename(path.with_extension(extension), aside.with_extension(extension)).unwrap();
    }
    storage.close().unwrap();
    drop(storage);
    assert!(!path.with_extension("sqlite-wal.replaced").exists());
    let storage = SqlStorage::open(&options(&aside, 1)).unwrap();
    assert_eq!(current(&storage, 0).as_deref(), Some("kept"));
}

#[test]
fn a_log_stays_beside_its_file_when_a_link_leads_to_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let [path, other, link] =
        ["neo.sqlite", "other.sqlite", "link.sqlite"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    std::fs::write(&path, b"").unwrap();
    std::fs::write(&other, b"").unwrap();
    let storage = SqlStorage::open(&options(&link, 1)).unwrap();
    commit(&storage, vec![data(0, "kept")]);
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    storage.close().unwrap();
    drop(storage);
    assert!(!path.with_extension("sqlite-wal.replaced").exists());
    let storage = SqlStorage::open(&options(&path, 1)).unwrap();
    assert_eq!(current(&storage, 0).as_deref(), Some("kept"));
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
    database.close().unwrap();
    remove_log(&path);
    let error = write().unwrap_err();
    assert!(error.to_string().contains("neo.sqlite-wal: the log"), "{error}");
    drop(database);
    NodeDatabase::open(&options).unwrap();
    let expected = Value::Text("0000000000000007".to_owned());
    assert!(rows(&path, "config").iter().any(|row| row.contains(&expected)));
}

#[test]
fn a_backup_that_is_put_in_the_place_of_the_file_of_a_node_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let (location, cluster) = (&(*path).into(), "test");
    let options = NodeOptions { location, cluster, keep_equal_data_once: false, room_bytes: 0 };
    for replaced in ["neo.sqlite-wal.replaced", "neo.sqlite-wal.replaced.1"] {
        let (database, _) = NodeDatabase::open(&options).unwrap();
        let write = |tid| database.write(true, |database| database.set_backup_tid(Some(Tid(tid))));
        write(7).unwrap();
        database.close().unwrap();
        std::fs::copy(&path, path.with_extension("backup")).unwrap();
        write(8).unwrap();
        std::fs::rename(path.with_extension("backup"), &path).unwrap();
        write(9).unwrap_err();
        let error = database.close().unwrap_err();
        assert!(error.to_string().contains(&format!("{replaced},")), "{error}");
        drop(database);
        let restored = Value::Text("0000000000000007".to_owned());
        assert!(rows(&path, "config").iter().any(|row| row.contains(&restored)));
    }
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
        let replacing = std::fs::read(&path).ok();
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
        assert_eq!(std::fs::read(&path).ok(), replacing, "the log was moved into another file");
        std::fs::rename(&aside, &path).unwrap();
    }
}
