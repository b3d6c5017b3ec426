//! Packs beside commits, and beside what is voted.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use zodium_sql::SqlStorage;
use zodium_storage::{NewBody, Pack, PackOptions, Read, Write};
use zodium_storage_kit::packs::referring;
use zodium_types::Oid;

use crate::support::{commit, data, options, pack, prepare, record, rows};

/// Objects that are no longer in use.
const GARBAGE: u64 = 1000;

#[test]
fn commits_go_on_while_garbage_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let storage = SqlStorage::open(&options(&folder.path().join("neo.sqlite"), 1)).unwrap();
    commit(&storage, (0..=GARBAGE).map(|oid| referring(oid, &[])).collect());
    let until = commit(&storage, vec![referring(0, &[])]);
    let (linked, cancelled) = (Cell::new(false), Arc::new(AtomicBool::new(false)));
    // After the first of the garbage has gone, a commit refers to the last of it.
    let progress = |_, _, _| {
        if storage.object_count() <= GARBAGE && !linked.replace(true) {
            commit(&storage, vec![referring(0, &[GARBAGE])]);
        }
    };
    let options = PackOptions { gc: true, progress: &progress, ..PackOptions::new(&cancelled) };
    storage.pack(until, &options).unwrap().unwrap();
    assert!(linked.get());
    assert!(storage.current_serial(Oid(GARBAGE)).unwrap().is_some());
    assert_eq!(storage.object_count(), 2);
}

#[test]
fn data_of_an_undo_that_was_aborted_go_with_the_next_pack() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let storage = SqlStorage::open(&options(&path, 1)).unwrap();
    let first = commit(&storage, vec![data(0, "first")]);
    let second = commit(&storage, vec![data(0, "second")]);
    let undo = prepare(&storage, vec![record(0, NewBody::SameAs(first))]).unwrap();
    pack(&storage, second, false).unwrap();
    assert_eq!(rows(&path, "data").len(), 2);
    storage.abort(undo);
    let third = commit(&storage, vec![data(0, "third")]);
    pack(&storage, third, false).unwrap();
    assert_eq!(rows(&path, "data").len(), 1);
}
