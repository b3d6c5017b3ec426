//! The history of one object.

use zodium_storage::HistoryEntry;
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::Tester;
use crate::tester::data_of;

fn tids(tester: &Tester, oid: u64, count: usize) -> Vec<Tid> {
    let entries = tester.storage.history(Oid(oid), count).unwrap();
    entries.iter().map(|entry| entry.transaction.tid).collect()
}

pub fn history_of_an_unknown_object_is_empty(tester: &Tester) {
    tester.store(1, "one");
    assert!(tids(tester, 2, 10).is_empty());
}

pub fn history_is_newest_first(tester: &Tester) {
    let first = tester.store(1, "first");
    tester.store(2, "other");
    let second = tester.store(1, "second");
    let third = tester.store(1, "third");
    assert_eq!(tids(tester, 1, 10), [third, second, first]);
}

pub fn history_has_as_many_entries_as_asked(tester: &Tester) {
    let all: Vec<Tid> = (0..9).map(|n| tester.store(1, &n.to_string())).collect();
    assert_eq!(tids(tester, 1, 1), [all[8]]);
    assert_eq!(tids(tester, 1, 3), [all[8], all[7], all[6]]);
    assert_eq!(tids(tester, 1, usize::MAX).len(), 9);
}

/// A caller keeps no more of a long history than it has room for.
pub fn history_ends_when_its_reader_has_enough(tester: &Tester) {
    let all: Vec<Tid> = (0..9).map(|n| tester.store(1, &n.to_string())).collect();
    let mut found = Vec::new();
    let mut accept = |entry: HistoryEntry| {
        found.push(entry.transaction.tid);
        found.len() < 4
    };
    tester.storage.each_revision(Oid(1), usize::MAX, &mut accept).unwrap();
    assert!(all[5..].iter().rev().eq(&found));
}

pub fn history_tells_users_and_descriptions(tester: &Tester) {
    let metadata = TransactionMetadata {
        user: b"/ joe".to_vec(),
        description: b"edited".to_vec(),
        extension: Vec::new(),
    };
    let records = vec![data_of(1, "one")];
    tester.commit_as(TransactionStatus::Normal, metadata.clone(), records);
    let entries = tester.storage.history(Oid(1), 1).unwrap();
    assert_eq!(entries[0].transaction.metadata, metadata);
    assert_eq!(entries[0].transaction.status, TransactionStatus::Normal);
}

pub fn history_tells_sizes(tester: &Tester) {
    tester.store(1, "12345");
    tester.store(1, "123");
    let entries = tester.storage.history(Oid(1), 9).unwrap();
    assert_eq!(entries.iter().map(|entry| entry.size).collect::<Vec<_>>(), [3, 5]);
}

pub fn history_shows_deletions(tester: &Tester) {
    let first = tester.store(1, "one");
    let deleted = tester.delete(1);
    assert_eq!(tids(tester, 1, 9), [deleted, first]);
    assert_eq!(tester.storage.history(Oid(1), 1).unwrap()[0].size, 0);
}

pub fn history_of_zero_entries_is_empty(tester: &Tester) {
    tester.store(1, "one");
    assert!(tids(tester, 1, 0).is_empty());
}

pub fn pointing_record_has_no_size_of_its_own(tester: &Tester) {
    let first = tester.store(1, "12345");
    tester.store(1, "123");
    tester.store_same(1, first);
    assert_eq!(tester.storage.history(Oid(1), 1).unwrap()[0].size, 0);
}
