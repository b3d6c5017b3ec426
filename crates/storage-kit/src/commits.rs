//! Commits: what is visible, and when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;

use zodium_storage::{
    Access, NewBody, NewRecord, NewTransaction, Prepared, StorageError, WriteState,
};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::Tester;
use crate::tester::data_of;

pub fn new_storage_is_writable(tester: &Tester) {
    assert_eq!(tester.storage.write_state(), WriteState::Writable);
    assert!(!tester.storage.is_read_only());
}

pub fn last_tid_of_an_empty_storage_is_zero(tester: &Tester) {
    assert_eq!(tester.storage.last_tid(), Tid::ZERO);
}

pub fn last_tid_is_that_of_the_last_commit(tester: &Tester) {
    for n in 0..5 {
        let tid = tester.store(n, "x");
        assert_eq!(tester.storage.last_tid(), tid);
    }
}

pub fn size_and_objects_grow(tester: &Tester) {
    let mut size = tester.storage.size();
    for n in 0..5 {
        tester.store(n, "some data");
        assert!(tester.storage.size() > size);
        assert_eq!(tester.storage.object_count(), n + 1);
        size = tester.storage.size();
    }
    tester.store(0, "again");
    assert_eq!(tester.storage.object_count(), 5);
}

pub fn many_objects_are_counted(tester: &Tester) {
    for oid in 0..300 {
        tester.store(oid, "x");
    }
    assert_eq!(tester.storage.object_count(), 300);
}

pub fn transaction_is_visible_when_commit_returns(tester: &Tester) {
    let prepared = tester.prepare(vec![data_of(1, "one")]).unwrap();
    let committed = tester.commit_batch(vec![prepared]);
    let expected = Some(("one".to_owned(), committed[0].tid, None));
    assert_eq!(tester.load(1, Tid::MAX), expected);
    assert_eq!(tester.transactions(None, None).len(), 1);
}

pub fn prepared_transaction_is_invisible(tester: &Tester) {
    let before = tester.store(1, "before");
    let prepared = tester.prepare(vec![data_of(1, "after"), data_of(2, "new")]).unwrap();
    assert_eq!(tester.current(1).as_deref(), Some("before"));
    assert_eq!(tester.current(2), None);
    assert_eq!(tester.storage.last_tid(), before);
    assert_eq!(tester.transactions(None, None).len(), 1);
    tester.commit_batch(vec![prepared]);
    assert_eq!(tester.current(1).as_deref(), Some("after"));
}

pub fn aborted_transaction_leaves_nothing(tester: &Tester) {
    let before = tester.store(1, "before");
    let size = tester.storage.size();
    let prepared = tester.prepare(vec![data_of(1, "after"), data_of(2, "new")]).unwrap();
    tester.storage.abort(prepared);
    assert_eq!(tester.load(1, Tid::MAX), Some(("before".to_owned(), before, None)));
    assert_eq!((tester.current(2), tester.storage.size()), (None, size));
    assert_eq!(tester.transactions(None, None).len(), 1);
}

pub fn transaction_of_many_records(tester: &Tester) {
    let records = (0..5000).map(|oid| data_of(oid, &format!("{oid}"))).collect();
    let tid = tester.commit(records);
    for oid in [0, 1, 2499, 4999] {
        assert_eq!(tester.load(oid, Tid::MAX), Some((format!("{oid}"), tid, None)));
    }
    assert_eq!(tester.transactions(None, None)[0].1.len(), 5000);
}

pub fn transaction_without_records_is_kept(tester: &Tester) {
    let tid = tester.commit(Vec::new());
    assert_eq!(tester.storage.last_tid(), tid);
    assert_eq!(tester.transactions(None, None), [(tid, Vec::new())]);
}

pub fn batch_is_committed_in_order(tester: &Tester) {
    let prepared: Vec<Prepared> =
        (0..10).map(|n| tester.prepare(vec![data_of(n, &n.to_string())]).unwrap()).collect();
    let committed = tester.commit_batch(prepared);
    let tids: Vec<Tid> = committed.iter().map(|one| one.tid).collect();
    assert!(tids.is_sorted() && tids.len() == 10);
    assert_eq!(tester.storage.last_tid(), tids[9]);
    let found = tester.transactions(None, None);
    assert_eq!(found.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), tids);
    for (n, tid) in tids.into_iter().enumerate() {
        assert_eq!(tester.load(n as u64, Tid::MAX), Some((n.to_string(), tid, None)));
    }
}

pub fn batch_names_its_objects(tester: &Tester) {
    let one = tester.prepare(vec![data_of(3, "a"), data_of(1, "b")]).unwrap();
    let two = tester.prepare(vec![data_of(2, "c")]).unwrap();
    let committed = tester.commit_batch(vec![one, two]);
    assert_eq!(committed[0].oids, [Oid(3), Oid(1)]);
    assert_eq!(committed[1].oids, [Oid(2)]);
}

pub fn last_record_of_an_object_counts(tester: &Tester) {
    let tid = tester.commit(vec![data_of(1, "first"), data_of(2, "x"), data_of(1, "last")]);
    assert_eq!(tester.load(1, Tid::MAX), Some(("last".to_owned(), tid, None)));
}

pub fn committed_oids_are_each_once(tester: &Tester) {
    let prepared = tester.prepare(vec![data_of(1, "a"), data_of(2, "b"), data_of(1, "c")]).unwrap();
    assert_eq!(tester.commit_batch(vec![prepared])[0].oids, [Oid(1), Oid(2)]);
}

pub fn object_stored_before_stays_when_another_is_prepared(tester: &Tester) {
    let one = tester.prepare(vec![data_of(1, "one")]).unwrap();
    let two = tester.prepare(vec![data_of(2, "two")]).unwrap();
    // Not in the order in which they were prepared.
    tester.commit_batch(vec![two]);
    assert_eq!((tester.current(1), tester.current(2).as_deref()), (None, Some("two")));
    tester.commit_batch(vec![one]);
    assert_eq!(tester.current(1).as_deref(), Some("one"));
}

pub fn new_oids_are_new(tester: &Tester) {
    let mut last = 0;
    for count in [1, 1, 100, 3] {
        let oids = tester.storage.new_oids(count).unwrap();
        assert!(*oids.start() > last);
        assert_eq!(oids.end() - oids.start() + 1, count);
        last = *oids.end();
    }
    assert!(tester.storage.last_oid() >= Oid(last));
}

pub fn new_oids_of_threads_do_not_meet(tester: &Tester) {
    let take = || (0..200).filter_map(|_| tester.storage.new_oids(7)).flatten().collect::<Vec<_>>();
    let mut all: Vec<u64> = thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(take));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    let count = all.len();
    all.dedup();
    assert_eq!((all.len(), count), (5600, 5600));
}

pub fn stored_oid_is_not_handed_out(tester: &Tester) {
    tester.store(1 << 30, "x");
    assert!(*tester.storage.new_oids(1).unwrap().start() > 1 << 30);
}

pub fn too_many_oids_are_refused(tester: &Tester) {
    assert_eq!(tester.storage.new_oids(u64::MAX), None);
    assert_eq!(tester.storage.new_oids(1 << 63), None);
    assert!(tester.storage.new_oids(1).is_some());
}

pub fn readers_see_whole_transactions(tester: &Tester) {
    let all = |n: u32| (0..50).map(|oid| data_of(oid, &n.to_string())).collect::<Vec<_>>();
    tester.commit(all(0));
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let read = || {
            while !ended.load(Ordering::Relaxed) {
                // As a session does for its client, also while a commit has not returned.
                let before = tester.storage.last_tid().next();
                let seen: Vec<_> = (0..50).map(|oid| tester.load(oid, before).unwrap().0).collect();
                assert!(seen.iter().all(|data| *data == seen[0]), "{seen:?}");
            }
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        for n in 1..=100 {
            tester.commit(all(n));
        }
        ended.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

pub fn storage_is_read_after_it_was_closed(tester: &Tester) {
    tester.store(1, "one");
    tester.storage.close().unwrap();
    assert_eq!(tester.current(1).as_deref(), Some("one"));
}

pub fn same_as_copies_the_data(tester: &Tester) {
    let first = tester.store(1, "first");
    tester.store(1, "second");
    let third = tester.store_same(1, first);
    let fourth = tester.store_same(1, third);
    assert_eq!(tester.load(1, fourth), Some(("first".to_owned(), third, Some(fourth))));
    assert_eq!(tester.current(1).as_deref(), Some("first"));
}

pub fn same_as_an_unknown_transaction_is_refused(tester: &Tester) {
    let tid = tester.store(1, "one");
    let other = tester.store(2, "two");
    for (oid, tid) in [(1, other), (2, tid), (3, tid)] {
        let refused = tester.prepare(vec![NewRecord { oid: Oid(oid), body: NewBody::SameAs(tid) }]);
        assert!(matches!(refused, Err(StorageError::NotUndoable { .. })), "{refused:?}");
    }
    assert_eq!(tester.storage.last_tid(), other);
}

pub fn same_as_a_deletion_is_one(tester: &Tester) {
    tester.store(1, "one");
    let deleted = tester.delete(1);
    tester.store(1, "again");
    let same = tester.store_same(1, deleted);
    assert_eq!(tester.current(1), None);
    assert_eq!(tester.storage.record(Oid(1), same).unwrap().unwrap().data, None);
}

/// Commits 200 objects.
fn commit_from_many_threads(tester: &Tester) {
    let commits = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let commits = &commits;
            scope.spawn(move || {
                for n in 0..50 {
                    let record = data_of(thread * 1000 + n, "x");
                    let prepared = tester.prepare(vec![record]).unwrap();
                    // One batch at a time, as the engine's log writer has it.
                    while commits.swap(true, Ordering::Acquire) {
                        thread::yield_now();
                    }
                    tester.commit_batch(vec![prepared]);
                    commits.store(false, Ordering::Release);
                }
            });
        }
    });
}

pub fn commits_from_many_threads_are_all_there(tester: &Tester) {
    commit_from_many_threads(tester);
    assert_eq!(tester.transactions(None, None).len(), 200);
    let oids = (0..4_u64).flat_map(|thread| (0..50).map(move |n| thread * 1000 + n));
    assert!(oids.into_iter().all(|oid| tester.current(oid).as_deref() == Some("x")));
}

pub fn commits_from_many_threads_are_counted(tester: &Tester) {
    commit_from_many_threads(tester);
    assert_eq!(tester.storage.object_count(), 200);
}

pub fn prepared_by_another_storage_is_refused(tester: &Tester) {
    tester.store(1, "one");
    let foreign = Prepared::new("of another kind");
    let tid = tester.next_tid();
    assert!(matches!(tester.storage.commit(vec![(tid, foreign)]), Err(StorageError::Other(_))));
    assert_eq!(tester.current(1).as_deref(), Some("one"));
    let (status, metadata) = (TransactionStatus::Normal, TransactionMetadata::default());
    let new = NewTransaction { status, metadata, records: vec![data_of(1, "two")] };
    assert!(matches!(tester.storage.prepare(new, Access::Blocking), Ok(Poll::Ready(_))));
}
