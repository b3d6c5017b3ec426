//! A pack in one call: it tells how far it is, and tries again when garbage comes into use.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::support::{commit, count_warnings, open, referring, stores, tid};
use zodium_disk::MemoryDisk;
use zodium_filestorage::FileStorage;
use zodium_storage::{Access, Pack, PackOptions, PackStep, Packed, StorageError};
use zodium_types::{Oid, Tid};

/// Large objects, a MiB each, of which the root refers to all.
const LARGE: std::ops::Range<u64> = 100..120;
/// A pack tells of its progress whenever it has done so much.
const PROGRESS_MIB: usize = 8;

fn large() -> Vec<u8> {
    let length = 1_u32 << 20;
    let class = b"\x80\x03cpersistent.mapping\nPersistentMapping\nq\x00.\x80\x03B";
    [&class[..], &length.to_le_bytes(), &vec![7; length as usize], b"."].concat()
}

/// A storage with large objects, and objects 1 to `lost` that are not referred to any more.
fn written(lost: u64) -> (FileStorage, Tid) {
    let storage = open(MemoryDisk::new());
    let mut n = 0;
    let mut next = || {
        n += 1;
        tid(n)
    };
    if lost > 0 {
        commit(&storage, stores(next(), &[(0, &referring(1..=lost))])).unwrap();
        for oid in 1..=lost {
            commit(&storage, stores(next(), &[(oid, &referring([]))])).unwrap();
        }
    }
    commit(&storage, stores(next(), &[(0, &referring(LARGE))])).unwrap();
    for oid in LARGE {
        commit(&storage, stores(next(), &[(oid, &large())])).unwrap();
    }
    let last = storage.last_tid();
    (storage, last)
}

/// Packs, and calls this function at each report of progress.
fn pack(
    storage: &FileStorage,
    until: Tid,
    report: &dyn Fn(PackStep, u64),
) -> Result<Option<Packed>, StorageError> {
    let cancelled = Arc::<AtomicBool>::default();
    let progress = |step, done, _| report(step, done);
    let options = PackOptions { gc: true, progress: &progress, ..PackOptions::new(&cancelled) };
    storage.pack(until, &options)
}

fn is_there(storage: &FileStorage, oid: u64) -> bool {
    storage.reader().current_serial(Oid(oid), Access::Blocking).unwrap().flatten().is_some()
}

#[test]
fn progress_is_told_after_each_8_mib_and_for_objects_found_together() {
    // With something to free, and without.
    for lost in [1, 0] {
        let (storage, until) = written(lost);
        let (copied, marked) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let report = |step, done| match step {
            PackStep::Copying => copied.borrow_mut().push(done),
            PackStep::Marking => marked.borrow_mut().push(done),
            PackStep::Checking | PackStep::Waiting => panic!("{step:?}"),
        };
        assert_eq!(pack(&storage, until, &report).unwrap().is_some(), lost > 0);
        let copied = copied.into_inner();
        assert_eq!(copied.len(), LARGE.count() / PROGRESS_MIB, "with {lost} lost: {copied:?}");
        // The root, and then all that it refers to.
        assert_eq!(marked.into_inner(), [1, 1 + LARGE.count() as u64]);
    }
}

#[test]
fn a_pack_begins_anew_when_garbage_comes_into_use_and_gives_up_after_three_attempts() {
    for (overtaken, succeeds) in [(0, true), (1, true), (2, true), (3, false)] {
        let (storage, until) = written(5);
        let (attempts, last_done) = (Cell::new(0), Cell::new(u64::MAX));
        // At the first report of copying in an attempt, one more lost object comes into use.
        let report = |step, done| {
            if step == PackStep::Copying && done <= last_done.replace(done) {
                let attempt = attempts.get() + 1;
                attempts.set(attempt);
                if attempt <= overtaken {
                    let using = [(200 + attempt, &referring([attempt])[..])];
                    commit(&storage, stores(Tid(storage.last_tid().0 + 1), &using)).unwrap();
                }
            }
        };
        let packed = pack(&storage, until, &report);
        assert_eq!(packed.is_ok(), succeeds, "{overtaken} times: {packed:?}");
        assert_eq!(attempts.get(), (overtaken + 1).min(3));
        for oid in 1..=5 {
            let stays = oid <= overtaken || !succeeds;
            assert_eq!(is_there(&storage, oid), stays, "object {oid}, {overtaken} times");
        }
    }
}

/// What it refers to is not known, and not kept if nothing else refers to it.
#[test]
fn a_later_record_whose_references_cannot_be_read_is_warned_of() {
    let (storage, until) = written(2);
    let later = [(300, &b"no pickle"[..])];
    commit(&storage, stores(Tid(until.0 + 1), &later)).unwrap();
    let (packed, warnings) = count_warnings(|| pack(&storage, until, &|_, _| ()).unwrap());
    assert!(packed.is_some());
    assert!(!is_there(&storage, 1) && is_there(&storage, 300));
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains("references cannot be read"), "{warning}");
}

#[test]
fn a_search_for_damage_tells_how_far_it_is_after_each_8_mib() {
    let (storage, until) = written(0);
    let cancelled = Arc::<AtomicBool>::default();
    let checked = RefCell::new(Vec::new());
    let progress = |step, done, total| {
        if step == PackStep::Checking {
            assert_eq!(total, storage.size());
            checked.borrow_mut().push(done);
        }
    };
    let options = PackOptions { progress: &progress, ..PackOptions::new(&cancelled) };
    assert!(storage.packer().begin_without_damaged(until, &options).unwrap().is_none());
    let checked = checked.into_inner();
    assert_eq!(checked.len(), LARGE.count() / PROGRESS_MIB, "{checked:?}");
}
