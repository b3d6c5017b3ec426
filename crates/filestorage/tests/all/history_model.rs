//! Random histories against a model that is nothing but a list of transactions.
//!
//! A history has stores, deletions, undos, copies that point back, several records of an object
//! in one transaction, transactions of every status, metadata and records of every length. It is
//! appended in batches. Every answer of the storage has to be the model's: loads before every tid,
//! serials, histories, walks over transactions and objects, the undo log, the sizes. All are asked
//! then, and after a reopen: with the index, without it, and with that of an earlier time.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::support::{
    History, ModelRecord, check_everything, companion, for_each_seed, open, try_open,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zodium_disk::{Disk, MemoryDisk};
use zodium_filestorage::{FileStorage, OpenOptions};
use zodium_storage::{Access, Load, Read as _, Write as _};
use zodium_types::{Oid, Tid, TransactionStatus};

#[test]
fn every_answer_is_the_models_also_after_a_reopen() {
    for_each_seed(60, "history_model", |seed, rng| {
        let disk = MemoryDisk::new();
        let cache_bytes = if seed % 2 == 0 { 0 } else { 1 << 20 };
        let storage = try_open(disk.clone(), cache_bytes).unwrap();
        let mut history = History::new(rng.clone());
        history.large = seed % 10 == 0;
        let batches = rng.random_range(1..12);
        let saved_after = rng.random_range(0..batches);
        for batch in 0..batches {
            history.commit_batch(&storage);
            if batch == saved_after {
                storage.save_index().unwrap();
            }
            if rng.random_ratio(1, 4) {
                check_everything(&storage, &history.model, rng);
            }
        }
        check_everything(&storage, &history.model, rng);
        check_reopened(&disk, &history, rng);
        storage.close().unwrap();
        check_reopened(&disk, &history, rng);
        check_everything(&storage, &history.model, rng);
    });
}

/// With the index that is there, with one more transaction, and without any.
fn check_reopened(disk: &MemoryDisk, history: &History, rng: &mut SmallRng) {
    for (with_index, cache_bytes) in [(true, 0), (true, 4 << 20), (false, 0), (false, 4 << 20)] {
        let disk = disk.after_power_cut();
        if !with_index {
            disk.remove(&companion(".index")).unwrap();
        }
        let storage = try_open(disk.clone(), cache_bytes).unwrap();
        check_everything(&storage, &history.model, rng);
        let mut further = History::after(&history.model, rng.clone());
        further.commit_batch(&storage);
        check_everything(&storage, &further.model, rng);
    }
}

#[test]
fn histories_have_in_them_what_can_occur() {
    let mut seen = [0; 8];
    for seed in 1..=20 {
        let storage = open(MemoryDisk::new());
        let mut history = History::new(SmallRng::seed_from_u64(seed));
        history.large = true;
        for _ in 0..20 {
            history.commit_batch(&storage);
        }
        for transaction in &history.model.transactions {
            let records = &transaction.records;
            seen[0] += usize::from(transaction.status == TransactionStatus::Packed);
            seen[1] += usize::from(!transaction.counts());
            seen[2] += usize::from(transaction.metadata.user.len() == 65_535);
            seen[3] += records.len() - transaction.oids().len();
            let points = |record: &&ModelRecord| record.points_to.is_some();
            seen[4] += records.iter().filter(points).count();
            let deleted = |record: &&ModelRecord| record.data.is_none();
            seen[5] += records.iter().filter(deleted).count();
            seen[6] += records.iter().filter(points).filter(deleted).count();
            let long =
                |record: &&ModelRecord| record.data.as_ref().is_some_and(|d| d.len() > 1 << 20);
            seen[7] += records.iter().filter(long).count();
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn the_cache_counts_what_it_saves() {
    let disk = MemoryDisk::new();
    let storage = try_open(disk, 1 << 20).unwrap();
    crate::support::commit(
        &storage,
        crate::support::stores(crate::support::tid(1), &[(1, &[1; 1000])]),
    )
    .unwrap();
    for _ in 0..3 {
        storage.reader().load_before(Oid(1), Tid::MAX, Access::NonBlocking).unwrap();
    }
    let statistics = storage.reader().cache_statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.entries), (3, 0, 1));
    assert_eq!(statistics.budget_bytes, 1 << 20);
    assert!((1000..statistics.budget_bytes).contains(&statistics.bytes));
    // Looking up several at once counts those that are there.
    storage.read_resident(&mut |revisions| {
        revisions.look_up(&[Oid(1), Oid(2), Oid(1)], &mut |_, _| ControlFlow::Continue(()));
    });
    assert_eq!(storage.reader().cache_statistics().hits, 5);
}

#[test]
fn a_new_revision_is_cached_if_the_one_before_was_loaded() {
    let storage = try_open(MemoryDisk::new(), 1 << 20).unwrap();
    let store = |number: u64| {
        let stores = crate::support::stores(crate::support::tid(number), &[(1, &[1; 1000])]);
        crate::support::commit(&storage, stores).unwrap();
        storage.reader().cache_statistics().entries
    };
    let load = || {
        let found = storage.reader().load_before(Oid(1), Tid::MAX, Access::Blocking).unwrap();
        assert!(matches!(found, Load::Revision(_)));
        storage.reader().cache_statistics().entries
    };
    assert_eq!(store(1), 1, "a new object");
    assert_eq!(store(2), 1, "no client has loaded the object");
    assert_eq!(load(), 2, "the load adds the revision");
    assert_eq!(store(3), 3, "the revision before was loaded");
    assert_eq!(store(4), 3, "that of the last commit was not");
    assert_eq!(load(), 4);
    assert_eq!(load(), 4);
    assert_eq!(store(5), 5);
}

#[test]
fn an_answer_stays_current_until_the_object_is_written() {
    let storage = open(MemoryDisk::new());
    let (one, two) = (Oid(1), Oid(2));
    crate::support::commit(
        &storage,
        crate::support::stores(crate::support::tid(1), &[(1, b"a"), (2, b"b")]),
    )
    .unwrap();
    let stamp = |oid| match storage.reader().load_before(oid, Tid::MAX, Access::Blocking).unwrap() {
        Load::Revision(revision) => revision.stamp,
        other => panic!("{other:?}"),
    };
    let (stamp_one, stamp_two) = (stamp(one), stamp(two));
    crate::support::commit(&storage, crate::support::stores(crate::support::tid(2), &[(1, b"c")]))
        .unwrap();
    assert!(!storage.reader().is_still_current(one, stamp_one));
    assert!(storage.reader().is_still_current(two, stamp_two));
}

#[test]
fn new_oids_are_above_all_that_were_stored() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    assert_eq!(storage.new_oids(3), Some(1..=3));
    crate::support::commit(&storage, crate::support::stores(crate::support::tid(1), &[(10, b"a")]))
        .unwrap();
    assert_eq!(storage.new_oids(1), Some(11..=11));
    drop(storage);
    let reopened = open(disk.clone());
    assert_eq!(reopened.new_oids(100), Some(11..=110));
}

#[test]
fn new_oids_begin_behind_a_gap_when_a_file_with_objects_is_opened_again() {
    let disk = MemoryDisk::new();
    let open = |new_oids_gap| {
        let options = OpenOptions { new_oids_gap, ..OpenOptions::new(crate::support::data_file()) };
        FileStorage::open(Arc::new(disk.clone()), &options).unwrap()
    };
    let storage = open(1000);
    // Nothing was ever stored: no session holds an oid.
    assert_eq!(storage.new_oids(100), Some(1..=100));
    crate::support::commit(&storage, crate::support::stores(crate::support::tid(1), &[(7, b"a")]))
        .unwrap();
    // These are held by a client that outlives the server.
    assert_eq!(storage.new_oids(100), Some(101..=200));
    drop(storage);
    let storage = open(1000);
    assert_eq!(storage.new_oids(1), Some(1008..=1008));
    // What was held is stored: it is no longer the largest.
    crate::support::commit(
        &storage,
        crate::support::stores(crate::support::tid(2), &[(150, b"b")]),
    )
    .unwrap();
    assert_eq!(storage.new_oids(1), Some(1009..=1009));
    drop(storage);
    assert_eq!(open(u64::MAX).new_oids(1), Some(151..=151), "none are left behind the gap");
}

#[test]
fn nothing_is_visible_before_it_is_published() {
    let storage = open(MemoryDisk::new());
    let (tid, new) = crate::support::stores(crate::support::tid(1), &[(1, b"a")]);
    let prepared = crate::support::prepare(&storage, new).unwrap();
    let appended = storage.append(vec![(tid, prepared)]).unwrap();
    let load = storage.reader().load_before(Oid(1), Tid::MAX, Access::Blocking).unwrap();
    assert!(matches!(load, Load::Missing));
    assert!(storage.reader().iterate(None, None).unwrap().step().unwrap().is_none());
    assert_eq!(storage.size(), 4);
    for appended in appended {
        storage.publish(appended);
    }
    let load = storage.reader().load_before(Oid(1), Tid::MAX, Access::Blocking).unwrap();
    assert!(matches!(load, Load::Revision(_)));
}
