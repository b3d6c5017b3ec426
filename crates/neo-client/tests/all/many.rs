//! Loads of many objects at once.

use zodium_neo_client::NeoStorage;
use zodium_storage::{Access, Load, Read, StorageError};
use zodium_types::{Oid, Tid};

use crate::model::{Model, storage};
use crate::support::{open, open_with_cache};

/// More than is asked for at once.
const COUNT: u64 = 2500;

fn oids(count: u64) -> Vec<Oid> {
    (0..count).map(Oid).collect()
}

fn filled(model: &Model) -> Tid {
    let data: Vec<_> = (0..COUNT).map(|oid| format!("data of {oid}")).collect();
    let objects: Vec<_> = (0..).zip(data.iter().map(String::as_str)).collect();
    model.commit(&objects)
}

fn load_many(storage: &NeoStorage, oids: &[Oid], before: Tid) -> Vec<Result<Load, StorageError>> {
    let asked: Vec<_> = oids.iter().map(|oid| (*oid, before)).collect();
    storage.load_many_before(&asked)
}

/// The data of objects, which must be there.
fn texts(storage: &NeoStorage, oids: &[Oid], before: Tid) -> Vec<String> {
    let found = load_many(storage, oids, before).into_iter();
    found
        .map(|found| match found.unwrap() {
            Load::Revision(found) => String::from_utf8(found.data.to_vec()).unwrap(),
            _ => panic!("it is not there"),
        })
        .collect()
}

fn is_resident(neo: &NeoStorage, oid: Oid) -> bool {
    matches!(neo.load_before(oid, Tid::MAX, Access::NonBlocking), Ok(Load::Revision(_)))
}

#[test]
fn all_requests_are_sent_before_the_first_answer() {
    let model = Model::start(2);
    filled(&model);
    let neo = open(&model);
    // No storage answers before both have been asked for everything.
    model.state.lock().loads_together = 1000;
    let found = texts(&neo, &oids(1000), Tid::MAX);
    assert!((0..).zip(&found).all(|(oid, text)| *text == format!("data of {oid}")));
    let loads = model.state.lock().loads.clone();
    assert!(loads[&storage(1)] + loads[&storage(2)] == 1000, "{loads:?}");
    assert!(loads.values().all(|count| *count > 400), "{loads:?}");
}

#[test]
fn each_object_has_its_own_answer() {
    let model = Model::start(1);
    let first = filled(&model);
    let second = model.commit(&[(1, "later"), (2, "")]);
    let neo = open_with_cache(&model);
    assert!(texts(&neo, &[], Tid::MAX).is_empty());
    assert_eq!(texts(&neo, &[Oid(1), Oid(0), Oid(1)], Tid::MAX), ["later", "data of 0", "later"]);
    assert_eq!(texts(&neo, &oids(COUNT), second).len(), COUNT as usize);
    let some = [Oid(1), Oid(2), Oid(u64::MAX), Oid(9999), Oid(3)];
    let ends: Vec<_> = load_many(&neo, &some, Tid::MAX)
        .into_iter()
        .map(|found| match found.unwrap() {
            Load::Revision(found) => Some((found.serial, found.end)),
            Load::Missing => None,
            _ => panic!("neither there nor missing"),
        })
        .collect();
    assert_eq!(ends, [Some((second, None)), None, None, None, Some((first, None))]);
    let old = load_many(&neo, &[Oid(4)], first).remove(0);
    assert!(matches!(old, Ok(Load::NoRevision)));
    // Each has its own time.
    let found = neo
        .load_many_before(&[(Oid(1), second), (Oid(1), Tid::MAX)])
        .into_iter()
        .map(Result::unwrap);
    let serials: Vec<_> = found
        .map(|found| match found {
            Load::Revision(found) => found.serial,
            _ => panic!("it is not there"),
        })
        .collect();
    assert_eq!(serials, [first, second]);
    // What is in memory is not asked for again.
    let loads = || model.state.lock().loads[&storage(1)];
    let before = loads();
    texts(&neo, &[Oid(3), Oid(1)], Tid::MAX);
    assert_eq!(loads(), before);
}

#[test]
fn what_one_storage_fails_another_one_answers() {
    let model = Model::start(2);
    filled(&model);
    let neo = open(&model);
    assert_eq!(texts(&neo, &oids(100), Tid::MAX).len(), 100);
    model.state.lock().silent.insert(storage(1));
    assert_eq!(texts(&neo, &oids(100), Tid::MAX).len(), 100);
    model.state.lock().silent.clear();
    model.state.lock().damaged.insert(storage(2));
    assert_eq!(texts(&neo, &oids(100), Tid::MAX).len(), 100);
    model.state.lock().damaged.insert(storage(1));
    let found = load_many(&neo, &oids(3), Tid::MAX);
    assert!(found.iter().all(|found| matches!(found, Err(StorageError::Corrupt(_)))));
}

#[test]
fn a_cluster_that_is_away_is_waited_for_once() {
    let model = Model::start(1);
    filled(&model);
    let neo = NeoStorage::open(crate::support::options(&[model.master], 1)).unwrap();
    texts(&neo, &oids(1), Tid::MAX);
    model.state.lock().silent.insert(storage(1));
    let found = load_many(&neo, &oids(COUNT), Tid::MAX);
    assert_eq!(found.len(), COUNT as usize);
    assert!(found[1..].iter().all(Result::is_err));
}

#[test]
fn prefetched_objects_come_into_memory() {
    let model = Model::start(2);
    filled(&model);
    let neo = open_with_cache(&model);
    // Connects to both.
    texts(&neo, &oids(6), Tid::MAX);
    model.state.lock().loads_together = 500;
    neo.prefetch(&oids(506), Tid::MAX);
    model.wait(|state| state.loads.values().sum::<usize>() == 506);
    model.state.lock().loads_together = 1;
    // One of each storage, whose answers come after theirs.
    texts(&neo, &[Oid(600), Oid(603)], Tid::MAX);
    let loads = model.state.lock().loads.clone();
    assert!(loads[&storage(1)] + loads[&storage(2)] == 508, "{loads:?}");
    assert!(oids(506).iter().all(|oid| is_resident(&neo, *oid)));
    // What is in memory is not fetched.
    neo.prefetch(&oids(506), Tid::MAX);
    texts(&neo, &[Oid(606)], Tid::MAX);
    assert_eq!(model.state.lock().loads.values().sum::<usize>(), 509);
}
