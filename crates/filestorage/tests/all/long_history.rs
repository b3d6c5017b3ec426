//! How much is read to find transactions in a long log, or a revision of an object with many.
//!
//! A cold file of 100,000 transactions: reads are counted, not timed.

use crate::support::{commit, commit_all, data_of, stores, tid, try_open};
use zodium_disk::{FaultyDisk, MemoryDisk, Missed, Operation};
use zodium_filestorage::{FileStorage, FileStorageError};
use zodium_storage::{Access, Load, Read as _};
use zodium_types::{Oid, Tid};

const TRANSACTIONS: u64 = 100_000;
/// Of transactions written together.
const BATCH: u64 = 500;

/// Every transaction of the first file writes an object of its own, or one that an earlier batch
/// wrote; of the second, one of a few.
fn oid_of_many(n: u64) -> u64 {
    if n.is_multiple_of(3) && n > 10 * BATCH { n - 10 * BATCH } else { n }
}

fn oid_of_few(n: u64) -> u64 {
    n % BATCH
}

/// The file as after a start: nothing is known but the saved index.
fn cold_file(oid_of: fn(u64) -> u64) -> (FaultyDisk, FileStorage) {
    let disk = MemoryDisk::new();
    let storage = try_open(disk.clone(), 0).unwrap();
    for batch in 0..TRANSACTIONS / BATCH {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let transactions = numbers.map(|n| stores(tid(n), &[(oid_of(n), b"some data, not much")]));
        commit_all(&storage, transactions.collect()).unwrap();
    }
    storage.close().unwrap();
    let disk = FaultyDisk::new(disk.after_power_cut());
    let storage = try_open(disk.clone(), 0).unwrap();
    (disk, storage)
}

fn reads(disk: &FaultyDisk, work: impl FnOnce()) -> u64 {
    let before = disk.count(Operation::Read);
    work();
    disk.count(Operation::Read) - before
}

fn undo_newest(storage: &FileStorage, count: usize) {
    let mut left = count;
    let listed = storage.reader().undo_log(|_| {
        left -= 1;
        left > 0
    });
    listed.unwrap();
    assert_eq!(left, 0);
}

#[test]
fn the_newest_transactions_are_listed_with_a_read_or_two() {
    let (disk, storage) = cold_file(oid_of_many);
    let count = reads(&disk, || undo_newest(&storage, 20));
    assert!(count <= 3, "{count} reads");
    // All that a filter rejects: many transactions come with each read.
    let all = reads(&disk, || storage.reader().undo_log(|_| true).unwrap());
    assert!(all * 16_000 < 2 * data_of(disk.files()).len() as u64, "{all} reads");
}

#[test]
fn an_old_transaction_is_found_with_few_reads_in_a_cold_file() {
    for n in [1, 7, 500, 49_999, 50_000, 77_777, TRANSACTIONS - 2] {
        let (disk, storage) = cold_file(oid_of_many);
        let count = reads(&disk, || assert_finds(&storage, n));
        // Three searches: two reads for each halving, and the walk at the end.
        assert!(count <= 100, "{count} reads for transaction {n}");
    }
}

#[test]
fn where_all_write_the_same_objects_the_first_walk_prepares_the_others() {
    let (disk, storage) = cold_file(oid_of_few);
    assert_finds(&storage, TRANSACTIONS / 2);
    for n in (TRANSACTIONS / 2..TRANSACTIONS).step_by(4999) {
        let count = reads(&disk, || assert_finds(&storage, n));
        assert!(count <= 60, "{count} reads for transaction {n}");
    }
}

#[test]
fn what_is_appended_is_found_with_few_reads() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = try_open(disk.clone(), 0).unwrap();
    for n in 0..20_000 {
        commit(&storage, stores(tid(n), &[(7, b"data")])).unwrap();
    }
    for n in (0..20_000).step_by(999) {
        let count = reads(&disk, || assert_finds(&storage, n));
        assert!(count <= 40, "{count} reads for transaction {n}");
    }
}

/// Undo and iteration find the `n`-th transaction, and what comes after a tid between two.
fn assert_finds(storage: &FileStorage, n: u64) {
    let records = storage.reader().records_to_undo(tid(n));
    assert!(matches!(&records, Ok(found) if found.len() == 1), "{n}: {records:?}");
    for (start, expected) in [(tid(n), tid(n)), (tid(n).next(), tid(n + 1))] {
        let first = storage.reader().iterate(Some(start), None).unwrap().step().unwrap();
        assert_eq!(first.map(|transaction| transaction.tid), Some(expected));
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let (_, storage) = cold_file(oid_of_few);
    for missing in [Tid::ZERO, tid(5).next(), tid(60_000).next(), tid(TRANSACTIONS), Tid::MAX] {
        let refused = storage.reader().records_to_undo(missing);
        assert!(matches!(refused, Err(FileStorageError::NotUndoable { .. })), "{refused:?}");
    }
    let after = storage.reader().iterate(Some(tid(TRANSACTIONS)), None).unwrap().step().unwrap();
    assert!(after.is_none());
}

#[test]
fn only_a_load_that_may_wait_goes_far_back_in_a_history() {
    const REVISIONS: u64 = 1_000;
    let storage = try_open(MemoryDisk::new(), 1 << 20).unwrap();
    for n in 1..=REVISIONS {
        commit(&storage, stores(tid(n), &[(1, b"data")])).unwrap();
    }
    let resident = |serial| {
        let missed = Missed::default();
        let load = storage.load_resident(Oid(1), tid(serial).next(), &missed).unwrap();
        (load, missed.into_bytes())
    };
    for back in [0, 1, 50, 100] {
        let (load, _) = resident(REVISIONS - back);
        let Load::Revision(found) = load else { panic!("{back} back: {load:?}") };
        assert_eq!(found.serial, tid(REVISIONS - back));
    }
    for back in [101, REVISIONS - 1, REVISIONS] {
        // No bytes are missing, so the load is for a thread.
        assert!(matches!(resident(REVISIONS - back), (Load::WouldBlock, None)), "{back} back");
    }
    let oldest = storage.load_before(Oid(1), tid(1).next(), Access::Blocking).unwrap();
    let Load::Revision(oldest) = oldest else { panic!("{oldest:?}") };
    assert_eq!((oldest.serial, oldest.end), (tid(1), Some(tid(2))));
}
