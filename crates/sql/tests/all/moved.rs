//! Files that another program moves, removes or replaces while they are open.

use std::path::Path;

use zodium_sql::{NodeDatabase, NodeOptions, SqlStorage};
use zodium_storage::{StorageError, Write, WriteState};
use zodium_types::Tid;

use crate::support::{commit, current, data, options, prepare};

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
}
