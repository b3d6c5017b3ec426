//! Walks over objects and transactions.

use std::ops::ControlFlow;

use zodium_storage::{LogItem, NewBody, NewRecord};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::Tester;
use crate::tester::data_of;

fn walk(tester: &Tester, from: u64) -> Vec<u64> {
    let (mut found, mut next) = (Vec::new(), Some(Oid(from)));
    while let Some(from) = next {
        let Some(step) = tester.storage.next_object(from).unwrap() else { break };
        found.push(step.oid.0);
        next = step.following;
    }
    found
}

pub fn empty_storage_has_no_first_object(tester: &Tester) {
    assert_eq!(tester.storage.next_object(Oid(0)).unwrap(), None);
}

pub fn walk_goes_through_all_objects_in_oid_order(tester: &Tester) {
    for oid in [5, 0, 1 << 40, 3, 70_000, 4] {
        tester.store(oid, "x");
    }
    assert_eq!(walk(tester, 0), [0, 3, 4, 5, 70_000, 1 << 40]);
}

pub fn walk_from_the_middle(tester: &Tester) {
    for oid in [1, 5, 9] {
        tester.store(oid, "x");
    }
    assert_eq!(walk(tester, 2), [5, 9]);
    assert_eq!(walk(tester, 5), [5, 9]);
}

pub fn walk_beyond_the_last_object_ends(tester: &Tester) {
    tester.store(1, "x");
    assert_eq!(tester.storage.next_object(Oid(2)).unwrap(), None);
    assert_eq!(tester.storage.next_object(Oid(u64::MAX)).unwrap(), None);
}

pub fn walk_shows_current_revisions(tester: &Tester) {
    tester.store(1, "old");
    let tid = tester.store(1, "new");
    let step = tester.storage.next_object(Oid(0)).unwrap().unwrap();
    assert_eq!(step.serial, tid);
    assert_eq!(step.data.as_deref(), Some(&b"new"[..]));
    assert_eq!(step.following, None);
}

pub fn transactions_come_oldest_first(tester: &Tester) {
    let tids: Vec<Tid> = (0..5).map(|n| tester.store(n, "x")).collect();
    let found = tester.transactions(None, None);
    assert_eq!(found.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), tids);
}

pub fn transactions_within_a_range(tester: &Tester) {
    let tids: Vec<Tid> = (0..9).map(|n| tester.store(n, "x")).collect();
    let between = |tid: Tid| Tid(tid.0 + 50);
    let found = tester.transactions(Some(between(tids[1])), Some(between(tids[4])));
    assert_eq!(found.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), tids[2..=4]);
    let found = tester.transactions(Some(between(tids[6])), None);
    assert_eq!(found.len(), 2);
    let found = tester.transactions(None, Some(between(tids[0])));
    assert_eq!(found.len(), 1);
}

pub fn range_ends_are_included(tester: &Tester) {
    let tids: Vec<Tid> = (0..4).map(|n| tester.store(n, "x")).collect();
    let found = tester.transactions(Some(tids[1]), Some(tids[2]));
    assert_eq!(found.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), tids[1..=2]);
}

pub fn empty_range_is_empty(tester: &Tester) {
    let tid = tester.store(1, "x");
    assert!(tester.transactions(Some(tid.next()), None).is_empty());
    assert!(tester.transactions(None, Some(Tid(tid.0 - 1))).is_empty());
    assert!(tester.transactions(Some(tid.next()), Some(tid)).is_empty());
}

pub fn records_come_in_the_order_of_arrival(tester: &Tester) {
    let oids = [9, 2, 7, 1];
    tester.commit(oids.map(|oid| data_of(oid, &oid.to_string())).to_vec());
    let found = tester.transactions(None, None);
    let records = &found[0].1;
    assert_eq!(records.iter().map(|record| record.oid.0).collect::<Vec<_>>(), oids);
    assert!(
        records
            .iter()
            .all(|record| record.data.as_deref() == Some(record.oid.0.to_string().as_bytes())
                && record.data_tid.is_none()
                && record.tid == found[0].0)
    );
}

pub fn records_of_each_transaction_are_its_own(tester: &Tester) {
    tester.commit(vec![data_of(1, "a"), data_of(2, "b")]);
    tester.delete(1);
    let found = tester.transactions(None, None);
    assert_eq!(found[0].1.len(), 2);
    assert_eq!(found[1].1.len(), 1);
    assert_eq!(found[1].1[0].data, None);
    assert_eq!(found[1].1[0].data_tid, None);
}

pub fn metadata_come_back_byte_for_byte(tester: &Tester) {
    let metadata = TransactionMetadata {
        user: vec![0, 255, b'\n'],
        description: "gr\u{fc}\u{df}e".repeat(1000).into_bytes(),
        extension: b"\x80\x03}q\x00.".to_vec(),
    };
    let records = vec![data_of(1, "x")];
    tester.commit_as(TransactionStatus::Normal, metadata.clone(), records);
    let mut cursor = tester.storage.iterate(None, None).unwrap();
    assert_eq!(cursor.step().unwrap().unwrap().metadata, metadata);
}

pub fn cursor_does_not_see_later_commits(tester: &Tester) {
    let first = tester.store(1, "x");
    let mut cursor = tester.storage.iterate(None, None).unwrap();
    tester.store(1, "y");
    assert_eq!(cursor.step().unwrap().unwrap().tid, first);
    assert!(cursor.step().unwrap().is_none());
    assert!(cursor.step().unwrap().is_none());
}

fn words_of(item: LogItem<'_>) -> String {
    match item {
        LogItem::Transaction { tid, .. } => format!("transaction {tid}"),
        LogItem::Record { oid, data, .. } => {
            format!("{} {}", oid.0, String::from_utf8_lossy(data.unwrap_or(b"-")))
        }
        LogItem::Skipped => "skipped".to_owned(),
    }
}

pub fn reading_shows_transactions_and_records(tester: &Tester) {
    let first = tester.commit(vec![data_of(1, "a"), data_of(2, "b")]);
    let second = tester.delete(1);
    let mut cursor = tester.storage.iterate(None, None).unwrap();
    let mut found = Vec::new();
    let ended = cursor.read(true, &mut |item| {
        found.push(words_of(item));
        ControlFlow::Continue(())
    });
    assert!(ended.unwrap());
    let expected = [format!("transaction {first}"), "1 a".to_owned(), "2 b".to_owned()];
    let expected = expected.into_iter().chain([format!("transaction {second}"), "1 -".to_owned()]);
    assert_eq!(found, expected.collect::<Vec<_>>());
}

pub fn reading_can_be_broken_off_and_resumed(tester: &Tester) {
    tester.commit(vec![data_of(1, "a"), data_of(2, "b")]);
    tester.commit(vec![data_of(3, "c")]);
    let all = |breaks: bool| {
        let mut cursor = tester.storage.iterate(None, None).unwrap();
        let mut found = Vec::new();
        for _ in 0..20 {
            let ended = cursor.read(true, &mut |item| {
                found.push(words_of(item));
                if breaks { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if ended.unwrap() {
                return found;
            }
        }
        panic!("it does not end: {found:?}");
    };
    assert_eq!(all(true), all(false));
    assert_eq!(all(true).len(), 5);
}

pub fn reading_without_records_shows_transactions(tester: &Tester) {
    tester.commit(vec![data_of(1, "a"), data_of(2, "b")]);
    tester.store(1, "c");
    let mut cursor = tester.storage.iterate(None, None).unwrap();
    let mut transactions = 0;
    let ended = cursor.read(false, &mut |item| {
        assert!(!matches!(item, LogItem::Record { .. }), "{item:?}");
        transactions += u32::from(matches!(item, LogItem::Transaction { .. }));
        ControlFlow::Continue(())
    });
    assert!(ended.unwrap());
    assert_eq!(transactions, 2);
}

pub fn reading_can_skip_the_other_records(tester: &Tester) {
    tester.commit(vec![data_of(1, "a"), data_of(2, "b")]);
    let second = tester.store(3, "c");
    let mut cursor = tester.storage.iterate(None, None).unwrap();
    let mut found = Vec::new();
    // The transaction and its first record, then the rest without records.
    cursor
        .read(true, &mut |item| {
            found.push(words_of(item));
            if found.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    cursor
        .read(false, &mut |item| {
            found.push(words_of(item));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(found[1..3], ["1 a", "skipped"]);
    assert_eq!(found[3], format!("transaction {second}"));
    assert!(!found.contains(&"2 b".to_owned()));
}

pub fn cursor_has_no_records_before_the_first_step(tester: &Tester) {
    tester.store(1, "a");
    let cursor = tester.storage.iterate(None, None).unwrap();
    assert!(cursor.records().is_none());
}

pub fn recent_transactions_oldest_first(tester: &Tester) {
    let tids: Vec<Tid> = (0..4).map(|n| tester.store(n, "x")).collect();
    let recent = tester.storage.recent(100).unwrap();
    let expected: Vec<_> = tids.into_iter().zip(0..).map(|(tid, n)| (tid, vec![Oid(n)])).collect();
    assert_eq!(recent, expected);
}

pub fn recent_is_limited(tester: &Tester) {
    let tids: Vec<Tid> = (0..9).map(|n| tester.store(n, "x")).collect();
    let recent = tester.storage.recent(2).unwrap();
    assert_eq!(recent.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), tids[7..]);
    assert!(tester.storage.recent(0).unwrap().is_empty());
}

pub fn recent_names_each_object_once(tester: &Tester) {
    tester.commit(vec![data_of(2, "a"), data_of(1, "b"), data_of(2, "c")]);
    assert_eq!(tester.storage.recent(1).unwrap()[0].1, [Oid(2), Oid(1)]);
}

pub fn copied_transaction_keeps_its_status(tester: &Tester) {
    let metadata = TransactionMetadata::default();
    tester.commit_as(TransactionStatus::Packed, metadata, vec![data_of(1, "x")]);
    let mut cursor = tester.storage.iterate(None, None).unwrap();
    assert_eq!(cursor.step().unwrap().unwrap().status, TransactionStatus::Packed);
    assert_eq!(tester.current(1).as_deref(), Some("x"));
}

pub fn undone_transaction_does_not_count(tester: &Tester) {
    let before = tester.store(1, "before");
    let body = NewBody::Data("undone".into());
    let records = vec![NewRecord { oid: Oid(1), body }];
    let undone =
        tester.commit_as(TransactionStatus::Undone, TransactionMetadata::default(), records);
    assert_eq!(tester.load(1, Tid::MAX), Some(("before".to_owned(), before, None)));
    assert_eq!(tester.storage.last_tid(), undone);
    assert_eq!(tester.transactions(None, None).len(), 1);
}
