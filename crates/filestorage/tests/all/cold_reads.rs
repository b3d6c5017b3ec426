//! Loads that say which bytes they miss, on files of the system.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use zodium_disk::{Disk, Missed, OpenMode, RealDisk, with_suffix};
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};
use zodium_storage::{Load, Read as _};
use zodium_types::{Oid, Tid};

use crate::support::{commit, stores, tid};

const SIZES: [usize; 6] = [0, 100, 4_000, 4_096, 60_000, 200_000];
const REVISIONS: u64 = 3;
/// Most attempts that a worker makes.
const ATTEMPTS_MAX: usize = 8;

fn data_of(size: usize, revision: u64) -> Vec<u8> {
    vec![b'a' + revision as u8; size.max(1)]
}

fn filled(path: &Path) -> FileStorage {
    let checksums = ChecksumMode::Full;
    let options = OpenOptions { checksums, cache_bytes: 0, ..OpenOptions::new(path) };
    let storage = FileStorage::open(Arc::new(RealDisk), &options).unwrap();
    for revision in 0..REVISIONS {
        for (oid, size) in (1..).zip(SIZES) {
            let at = tid(1 + revision * 100 + oid);
            commit(&storage, stores(at, &[(oid, &data_of(size, revision))])).unwrap();
        }
    }
    while storage.cover(1 << 20) > 0 {}
    storage
}

/// Takes the file and its checksums out of the system's memory.
fn forget(path: &Path) {
    for path in [path, &with_suffix(path, ".checksums")] {
        let file = RealDisk.open(path, OpenMode::Read).unwrap();
        file.sync().unwrap();
        file.forget_cached(0).unwrap();
    }
}

/// Loads a revision; if it is not in memory, reads what it misses.
fn attempt(storage: &FileStorage, oid: u64, before: Tid) -> Option<Load> {
    let missed = Missed::default();
    let load = storage.load_resident(Oid(oid), before, &missed).unwrap();
    let Load::WouldBlock = load else { return Some(load) };
    let bytes = missed.into_bytes().expect("it says what it misses");
    let mut buffer = vec![0; bytes.length()];
    assert_ne!(bytes.file().read_at(&mut buffer, bytes.position()).unwrap(), 0);
    None
}

/// Whether the file system tells what is in memory.
fn tells(path: &Path) -> bool {
    let file = RealDisk.open(path, OpenMode::Read).unwrap();
    file.read_exact_at(&mut [0; 4], 0).unwrap();
    file.read_resident_at(&mut [0; 4], 0).unwrap().is_some()
}

#[test]
fn a_load_is_done_when_what_it_missed_was_read_a_few_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("Data.fs");
    let storage = filled(&path);
    if !tells(&path) {
        eprintln!("not tested: the file system does not tell what is in memory");
        return;
    }
    for revision in 0..REVISIONS {
        for (oid, size) in (1..).zip(SIZES) {
            forget(&path);
            let before = Tid(tid(1 + revision * 100 + oid).0 + 1);
            let loaded = (0..ATTEMPTS_MAX).find_map(|_| attempt(&storage, oid, before));
            let Some(Load::Revision(found)) = loaded else { panic!("{oid}: {loaded:?}") };
            assert_eq!(found.data, data_of(size, revision));
        }
    }
}

#[test]
fn a_load_is_one_miss_however_often_it_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("Data.fs");
    let storage = filled(&path);
    if !tells(&path) {
        return;
    }
    for oid in 1..=SIZES.len() as u64 {
        forget(&path);
        let attempts = (1..=ATTEMPTS_MAX).find(|_| attempt(&storage, oid, Tid::MAX).is_some());
        let misses = storage.reader().cache_statistics().misses;
        assert_eq!(misses, oid, "after {attempts:?} attempts");
    }
}

#[test]
fn what_is_long_is_left_to_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("Data.fs");
    let storage = filled(&path);
    commit(&storage, stores(tid(1_000), &[(50, &vec![1; 1 << 20])])).unwrap();
    forget(&path);
    if !tells(&path) {
        return;
    }
    let mut missed = Missed::default();
    while let Load::WouldBlock = storage.load_resident(Oid(50), Tid::MAX, &missed).unwrap() {
        let Some(bytes) = std::mem::take(&mut missed).into_bytes() else { return };
        assert!(bytes.length() <= 256 << 10);
        let mut buffer = vec![0; bytes.length()];
        assert_ne!(bytes.file().read_at(&mut buffer, bytes.position()).unwrap(), 0);
    }
    // A file system that keeps its files in memory, or reads far ahead.
}
