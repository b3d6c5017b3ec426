//! Deletions: revisions without data.

use zodium_storage::{Access, Load};
use zodium_types::{Oid, Tid};

use crate::Tester;

pub fn deleted_object_is_missing(tester: &Tester) {
    tester.store(1, "one");
    tester.delete(1);
    let found = tester.storage.load_before(Oid(1), Tid::MAX, Access::Blocking).unwrap();
    assert!(matches!(found, Load::Missing));
}

pub fn deleted_object_keeps_its_older_revisions(tester: &Tester) {
    let first = tester.store(1, "one");
    let deleted = tester.delete(1);
    assert_eq!(tester.load(1, deleted), Some(("one".to_owned(), first, Some(deleted))));
    assert_eq!(tester.storage.load_serial(Oid(1), first).unwrap().unwrap(), "one");
}

pub fn revision_before_a_deletion_ends_with_it(tester: &Tester) {
    let first = tester.store(1, "one");
    let deleted = tester.delete(1);
    tester.store(1, "again");
    assert_eq!(tester.load(1, first.next()).unwrap().2, Some(deleted));
}

pub fn deletion_has_a_serial(tester: &Tester) {
    tester.store(1, "one");
    let deleted = tester.delete(1);
    assert_eq!(tester.storage.current_serial(Oid(1)).unwrap(), Some(deleted));
}

pub fn deleted_object_has_no_living_serial(tester: &Tester) {
    tester.store(1, "one");
    tester.delete(1);
    assert_eq!(tester.storage.serial_of_living(Oid(1)).unwrap(), None);
}

pub fn deleted_object_is_stored_again(tester: &Tester) {
    tester.store(1, "one");
    let deleted = tester.delete(1);
    let again = tester.store(1, "again");
    assert_eq!(tester.load(1, Tid::MAX), Some(("again".to_owned(), again, None)));
    assert_eq!(tester.load(1, again), None);
    assert!(tester.load(1, deleted).is_some());
}

pub fn load_serial_of_a_deletion_finds_nothing(tester: &Tester) {
    tester.store(1, "one");
    let deleted = tester.delete(1);
    assert_eq!(tester.storage.load_serial(Oid(1), deleted).unwrap(), None);
}

pub fn record_of_a_deletion_has_no_data(tester: &Tester) {
    tester.store(1, "one");
    let deleted = tester.delete(1);
    let record = tester.storage.record(Oid(1), deleted).unwrap().unwrap();
    assert_eq!((record.data, record.data_tid), (None, deleted));
}

pub fn deletion_of_an_unknown_object_is_missing(tester: &Tester) {
    tester.delete(7);
    assert_eq!(tester.current(7), None);
    tester.store(7, "now it is there");
    assert!(tester.current(7).is_some());
}

pub fn walk_shows_deleted_objects_without_data(tester: &Tester) {
    tester.store(1, "one");
    tester.store(2, "two");
    let deleted = tester.delete(1);
    let step = tester.storage.next_object(Oid(0)).unwrap().unwrap();
    assert_eq!((step.oid, step.serial, step.data), (Oid(1), deleted, None));
    assert_eq!(step.following, Some(Oid(2)));
    assert_eq!(tester.storage.object_count(), 2);
}
