//! Loads: revisions, replicas, damage.

use std::time::Duration;

use zodium_neo_client::{NeoStorage, Options};
use zodium_storage::{Access, Load, Read, StorageError, Write};
use zodium_types::{Oid, Tid};

use crate::model::{Model, storage};
use crate::support::{
    PATIENCE, commit, current, follow, open, open_with_cache, options, text, write,
};

#[test]
fn revisions_are_found_and_later_ones_end_them() {
    let model = Model::start(1);
    let first = model.commit(&[(1, "one"), (2, "deleted")]);
    let second = model.commit(&[(1, &"two ".repeat(100)), (2, "")]);
    let neo = open(&model);
    assert_eq!(neo.last_tid(), second);
    let loaded = |oid, before| text(&neo, oid, before).unwrap();
    assert_eq!(loaded(1, second), Some(("one".to_owned(), first, Some(second))));
    assert_eq!(loaded(1, Tid::MAX), Some(("two ".repeat(100), second, None)));
    assert!(matches!(neo.load_before(Oid(1), first, Access::Blocking), Ok(Load::NoRevision)));
    for missing in [2, 3, u64::MAX] {
        assert!(matches!(
            neo.load_before(Oid(missing), Tid::MAX, Access::Blocking),
            Ok(Load::Missing)
        ));
    }
    assert!(matches!(neo.load_before(Oid(1), second, Access::NonBlocking), Ok(Load::WouldBlock)));
    assert_eq!(neo.current_serial(Oid(1)).unwrap(), Some(second));
    assert_eq!(neo.current_serial(Oid(9)).unwrap(), None);
}

#[test]
fn replicas_share_the_loads_and_take_over() {
    let model = Model::start(2);
    let objects: Vec<_> = (0..40).map(|oid| (oid, "data")).collect();
    model.commit(&objects);
    let neo = open(&model);
    let load_all = || {
        for (oid, data) in &objects {
            assert_eq!(current(&neo, *oid).as_deref(), Some(*data));
        }
    };
    load_all();
    let loads = model.state.lock().loads.clone();
    assert!(loads.values().all(|count| *count >= 15), "{loads:?}");
    model.state.lock().silent.insert(storage(1));
    load_all();
}

#[test]
fn damaged_data_are_read_from_another_replica_if_there_is_one() {
    let model = Model::start(2);
    model.commit(&[(1, "sound")]);
    let neo = open(&model);
    model.state.lock().damaged.insert(storage(1));
    for _ in 0..4 {
        assert_eq!(current(&neo, 1).as_deref(), Some("sound"));
    }
    model.state.lock().damaged.insert(storage(2));
    let error = text(&neo, 1, Tid::MAX).unwrap_err();
    assert!(matches!(error, StorageError::Corrupt(_)), "{error}");
    assert!(error.to_string().contains("do not have their SHA-1"), "{error}");
}

#[test]
fn answers_are_stale_after_a_commit_of_the_object() {
    let model = Model::start(1);
    model.commit(&[(1, "a"), (2, "a")]);
    let neo = open(&model);
    let commits = follow(&neo);
    let stamp = |oid| match neo.load_before(Oid(oid), Tid::MAX, Access::Blocking).unwrap() {
        Load::Revision(found) => found.stamp,
        _ => panic!("it is there"),
    };
    let stamps = [stamp(1), stamp(2)];
    let tid = model.commit(&[(1, "b")]);
    let told = commits.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!((told.tid, told.oids), (tid, vec![Oid(1)]));
    assert!(!neo.is_still_current(Oid(1), stamps[0]));
    assert!(neo.is_still_current(Oid(2), stamps[1]));
}

#[test]
fn oids_are_handed_out_once_in_a_row() {
    let model = Model::start(1);
    let neo = open(&model);
    assert_eq!(neo.new_oids(100), Some(1..=100));
    assert_eq!(neo.new_oids(900), Some(101..=1000));
    assert_eq!(neo.new_oids(5000), Some(1001..=6000));
    assert_eq!(neo.last_oid(), Oid(6000));
}

#[test]
fn transactions_of_all_partitions_are_read_in_order() {
    let model = Model::start(1);
    let tids: Vec<Tid> = (0..10).map(|oid| model.commit(&[(oid, "a"), (oid + 1, "b")])).collect();
    let neo = open(&model);
    let mut cursor = neo.iterate(Some(tids[2]), Some(tids[7])).unwrap();
    let mut seen = Vec::new();
    while let Some(transaction) = cursor.step().unwrap() {
        let mut records = cursor.records().unwrap();
        let first = records.step().unwrap().unwrap();
        assert_eq!(first.data.as_deref(), Some(&b"a"[..]));
        assert!(records.step().unwrap().is_some() && records.step().unwrap().is_none());
        seen.push(transaction.tid);
    }
    assert_eq!(seen, tids[2..=7]);
}

#[test]
fn current_revisions_are_kept_until_they_are_changed() {
    let model = Model::start(1);
    let first = model.commit(&[(1, "a"), (2, "a")]);
    let neo = open_with_cache(&model);
    let commits = follow(&neo);
    let loads = || model.state.lock().loads.values().sum::<usize>();
    let resident = |oid: u64, before| match neo.load_before(Oid(oid), before, Access::NonBlocking) {
        Ok(Load::Revision(found)) => Some((found.serial, found.end)),
        _ => None,
    };
    for _ in 0..3 {
        assert_eq!(current(&neo, 1).as_deref(), Some("a"));
        assert_eq!(current(&neo, 2).as_deref(), Some("a"));
    }
    assert_eq!(
        (loads(), resident(1, Tid::MAX), resident(1, first)),
        (2, Some((first, None)), None)
    );
    let second = model.commit(&[(1, "b")]);
    assert_eq!(commits.recv_timeout(Duration::from_secs(20)).unwrap().tid, second);
    assert_eq!((resident(1, Tid::MAX), resident(2, Tid::MAX)), (None, Some((first, None))));
    assert_eq!(text(&neo, 1, second).unwrap().unwrap().2, Some(second), "an old one is not kept");
    assert_eq!(resident(1, Tid::MAX), None);
    assert_eq!(current(&neo, 1).as_deref(), Some("b"));
    commit(&neo, &[write(1, second, "c")]).unwrap();
    assert_eq!(resident(1, Tid::MAX), None);
    assert_eq!(current(&neo, 1).as_deref(), Some("c"));
    assert_eq!(loads(), 5);
}

#[test]
fn backup_that_tells_of_no_commits_is_followed() {
    let model = Model::start(1);
    model.state.lock().is_backup = true;
    model.commit(&[(1, "a")]);
    let options = Options { read_only: true, ..options(&[model.master], 10) };
    let neo = NeoStorage::open(options).unwrap();
    let commits = follow(&neo);
    assert_eq!(current(&neo, 1).as_deref(), Some("a"));
    let missed = [model.commit(&[(1, "b")]), model.commit(&[(2, "c")])];
    for tid in missed {
        assert_eq!(commits.recv_timeout(PATIENCE).unwrap().tid, tid);
    }
    assert_eq!(current(&neo, 1).as_deref(), Some("b"));
    assert_eq!(neo.last_tid(), missed[1]);
}
