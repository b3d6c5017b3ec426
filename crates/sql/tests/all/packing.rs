//! Packs beside commits, and beside what is voted.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use zodium_sql::SqlStorage;
use zodium_storage::{Pack, PackOptions, Read};
use zodium_storage_kit::packs::referring;
use zodium_types::Oid;

use crate::support::{commit, options};

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
