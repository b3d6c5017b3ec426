//! Looks for a transaction by its tid in a file that was just opened.

use crate::support::{commit, data_of, flip, open, stores, tid};
use zodium_disk::MemoryDisk;
use zodium_filestorage::FileStorage;
use zodium_types::{Oid, Tid};

const TRANSACTIONS: u64 = 1000;
const RECORD_BYTES: usize = 3000;

fn first_from(storage: &FileStorage, start: Tid) -> Option<Tid> {
    let mut transactions = storage.reader().iterate(Some(start), None).ok()?;
    transactions.step().ok()?.map(|transaction| transaction.tid)
}

/// The search asks current records where their transactions are.
#[test]
fn damaged_records_on_the_way_do_not_mislead_a_search() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    // Each transaction writes an object of its own.
    for n in 1..=TRANSACTIONS {
        commit(&storage, stores(tid(n), &[(n, &[n as u8; RECORD_BYTES])])).unwrap();
    }
    storage.close().unwrap();
    let transaction_bytes = (data_of(&disk).len() - 4) / TRANSACTIONS as usize;
    for n in (1..TRANSACTIONS).step_by(37) {
        let disk = disk.after_kill();
        let storage = open(disk.clone());
        // The oids of the records of all but each tenth transaction.
        for n in (1..=TRANSACTIONS).filter(|n| n % 10 != 0) {
            let start = 4 + (n as usize - 1) * transaction_bytes;
            flip(&disk, start as u64 + 23 + 7, 6);
        }
        assert_eq!(first_from(&storage, tid(n)), Some(tid(n)), "transaction {n}");
        assert_eq!(first_from(&storage, Tid(tid(n).0 + 1)), Some(tid(n + 1)), "after {n}");
    }
}

#[test]
fn tids_of_a_broken_clock_are_in_the_whole_log() {
    let storage = open(MemoryDisk::new());
    let tids = [tid(1), Tid(1 << 63), Tid(u64::MAX - 1)];
    for (oid, tid) in (1..).zip(tids) {
        commit(&storage, stores(tid, &[(oid, b"x")])).unwrap();
    }
    let mut transactions = storage.reader().iterate(None, None).unwrap();
    let found = std::iter::from_fn(|| transactions.step().unwrap()).map(|found| found.tid);
    assert!(found.eq(tids));
    assert_eq!(storage.reader().serial_of_living(Oid(2)).unwrap(), Some(tids[1]));
}

/// As copyTransactionsFrom makes it of several storages, one after the other. The file is long
/// enough for a search to ask current records, which contradict each other there.
#[test]
fn each_transaction_is_found_and_can_be_undone_where_tids_go_back() {
    // Parts of 7 tids each, every other one in a wrong place.
    let place = |n: u64| ((n / 7) ^ 1) * 7 + n % 7 + 1;
    let tids: Vec<Tid> = (0..TRANSACTIONS / 14 * 14).map(|n| tid(place(n))).collect();
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for (oid, tid) in (1..).zip(&tids) {
        commit(&storage, stores(*tid, &[(oid, &[1; RECORD_BYTES])])).unwrap();
    }
    let check_all = |storage: &FileStorage| {
        (1..).zip(&tids).for_each(|(oid, tid)| check_alone(storage, *tid, Oid(oid)));
    };
    check_all(&storage);
    drop(storage);
    // Without an index, the next opening sees the order. The one after it has an index.
    for _ in 0..2 {
        let storage = open(disk.clone());
        check_all(&storage);
        storage.close().unwrap();
    }
}

/// There is a transaction of this tid, which wrote one object, and none of the next tid.
fn check_alone(storage: &FileStorage, tid: Tid, oid: Oid) {
    let mut alone = storage.reader().iterate(Some(tid), Some(tid)).unwrap();
    assert_eq!(alone.step().unwrap().map(|found| found.tid), Some(tid));
    assert!(alone.step().unwrap().is_none());
    let undone = storage.reader().records_to_undo(tid).unwrap();
    assert_eq!(undone.iter().map(|record| record.oid).collect::<Vec<_>>(), [oid]);
    let none = Tid(tid.0 + 1);
    let mut nothing = storage.reader().iterate(Some(none), Some(none)).unwrap();
    assert!(nothing.step().unwrap().is_none());
    storage.reader().records_to_undo(none).unwrap_err();
}
