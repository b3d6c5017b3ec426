//! What an undo has to know. The undo itself is the engine's.

use zodium_storage::{StorageError, Undo, UndoneRecord};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::Tester;
use crate::tester::data_of;

/// The undo side. A kind of storage without one leaves these claims out by name.
pub(crate) fn undo_of(tester: &Tester) -> &dyn Undo {
    tester.storage.undo().unwrap()
}

fn logged(undo: &dyn Undo) -> Vec<Tid> {
    let mut found = Vec::new();
    undo.undo_log(&mut |transaction| {
        found.push(transaction.tid);
        true
    })
    .unwrap();
    found
}

fn is_refused(result: &Result<Vec<UndoneRecord>, StorageError>, undone: Tid) -> bool {
    matches!(result, Err(StorageError::NotUndoable { tid, .. }) if *tid == undone)
}

pub fn unknown_transaction_cannot_be_undone(tester: &Tester) {
    let undo = undo_of(tester);
    let tid = tester.store(1, "x");
    for unknown in [Tid(tid.0 - 1), tid.next(), Tid::MAX, Tid::ZERO] {
        assert!(is_refused(&undo.records_to_undo(unknown), unknown));
    }
}

pub fn records_to_undo_name_the_revision_before(tester: &Tester) {
    let undo = undo_of(tester);
    let one = tester.store(1, "one");
    let two = tester.store(2, "two");
    let both = tester.commit(vec![data_of(2, "2"), data_of(1, "1")]);
    let records = undo.records_to_undo(both).unwrap();
    let expected = [(2, two), (1, one)]
        .map(|(oid, previous)| UndoneRecord { oid: Oid(oid), previous: Some(previous) });
    assert_eq!(records, expected);
}

pub fn first_revision_has_none_before(tester: &Tester) {
    let undo = undo_of(tester);
    let tid = tester.store(1, "one");
    let expected = [UndoneRecord { oid: Oid(1), previous: None }];
    assert_eq!(undo.records_to_undo(tid).unwrap(), expected);
}

pub fn record_to_undo_comes_once_for_each_object(tester: &Tester) {
    let undo = undo_of(tester);
    let tid = tester.commit(vec![data_of(1, "a"), data_of(2, "b"), data_of(1, "c")]);
    let records = undo.records_to_undo(tid).unwrap();
    let mut oids: Vec<u64> = records.iter().map(|record| record.oid.0).collect();
    oids.sort_unstable();
    assert_eq!(oids, [1, 2]);
}

pub fn undo_log_is_newest_first(tester: &Tester) {
    let undo = undo_of(tester);
    let mut tids: Vec<Tid> = (0..5).map(|n| tester.store(n, "x")).collect();
    tids.reverse();
    assert_eq!(logged(undo), tids);
}

pub fn undo_log_can_be_broken_off(tester: &Tester) {
    let undo = undo_of(tester);
    for n in 0..5 {
        tester.store(n, "x");
    }
    let mut seen = 0;
    undo.undo_log(&mut |_| {
        seen += 1;
        seen < 2
    })
    .unwrap();
    assert_eq!(seen, 2);
}

fn commit_as(tester: &Tester, status: TransactionStatus) -> Tid {
    tester.commit_as(status, TransactionMetadata::default(), vec![data_of(1, "x")])
}

pub fn undone_status_cannot_be_undone(tester: &Tester) {
    let undo = undo_of(tester);
    let undone = commit_as(tester, TransactionStatus::Undone);
    let later = tester.store(2, "y");
    assert!(is_refused(&undo.records_to_undo(undone), undone));
    assert_eq!(logged(undo), [later]);
}

pub fn packed_status_cannot_be_undone(tester: &Tester) {
    let undo = undo_of(tester);
    tester.store(3, "before it");
    let packed = commit_as(tester, TransactionStatus::Packed);
    let later = tester.store(2, "y");
    assert!(is_refused(&undo.records_to_undo(packed), packed));
    // Nothing before a packed transaction can be undone.
    assert_eq!(logged(undo), [later]);
}

pub fn back_pointer_tells_its_source(tester: &Tester) {
    let first = tester.store(1, "first");
    tester.store(1, "second");
    let back = tester.store_same(1, first);
    let found = tester.transactions(Some(back), None);
    let record = &found[0].1[0];
    assert_eq!(record.data.as_deref(), Some(&b"first"[..]));
    assert_eq!(record.data_tid, Some(first));
}
