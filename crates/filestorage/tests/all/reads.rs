//! How much is read of a file: little, however large it is.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::support::{commit, data_file, open, stores, tid};
use zodium_disk::{FaultyDisk, MemoryDisk, Operation};
use zodium_filestorage::{FileStorage, LogTail, OpenOptions, Place};
use zodium_storage::{Access, Load, LogItem};
use zodium_types::{Oid, Tid};

const TRANSACTIONS: u64 = 1000;
const RECORD_BYTES: usize = 3000;

/// A closed file of 3 MB. Transaction number n stores the object that is given for it.
fn written(object: impl Fn(u64) -> u64) -> FaultyDisk {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=TRANSACTIONS {
        commit(&storage, stores(tid(n), &[(object(n), &[n as u8; RECORD_BYTES])])).unwrap();
    }
    storage.close().unwrap();
    FaultyDisk::new(disk)
}

/// How often the disk is read while `read` runs.
fn reads_of<T>(disk: &FaultyDisk, read: impl FnOnce() -> T) -> (T, u64) {
    let before = disk.count(Operation::Read);
    (read(), disk.count(Operation::Read) - before)
}

fn first_from(storage: &FileStorage, start: Tid) -> Option<Tid> {
    let mut transactions = storage.reader().iterate(Some(start), None).unwrap();
    transactions.step().unwrap().map(|found| found.tid)
}

/// The index leads to records all over the file.
#[test]
fn a_search_by_tid_in_a_newly_opened_file_reads_a_part_of_it() {
    let disk = written(|n| n);
    for n in [2, 250, 499, 500, 501, 750, 999] {
        let storage = open(disk.clone());
        let (found, reads) = reads_of(&disk, || first_from(&storage, tid(n)));
        assert_eq!(found, Some(tid(n)));
        assert!(reads < 60, "{reads} reads for transaction {n}");
    }
}

/// The index has one record only, so it walks.
#[test]
fn a_search_by_tid_begins_at_the_nearer_end() {
    let disk = written(|_| 1);
    let mut most = 0;
    for (n, bound) in [(2, 10), (10, 15), (990, 15), (999, 10), (480, 400), (520, 400)] {
        let storage = open(disk.clone());
        let (found, reads) = reads_of(&disk, || first_from(&storage, tid(n)));
        assert_eq!(found, Some(tid(n)));
        assert!(reads < bound, "{reads} reads for transaction {n}");
        most = most.max(reads);
        // What was passed is known from then on.
        let (_, again) = reads_of(&disk, || first_from(&storage, tid(n)));
        assert!(again <= reads, "{again} reads the second time, {reads} before");
    }
    assert!(most > 50, "{most} reads from an end to the middle");
}

#[test]
fn the_serial_of_an_object_is_one_read_however_large_it_is() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    for (oid, length) in [(1, 10), (2, 10_000), (3, 1_000_000)] {
        commit(&storage, stores(tid(oid), &[(oid, &vec![1; length])])).unwrap();
        let serial = || storage.reader().current_serial(Oid(oid), Access::Blocking).unwrap();
        assert_eq!(reads_of(&disk, serial), (Some(Some(tid(oid))), 1), "{length} bytes");
    }
}

/// Whichever of its reads it is that would wait.
#[test]
fn a_load_that_may_not_wait_finds_what_is_there_or_would_wait() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    let data = |n: u64, length: usize| vec![n as u8; length];
    let lengths = [1, 4_096, 10_000, 300_000];
    for n in [1, 2, 3] {
        for (oid, length) in (1..).zip(lengths) {
            let at = tid(10 * n + oid);
            commit(&storage, stores(at, &[(oid, &data(n, length))])).unwrap();
        }
    }
    let (mut found, mut waits) = (0, 0);
    for every in 1..=9 {
        disk.forget_every(every);
        for (oid, length) in (1..).zip(lengths) {
            for n in [1, 2, 3] {
                let before = tid(10 * n + oid).next();
                let access = Access::NonBlocking;
                match storage.reader().load_before(Oid(oid), before, access).unwrap() {
                    Load::Revision(revision) => {
                        assert!(revision.data == data(n, length), "revision {n} of {oid}");
                        found += 1;
                    }
                    Load::WouldBlock => waits += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(found > 20 && waits > 20, "{found} found, {waits} not");
}

/// As a program that waits for commits looks again and again.
#[test]
fn who_follows_a_file_reads_what_is_new() {
    let disk = written(|n| n);
    let (writer, options) = (open(disk.clone()), OpenOptions::new(data_file()));
    let options = OpenOptions { read_only: true, ..options };
    let storage = FileStorage::open(Arc::new(disk.clone()), &options).unwrap();
    let mut tail: LogTail = storage.follow().unwrap();
    assert_eq!(tail.last_tid(), tid(TRANSACTIONS));
    for n in TRANSACTIONS + 1..TRANSACTIONS + 4 {
        commit(&writer, stores(tid(n), &[(1, b"new")])).unwrap();
        let (found, reads) = reads_of(&disk, || tail.step().unwrap());
        assert_eq!(found, Some((tid(n), vec![Oid(1)])));
        assert!(reads < 10, "{reads} reads");
        let (found, reads) = reads_of(&disk, || tail.step().unwrap());
        assert_eq!(found, None);
        assert!(reads <= 2, "{reads} reads");
    }
}

#[test]
fn items_of_the_log_come_with_their_places_and_so_does_what_is_passed_over() {
    let storage = open(MemoryDisk::new());
    for n in [1, 2] {
        commit(&storage, stores(tid(n), &[(1, b"data"), (2, b"others")])).unwrap();
    }
    let place = |position, bytes| Place { position, bytes };
    // A transaction with its header, a record of 4 bytes, and one of 6.
    let bytes = 23 + 46 + 48;
    let starts = [4, 4 + bytes + 8];
    // How many items come with records before all others come without.
    for with_records in 1..=3 {
        let mut transactions = storage.reader().iterate(None, None).unwrap();
        let mut places = Vec::new();
        let stopped = transactions.read_placed(true, |_, place| {
            places.push(place);
            match places.len() < with_records {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        assert!(!stopped.unwrap());
        let mut skipped = Vec::new();
        let ended = transactions.read_placed(false, |item, place| {
            match item {
                LogItem::Skipped => skipped.push(place),
                _ => places.push(place),
            }
            ControlFlow::Continue(())
        });
        assert!(ended.unwrap());
        let mut expected = vec![place(4, bytes), place(27, 46), place(27 + 46, 48)];
        expected.truncate(with_records);
        expected.push(place(starts[1], bytes));
        assert_eq!(places, expected);
        let end = starts[0] + bytes;
        let rest = [27, 27 + 46, end][with_records - 1];
        let mut expected = vec![place(rest, end - rest), place(starts[1] + 23, bytes - 23)];
        expected.retain(|place| place.bytes > 0);
        assert_eq!(skipped, expected, "{with_records} items with records");
    }
}
