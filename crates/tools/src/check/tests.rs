//! A storage whose log is that of one storage, and whose objects are those of another.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use zodium_memorystorage::MemoryStorage;
use zodium_storage::{
    Access, Applier, HistoryEntry, Load, LogItem, ObjectStep, Read, Stamp, StorageError,
    StoredRecord, TransactionCursor,
};
use zodium_types::{Oid, Tid, TransactionStatus};

use super::*;

/// `None` as class, and a state that refers to object 2.
const TO_2: &[u8] = b"N.U\x08\0\0\0\0\0\0\0\x02Q.";
const PLAIN: &[u8] = b"N.N.";

struct Torn {
    log: MemoryStorage,
    objects: MemoryStorage,
    /// The last transaction, by what the storage says.
    last: Tid,
    /// Loads of this object report damage.
    unreadable: Option<Oid>,
    /// How often the log was read.
    iterated: AtomicUsize,
}

impl Read for Torn {
    fn name(&self) -> String {
        "torn".to_owned()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn size(&self) -> u64 {
        self.log.size()
    }

    fn object_count(&self) -> u64 {
        self.log.object_count()
    }

    fn last_tid(&self) -> Tid {
        self.last
    }

    fn last_oid(&self) -> Oid {
        self.log.last_oid()
    }

    fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError> {
        match self.unreadable == Some(oid) {
            true => Err(StorageError::Corrupt("a page is damaged".into())),
            false => self.objects.load_before(oid, before, access),
        }
    }

    fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool {
        self.objects.is_still_current(oid, stamp)
    }

    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError> {
        self.objects.record(oid, serial)
    }

    fn poll_serial(&self, oid: Oid, access: Access) -> Result<Poll<Option<Tid>>, StorageError> {
        self.objects.poll_serial(oid, access)
    }

    fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        accept: &mut dyn FnMut(HistoryEntry) -> bool,
    ) -> Result<(), StorageError> {
        self.objects.each_revision(oid, count, accept)
    }

    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
        self.objects.next_object(from)
    }

    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError> {
        self.iterated.fetch_add(1, Ordering::Relaxed);
        self.log.iterate(start, stop)
    }

    fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
        self.log.recent(count)
    }
}

/// A transaction: its tid, and its objects with their data.
type Written<'a> = (u64, &'a [(u64, Option<&'a [u8]>)]);

fn storage(transactions: &[Written<'_>]) -> MemoryStorage {
    let storage = MemoryStorage::new();
    let mut applier = Applier::new(&storage);
    for (tid, records) in transactions {
        let (tid, status) = (Tid(*tid), TransactionStatus::Normal);
        let [user, description, extension] = [&b""[..]; 3];
        let head = LogItem::Transaction { tid, status, user, description, extension };
        applier.apply(head).unwrap();
        for (oid, data) in *records {
            let record = LogItem::Record { oid: Oid(*oid), data: *data, data_tid: None };
            applier.apply(record).unwrap();
        }
    }
    applier.finish().unwrap();
    storage
}

/// Kinds of damage, with their objects and transactions.
type Found = Vec<(&'static str, Option<u64>, Option<u64>)>;

fn found_in(torn: &Torn, check: LogCheck) -> (Found, LogChecked) {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let checked = check_log(torn, check, &mut |more| bytes += more, &mut |damage| {
        let (oid, tid) = (damage.oid.map(|oid| oid.0), damage.tid.map(|tid| tid.0));
        found.push((damage.kind.name(), oid, tid));
    });
    let checked = checked.unwrap();
    assert_eq!(checked.damages, found.len() as u64);
    (found, checked)
}

fn torn(log: &[Written<'_>], objects: &[Written<'_>]) -> Torn {
    let (log, objects) = (storage(log), storage(objects));
    let (last, iterated) = (objects.last_tid(), AtomicUsize::new(0));
    Torn { last, log, objects, unreadable: None, iterated }
}

const ALL: LogCheck = LogCheck { references: true, pickles: true };
const BASE: Written<'static> = (1, &[(0, Some(TO_2)), (1, Some(PLAIN)), (2, Some(PLAIN))]);

#[test]
fn a_whole_storage_is_whole() {
    let log = [BASE, (5, &[(1, None), (2, Some(PLAIN))][..])];
    let (found, checked) = found_in(&torn(&log, &log), ALL);
    assert_eq!(found, []);
    let LogChecked { bytes, transactions, records, objects, .. } = checked;
    assert_eq!((transactions, records, objects), (2, 5, 3));
    assert_eq!(bytes as usize, TO_2.len() + 3 * PLAIN.len());
}

#[test]
fn each_difference_of_log_and_objects_is_found() {
    let second: Written<'_> = (5, &[(1, None), (2, Some(b"N.K\x01."))]);
    let cases: [(Written<'_>, Found); 5] = [
        ((5, &[(1, None)]), vec![("serial", Some(2), Some(5))]),
        ((5, &[(2, Some(b"N.K\x01."))]), vec![("serial", Some(1), Some(5))]),
        ((5, &[(1, None), (2, Some(b"N.K\x02."))]), vec![("serial", Some(2), Some(5))]),
        ((5, &[(1, None), (2, None)]), vec![("load", Some(2), Some(5))]),
        // What the log has after the last transaction is left out.
        ((4, &[(1, None)]), vec![("log", None, Some(1))]),
    ];
    for (objects, expected) in cases {
        let (found, _) = found_in(&torn(&[BASE, second], &[BASE, objects]), LogCheck::default());
        assert_eq!(found, expected, "{objects:?}");
    }
}

#[test]
fn the_log_is_not_read_again_for_each_object_that_a_pack_drops() {
    let count = || (1..1000).map(|oid| (oid, Some(PLAIN)));
    let (first, second): (Vec<_>, Vec<_>) = (count().collect(), count().step_by(2).collect());
    let last: Written<'_> = (5, &[(2000, Some(PLAIN))]);
    let torn = torn(&[(1, &first), (2, &second), last], &[last]);
    let (found, _) = found_in(&torn, LogCheck::default());
    let tid = |oid: u64| if oid % 2 == 1 { 2 } else { 1 };
    let mut expected: Vec<_> = (1..1000).map(|oid| ("load", Some(oid), Some(tid(oid)))).collect();
    expected.sort_by_key(|(_, oid, tid)| (*tid, *oid));
    assert_eq!(found, expected);
    assert!(torn.iterated.into_inner() < 10);
}

#[test]
fn a_last_transaction_without_current_objects_may_be_gone_from_the_log() {
    let mut packed = torn(&[BASE], &[BASE]);
    packed.last = Tid(5);
    let (found, checked) = found_in(&packed, ALL);
    assert_eq!((found, checked.objects), (vec![], 3));
    // A load by that tid counts the objects that were committed since as they were before.
    let committed: Written<'_> = (6, &[(2, Some(PLAIN))]);
    packed.objects = storage(&[BASE, committed]);
    assert_eq!(found_in(&packed, ALL).0, []);

    let lost: Written<'_> = (5, &[(7, Some(PLAIN))]);
    assert_eq!(found_in(&torn(&[BASE], &[BASE, lost]), ALL).0, [("log", None, Some(1))]);
}

#[test]
fn damage_of_an_object_leaves_the_others_to_be_checked() {
    let second: Written<'_> = (5, &[(2, None)]);
    let mut whole = torn(&[BASE, second], &[BASE, second]);
    whole.unreadable = Some(Oid(1));
    let (found, _) = found_in(&whole, ALL);
    assert_eq!(found, [("reference", Some(0), Some(1)), ("load", Some(1), Some(1))]);
}

#[test]
fn compressed_data_are_told_once_and_are_no_damage() {
    let log: [Written<'_>; 1] = [(1, &[(0, Some(b".zx\x9c")), (1, Some(b".zy\x9c"))])];
    for check in [ALL, LogCheck { pickles: false, ..ALL }, LogCheck { references: false, ..ALL }] {
        let (mut found, storage) = (Vec::new(), torn(&log, &log));
        let mut note = |damage: &LogDamage| found.push((damage.kind, damage.oid));
        let checked = check_log(&storage, check, &mut |_| (), &mut note).unwrap();
        assert_eq!(found, [(LogDamageKind::Compressed, Some(Oid(0)))]);
        assert_eq!(checked.damages, 0);
    }
}

#[test]
fn pickles_and_references_are_checked_on_request() {
    let log: [Written<'_>; 1] = [(1, &[(0, Some(TO_2)), (1, Some(b"garbage"))])];
    let (found, _) = found_in(&torn(&log, &log), LogCheck::default());
    assert_eq!(found, []);
    let (found, _) = found_in(&torn(&log, &log), LogCheck { pickles: true, references: false });
    assert_eq!(found, [("pickle", Some(1), Some(1))]);
    let (found, _) = found_in(&torn(&log, &log), LogCheck { pickles: false, references: true });
    assert_eq!(found, [("reference", Some(0), Some(1)), ("pickle", Some(1), Some(1))]);
}
