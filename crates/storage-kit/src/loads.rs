//! Loads: which revision an object has at which tid.

use std::task::Poll;

use bytes::Bytes;
use zodium_storage::{Access, Load, NewBody, NewRecord};
use zodium_types::{Oid, Tid};

use crate::Tester;
use crate::tester::data_of;

fn raw(tester: &Tester, oid: u64, before: Tid) -> Load {
    tester.storage.load_before(Oid(oid), before, Access::Blocking).unwrap()
}

pub fn empty_storage_has_no_object(tester: &Tester) {
    assert_eq!(tester.storage.object_count(), 0);
    assert!(matches!(raw(tester, 0, Tid::MAX), Load::Missing));
}

pub fn missing_object_is_missing(tester: &Tester) {
    tester.store(1, "one");
    assert!(matches!(raw(tester, 2, Tid::MAX), Load::Missing));
    assert!(matches!(raw(tester, u64::MAX, Tid::MAX), Load::Missing));
}

pub fn stored_object_is_loaded(tester: &Tester) {
    let tid = tester.store(1, "one");
    assert_eq!(tester.load(1, Tid::MAX), Some(("one".to_owned(), tid, None)));
}

pub fn loaded_revision_is_current(tester: &Tester) {
    tester.store(1, "first");
    let second = tester.store(1, "second");
    assert_eq!(tester.load(1, Tid::MAX), Some(("second".to_owned(), second, None)));
}

pub fn load_before_the_first_revision_finds_none(tester: &Tester) {
    let first = tester.store(1, "first");
    assert!(matches!(raw(tester, 1, first), Load::NoRevision));
}

pub fn load_before_zero_finds_none(tester: &Tester) {
    tester.store(1, "first");
    assert!(matches!(raw(tester, 1, Tid::ZERO), Load::NoRevision));
}

pub fn load_at_its_own_tid_finds_the_revision_before(tester: &Tester) {
    let first = tester.store(1, "first");
    let second = tester.store(1, "second");
    assert_eq!(tester.load(1, second), Some(("first".to_owned(), first, Some(second))));
}

pub fn load_just_after_it_finds_it(tester: &Tester) {
    let first = tester.store(1, "first");
    assert_eq!(tester.load(1, first.next()), Some(("first".to_owned(), first, None)));
}

pub fn every_tid_finds_the_revision_of_its_time(tester: &Tester) {
    let tids: Vec<Tid> = (0..20).map(|n| tester.store(1, &format!("{n}"))).collect();
    for (n, tid) in tids.iter().enumerate() {
        for before in [tid.next(), Tid(tid.0 + 50), Tid(tid.0 + 100)] {
            let end = tids.get(n + 1).copied();
            assert_eq!(tester.load(1, before), Some((format!("{n}"), *tid, end)), "{before}");
        }
    }
}

pub fn end_is_the_next_serial(tester: &Tester) {
    tester.store(1, "first");
    tester.store(2, "other");
    let next = tester.store(1, "second");
    tester.store(1, "third");
    assert_eq!(tester.load(1, next).unwrap().2, Some(next));
}

pub fn same_bytes_twice_are_two_revisions(tester: &Tester) {
    let first = tester.store(1, "same");
    let second = tester.store(1, "same");
    assert_eq!(tester.load(1, second).unwrap().1, first);
    assert_eq!(tester.load(1, Tid::MAX).unwrap().1, second);
}

pub fn objects_do_not_mix(tester: &Tester) {
    for oid in 0..300 {
        tester.store(oid, &format!("object {oid}"));
    }
    for oid in 0..300 {
        assert_eq!(tester.current(oid), Some(format!("object {oid}")));
    }
}

pub fn large_oids_are_objects_like_others(tester: &Tester) {
    let oids = [1 << 20, 1 << 32, (1 << 33) + 7, 1 << 48, (1 << 62) + 3];
    for oid in oids {
        tester.store(oid, &format!("{oid}"));
    }
    for oid in oids {
        assert_eq!(tester.current(oid), Some(format!("{oid}")));
        assert_eq!(tester.current(oid + 1), None);
    }
}

pub fn one_byte_is_data(tester: &Tester) {
    tester.store(1, "x");
    assert_eq!(tester.current(1).as_deref(), Some("x"));
}

pub fn a_megabyte_comes_back_whole(tester: &Tester) {
    let data: String = (0..1 << 20).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    tester.store(1, &data);
    tester.store(2, "after it");
    assert!(tester.current(1) == Some(data));
    assert_eq!(tester.current(2).as_deref(), Some("after it"));
}

pub fn all_bytes_come_back_as_they_were(tester: &Tester) {
    let data: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    let body = NewBody::Data(Bytes::from(data.clone()));
    tester.commit(vec![NewRecord { oid: Oid(1), body }]);
    let Load::Revision(found) = raw(tester, 1, Tid::MAX) else { panic!("it is there") };
    assert_eq!(found.data, data);
}

pub fn load_serial_finds_exactly_that_revision(tester: &Tester) {
    let tids = ["a", "b", "c"].map(|data| (tester.store(1, data), data));
    for (tid, data) in tids {
        let found = tester.storage.load_serial(Oid(1), tid).unwrap();
        assert_eq!(found.as_deref(), Some(data.as_bytes()));
    }
}

pub fn load_serial_of_another_transaction_finds_nothing(tester: &Tester) {
    let tid = tester.store(1, "one");
    let other = tester.store(2, "two");
    let absent = [(1, other), (2, tid), (3, tid), (1, Tid(tid.0 + 1)), (1, Tid::ZERO)];
    for (oid, serial) in absent {
        assert_eq!(tester.storage.load_serial(Oid(oid), serial).unwrap(), None);
        assert_eq!(tester.storage.record(Oid(oid), serial).unwrap(), None);
    }
}

pub fn current_serial_is_that_of_the_last_transaction(tester: &Tester) {
    tester.store(1, "first");
    let second = tester.store(1, "second");
    assert_eq!(tester.storage.current_serial(Oid(1)).unwrap(), Some(second));
    assert_eq!(tester.storage.serial_of_living(Oid(1)).unwrap(), Some(second));
}

pub fn current_serial_of_an_unknown_object_is_none(tester: &Tester) {
    assert_eq!(tester.storage.current_serial(Oid(1)).unwrap(), None);
    assert_eq!(tester.storage.serial_of_living(Oid(1)).unwrap(), None);
}

pub fn blocking_and_resident_reads_agree(tester: &Tester) {
    let first = tester.store(1, "first");
    let second = tester.store(1, "second");
    for before in [first, second, Tid::MAX] {
        let resident = tester.storage.load_before(Oid(1), before, Access::NonBlocking).unwrap();
        match (resident, raw(tester, 1, before)) {
            // It need not be in memory.
            (Load::WouldBlock, _) => {}
            (Load::Revision(one), Load::Revision(other)) => {
                assert_eq!((one.data, one.serial), (other.data, other.serial));
                assert_eq!(one.end, other.end);
            }
            (Load::NoRevision, Load::NoRevision) => {}
            (one, other) => panic!("{one:?} and {other:?}"),
        }
    }
    let serial = tester.storage.poll_serial(Oid(1), Access::NonBlocking).unwrap();
    assert!(matches!(serial, Poll::Pending) || serial == Poll::Ready(Some(second)));
}

pub fn answer_stays_current_until_the_next_revision(tester: &Tester) {
    tester.store(1, "first");
    let Load::Revision(found) = raw(tester, 1, Tid::MAX) else { panic!("it is there") };
    assert!(tester.storage.is_still_current(Oid(1), found.stamp));
    tester.store(1, "second");
    assert!(!tester.storage.is_still_current(Oid(1), found.stamp));
}

pub fn answer_of_another_object_does_not_end_it(tester: &Tester) {
    tester.store(1, "first");
    let Load::Revision(found) = raw(tester, 1, Tid::MAX) else { panic!("it is there") };
    tester.commit(vec![data_of(2, "another"), data_of(3, "and another")]);
    assert!(tester.storage.is_still_current(Oid(1), found.stamp));
}

pub fn record_names_the_transaction_of_its_data(tester: &Tester) {
    let first = tester.store(1, "first");
    tester.store(1, "second");
    let third = tester.store_same(1, first);
    let record = tester.storage.record(Oid(1), third).unwrap().unwrap();
    assert_eq!(record.data.as_deref(), Some(&b"first"[..]));
    assert_eq!(record.data_tid, first);
    let record = tester.storage.record(Oid(1), first).unwrap().unwrap();
    assert_eq!(record.data_tid, first);
}

pub fn many_loads_answer_as_single_ones(tester: &Tester) {
    let first = tester.store(1, "one");
    let second = tester.store(1, "one again");
    tester.store(2, "two");
    tester.delete(3);
    let tids = [Tid::ZERO, first, first.next(), second, second.next(), Tid::MAX];
    let pairs = |oid| tids.map(|before| (Oid(oid), before));
    let asked: Vec<_> = [1, 2, 1, 3, 77, u64::MAX, 2].into_iter().flat_map(pairs).collect();
    let shown = |load: Load| match load {
        Load::Revision(found) => Some((found.data, found.serial, found.end)),
        Load::NoRevision => Some((Bytes::new(), Tid::ZERO, None)),
        Load::Missing => None,
        Load::WouldBlock => panic!("a blocking load did not wait"),
    };
    let many = tester.storage.load_many_before(&asked);
    let many: Vec<_> = many.into_iter().map(|load| shown(load.unwrap())).collect();
    let single = asked.iter().map(|(oid, before)| shown(raw(tester, oid.0, *before)));
    assert_eq!(many, single.collect::<Vec<_>>());
    assert!(tester.storage.load_many_before(&[]).is_empty());
}
