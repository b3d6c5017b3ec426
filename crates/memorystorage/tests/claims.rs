//! The storage in memory does what every storage must do.

#![forbid(unsafe_code)]

use std::sync::Arc;

use zodium_memorystorage::MemoryStorage;
use zodium_storage::{Applier, LogItem, Read, Storage};
use zodium_storage_kit::read_only::writes_are_refused;
use zodium_storage_kit::{Tester, following};
use zodium_types::{Tid, TransactionStatus};

fn open() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

zodium_storage_kit::check_storage!(open, without: [
    ("pack_keeps_what_a_voted_undo_brings_back", "a pack sees committed transactions only"),
]);

#[test]
fn a_reader_refuses_writes() {
    let storage = Arc::new(MemoryStorage::new());
    let reader = storage.reader();
    let tester = Tester::new(storage);
    tester.store(1, "first");
    tester.store(1, "second");
    writes_are_refused(&reader);
    assert_eq!(tester.transactions(None, None).len(), 2);
}

#[test]
fn a_reader_follows_its_writer() {
    for claim in [
        following::follower_is_told_of_each_commit_once,
        following::follower_that_catches_up_was_told_of_all,
        following::followers_begin_where_they_say,
    ] {
        let storage = Arc::new(MemoryStorage::new());
        let reader = storage.reader();
        claim(&Tester::new(storage), &reader);
    }
}

#[test]
fn tids_of_a_broken_clock_are_in_the_whole_log() {
    let storage = MemoryStorage::new();
    let tids = [Tid(1), Tid(1 << 63)];
    let mut applier = Applier::new(&storage);
    for tid in tids {
        let (status, empty) = (TransactionStatus::Normal, &[]);
        let (user, description, extension) = (empty, empty, empty);
        let item = LogItem::Transaction { tid, status, user, description, extension };
        applier.apply(item).unwrap();
    }
    applier.finish().unwrap();
    let mut transactions = storage.iterate(None, None).unwrap();
    assert_eq!(tids.map(|_| transactions.step().unwrap().map(|found| found.tid)), tids.map(Some));
}
