//! Packs: what goes, and what no reader may miss.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

use bytes::Bytes;
use zodium_storage::{
    Access, Load, NewBody, NewRecord, PackOptions, PackStep, Packed, StorageError,
};
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::Tester;
use crate::tester::data_of;
use crate::undos::undo_of;

/// Packs; `None` when nothing was freed. Fails for a kind of storage that cannot be packed.
pub(crate) fn pack(tester: &Tester, until: Tid, gc: bool) -> Option<Packed> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let options = options(gc, &cancelled);
    tester.storage.packing().unwrap().pack(until, &options).unwrap()
}

fn options(gc: bool, cancelled: &Arc<AtomicBool>) -> PackOptions<'_> {
    PackOptions { gc, ..PackOptions::new(cancelled) }
}

/// A record of a persistent object that refers to others.
pub fn referring(oid: u64, oids: &[u64]) -> NewRecord {
    let mut data = b"\x80\x03cmodule\nClass\nq\x00.\x80\x03]q\x01(".to_vec();
    for oid in oids {
        data.extend_from_slice(b"C\x08");
        data.extend_from_slice(&oid.to_be_bytes());
        data.extend_from_slice(b"cmodule\nClass\n\x86Q");
    }
    data.extend_from_slice(b"e.");
    NewRecord { oid: Oid(oid), body: NewBody::Data(Bytes::from(data)) }
}

fn exists(tester: &Tester, oid: u64) -> bool {
    let found = tester.storage.load_before(Oid(oid), Tid::MAX, Access::Blocking).unwrap();
    matches!(found, Load::Revision(_))
}

pub fn pack_of_an_empty_storage_frees_nothing(tester: &Tester) {
    assert_eq!(pack(tester, Tid::MAX, false), None);
}

pub fn pack_drops_old_revisions(tester: &Tester) {
    let first = tester.store(1, "first");
    let second = tester.store(1, "second");
    pack(tester, Tid::MAX, false).unwrap();
    assert_eq!(tester.storage.load_serial(Oid(1), first).unwrap(), None);
    assert_eq!(tester.load(1, second), None);
    assert_eq!(tester.load(1, Tid::MAX), Some(("second".to_owned(), second, None)));
}

pub fn pack_tells_what_it_frees(tester: &Tester) {
    tester.store(1, "first");
    tester.store(1, "second");
    let packed = pack(tester, Tid::MAX, false).unwrap();
    assert!(packed.size_after < packed.size_before);
    assert_eq!(packed.size_after, tester.storage.size());
}

pub fn pack_drops_transactions_without_records(tester: &Tester) {
    tester.store(1, "first");
    let second = tester.store(1, "second");
    pack(tester, Tid::MAX, false).unwrap();
    let left: Vec<Tid> = tester.transactions(None, None).iter().map(|(tid, _)| *tid).collect();
    assert_eq!(left, [second]);
}

pub fn pack_keeps_what_is_current_at_its_time(tester: &Tester) {
    tester.store(1, "first");
    let second = tester.store(1, "second");
    let third = tester.store(1, "third");
    pack(tester, second, false).unwrap();
    assert_eq!(tester.load(1, third), Some(("second".to_owned(), second, Some(third))));
    assert_eq!(tester.load(1, second), None);
}

pub fn pack_keeps_everything_later(tester: &Tester) {
    tester.store(1, "first");
    let until = tester.store(1, "second");
    let later: Vec<Tid> = (0..5).map(|n| tester.store(1, &n.to_string())).collect();
    pack(tester, until, false).unwrap();
    for (n, tid) in later.into_iter().enumerate() {
        let found = tester.storage.load_serial(Oid(1), tid).unwrap();
        assert_eq!(found.as_deref(), Some(n.to_string().as_bytes()));
    }
}

pub fn pack_drops_what_the_root_does_not_lead_to(tester: &Tester) {
    tester.commit(vec![referring(0, &[1]), referring(1, &[2]), referring(2, &[])]);
    tester.commit(vec![referring(3, &[4]), referring(4, &[])]);
    let packed = pack(tester, Tid::MAX, true).unwrap();
    assert_eq!([0, 1, 2, 3, 4].map(|oid| exists(tester, oid)), [true, true, true, false, false]);
    assert_eq!((packed.objects_before, packed.objects_after), (5, 3));
    assert_eq!(tester.storage.object_count(), 3);
}

pub fn pack_without_gc_keeps_garbage(tester: &Tester) {
    tester.commit(vec![referring(0, &[]), referring(3, &[])]);
    tester.commit(vec![referring(3, &[])]);
    pack(tester, Tid::MAX, false).unwrap();
    assert!(exists(tester, 3));
}

/// Packs after one of two objects was deleted.
fn pack_a_deletion(tester: &Tester) {
    tester.store(1, "one");
    tester.store(2, "two");
    tester.delete(1);
    pack(tester, Tid::MAX, false).unwrap();
}

pub fn pack_drops_deleted_objects(tester: &Tester) {
    pack_a_deletion(tester);
    assert!(!exists(tester, 1) && exists(tester, 2));
}

pub fn packed_objects_are_not_counted(tester: &Tester) {
    pack_a_deletion(tester);
    assert_eq!(tester.storage.object_count(), 1);
}

pub fn packed_transactions_say_so(tester: &Tester) {
    tester.store(1, "first");
    let second = tester.store(1, "second");
    let third = tester.store(1, "third");
    pack(tester, second, false).unwrap();
    let mut cursor = tester.storage.iterate(None, None).unwrap();
    let mut found = Vec::new();
    while let Some(transaction) = cursor.step().unwrap() {
        found.push((transaction.tid, transaction.status));
    }
    let expected = [(second, TransactionStatus::Packed), (third, TransactionStatus::Normal)];
    assert_eq!(found, expected);
}

pub fn packed_transaction_cannot_be_undone(tester: &Tester) {
    let undo = undo_of(tester);
    tester.store(1, "first");
    let second = tester.store(1, "second");
    pack(tester, second, false).unwrap();
    assert!(matches!(undo.records_to_undo(second), Err(StorageError::NotUndoable { .. })));
}

pub fn second_pack_frees_nothing(tester: &Tester) {
    tester.store(1, "first");
    tester.store(1, "second");
    assert!(pack(tester, Tid::MAX, false).is_some());
    assert_eq!(pack(tester, Tid::MAX, false), None);
}

pub fn pack_keeps_the_last_tid(tester: &Tester) {
    tester.store(1, "first");
    let last = tester.store(1, "second");
    pack(tester, Tid::MAX, false).unwrap();
    assert_eq!(tester.storage.last_tid(), last);
}

pub fn pack_to_before_everything_frees_nothing(tester: &Tester) {
    let first = tester.store(1, "first");
    tester.store(1, "second");
    assert_eq!(pack(tester, Tid(first.0 - 1), false), None);
    assert_eq!(tester.transactions(None, None).len(), 2);
}

pub fn pack_to_before_the_last_pack_frees_nothing(tester: &Tester) {
    let first = tester.commit(vec![referring(0, &[1]), referring(1, &[])]);
    tester.commit(vec![referring(0, &[1])]);
    assert!(pack(tester, Tid::MAX, true).is_some());
    assert_eq!(pack(tester, first, true), None);
    assert!(exists(tester, 1));
}

pub fn cancelled_pack_changes_nothing(tester: &Tester) {
    tester.store(1, "first");
    tester.store(1, "second");
    let (size, cancelled) = (tester.storage.size(), Arc::new(AtomicBool::new(true)));
    let options = options(false, &cancelled);
    let refused = tester.storage.packing().unwrap().pack(Tid::MAX, &options);
    assert!(matches!(refused, Err(StorageError::PackCancelled(_))), "{refused:?}");
    assert_eq!(tester.storage.size(), size);
    assert_eq!(tester.transactions(None, None).len(), 2);
}

pub fn cursor_goes_on_over_a_pack(tester: &Tester) {
    let tids: Vec<Tid> = (0..6).map(|n| tester.store(1, &n.to_string())).collect();
    let mut cursor = tester.storage.iterate(None, None).unwrap();
    assert_eq!(cursor.step().unwrap().unwrap().tid, tids[0]);
    pack(tester, Tid::MAX, false).unwrap();
    let mut found = Vec::new();
    while let Some(transaction) = cursor.step().unwrap() {
        let record = cursor.records().unwrap().step().unwrap().unwrap();
        found.push((transaction.tid, record.data.unwrap()));
    }
    let expected: Vec<_> =
        (1..6).map(|n| (tids[n], Bytes::from(n.to_string().into_bytes()))).collect();
    assert_eq!(found, expected);
}

pub fn revision_that_is_pointed_to_survives(tester: &Tester) {
    let first = tester.store(1, "first");
    let until = tester.store(1, "second");
    let same = tester.store_same(1, first);
    pack(tester, until, false);
    assert_eq!(tester.load(1, Tid::MAX), Some(("first".to_owned(), same, None)));
}

pub fn back_pointers_lead_to_records_that_a_pack_has_left(tester: &Tester) {
    let first = tester.store(1, "first");
    tester.store(1, "second");
    let same = tester.store_same(1, first);
    let again = tester.store_same(1, same);
    let has_data = |tid| tester.storage.load_serial(Oid(1), tid).unwrap().is_some();
    for until in [same, again] {
        pack(tester, until, false);
        let record = tester.storage.record(Oid(1), until).unwrap().unwrap();
        assert!(has_data(record.data_tid), "{record:?}");
        for (_, records) in tester.transactions(None, None) {
            let sources: Vec<Tid> = records.iter().filter_map(|record| record.data_tid).collect();
            assert!(sources.into_iter().all(has_data), "{records:?}");
        }
    }
    assert_eq!(tester.load(1, Tid::MAX), Some(("first".to_owned(), again, None)));
}

pub fn pack_makes_old_answers_stale(tester: &Tester) {
    tester.store(1, "first");
    let second = tester.store(1, "second");
    let load = || tester.storage.load_before(Oid(1), second, Access::Blocking).unwrap();
    let Load::Revision(found) = load() else { panic!("it is there") };
    pack(tester, Tid::MAX, false).unwrap();
    assert!(!tester.storage.is_still_current(Oid(1), found.stamp));
}

pub fn commits_go_on_after_a_pack(tester: &Tester) {
    tester.store(1, "first");
    tester.store(1, "second");
    pack(tester, Tid::MAX, false).unwrap();
    let third = tester.store(1, "third");
    let new = tester.store(2, "new");
    assert_eq!(tester.load(1, Tid::MAX), Some(("third".to_owned(), third, None)));
    assert_eq!(tester.load(1, third).unwrap().0, "second");
    assert_eq!(tester.storage.last_tid(), new);
}

pub fn prepared_before_a_pack_is_committed_after_it(tester: &Tester) {
    tester.store(1, "first");
    tester.store(1, "second");
    let prepared = tester.prepare(vec![data_of(2, "prepared")]).unwrap();
    pack(tester, Tid::MAX, false).unwrap();
    tester.commit_batch(vec![prepared]);
    assert_eq!(tester.current(2).as_deref(), Some("prepared"));
}

pub fn pack_keeps_what_a_voted_undo_brings_back(tester: &Tester) {
    let first = tester.commit(vec![referring(0, &[1]), referring(1, &[2]), referring(2, &[])]);
    tester.commit(vec![referring(0, &[])]);
    let same = NewRecord { oid: Oid(0), body: NewBody::SameAs(first) };
    let undo = tester.prepare(vec![same]).unwrap();
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        scope.spawn(move || {
            let cancelled = Arc::new(AtomicBool::new(false));
            let progress = |step, _, _| {
                if step == PackStep::Waiting {
                    let _ = tell.send(());
                }
            };
            let options = PackOptions { progress: &progress, ..options(true, &cancelled) };
            tester.storage.packing().unwrap().pack(Tid::MAX, &options).unwrap();
        });
        // The pack waits for the undo, or has ended, and with it the sender.
        let _ = told.recv();
        tester.commit_batch(vec![undo]);
    });
    assert_eq!([0, 1, 2].map(|oid| exists(tester, oid)), [true, true, true]);
}
