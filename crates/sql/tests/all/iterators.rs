//! Iterators that are left in the midst, beside packs: what they keep is bounded.

use std::fs::OpenOptions;
use std::path::Path;

use zodium_sql::SqlStorage;
use zodium_storage::{Read, StorageError, TransactionCursor};

use crate::support::{commit, data, noise, options, pack};

/// An iterator that has given one transaction.
fn half_read(storage: &SqlStorage) -> Box<dyn TransactionCursor> {
    let mut iterator = storage.iterate(None, None).unwrap();
    iterator.step().unwrap().unwrap();
    iterator
}

fn with_storage(test: impl FnOnce(&Path, &SqlStorage)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    let storage = SqlStorage::open(&options(&path, 1)).unwrap();
    for round in 1..=3 {
        commit(&storage, vec![data(0, &format!("revision {round}")), data(round, "kept")]);
    }
    test(&path, &storage);
}

fn ended(iterator: &mut dyn TransactionCursor) -> StorageError {
    let error = iterator.step().unwrap_err();
    assert!(error.to_string().contains("start anew"), "{error}");
    error
}

#[test]
fn two_packs_leave_an_iterator_what_it_sees_and_a_third_ends_it() {
    with_storage(|_, storage| {
        let mut iterators = Vec::new();
        for round in 4..=6 {
            iterators.push(half_read(storage));
            let tid = commit(storage, vec![data(0, "later"), data(round, "kept")]);
            assert!(pack(storage, tid, false).is_some());
        }
        ended(&mut *iterators.remove(0));
        for (iterator, left) in iterators.iter_mut().zip([3, 4]) {
            let seen = std::iter::from_fn(|| iterator.step().unwrap()).count();
            assert_eq!(seen, left);
        }
    });
}

fn log_bytes(path: &Path) -> u64 {
    std::fs::metadata(path.with_extension("sqlite-wal")).unwrap().len()
}

#[test]
fn a_log_that_has_grown_ends_iterators_and_is_cut() {
    with_storage(|path, storage| {
        let mut iterator = half_read(storage);
        pack(storage, storage.last_tid(), false).unwrap();
        commit(storage, vec![data(0, "small")]);
        // As after commits that the iterator has kept in the log.
        let log = OpenOptions::new().write(true).open(path.with_extension("sqlite-wal")).unwrap();
        log.set_len((1 << 30) + 1).unwrap();
        commit(storage, vec![data(0, "one more")]);
        ended(&mut *iterator);
        // More pages than the log has before they are moved into the file.
        commit(storage, vec![noise(1, 1 << 20)]);
        commit(storage, vec![data(0, "in a new log")]);
        assert!(log_bytes(path) <= 64 << 20, "{}", log_bytes(path));
    });
}
