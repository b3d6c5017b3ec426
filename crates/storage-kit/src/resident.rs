//! Revisions in memory. A storage need not keep any: then there is nothing to claim.

use std::ops::ControlFlow;

use zodium_storage::{Access, LOOKED_UP_TOGETHER, Load, Missed};
use zodium_types::{Oid, Tid};

use crate::Tester;
use crate::packs::pack;

/// What a look-up shows of these objects: data and serial of each, until it shows so many.
fn look_up(tester: &Tester, oids: &[u64], shown_max: usize) -> Vec<Option<(Vec<u8>, Tid)>> {
    let oids: Vec<Oid> = oids.iter().map(|oid| Oid(*oid)).collect();
    let mut found = Vec::new();
    tester.storage.read_resident(&mut |revisions| {
        revisions.look_up(&oids, &mut |number, revision| {
            assert_eq!(number, found.len());
            found.push(revision.map(|revision| {
                assert_eq!((revision.share)(), revision.data);
                (revision.data.to_vec(), revision.serial)
            }));
            if found.len() < shown_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    });
    found
}

pub fn resident_revisions_are_the_current_ones(tester: &Tester) {
    tester.store(1, "old");
    let new = tester.store(1, "new");
    let two = tester.store(2, "two");
    let found = look_up(tester, &[1, 2], 6);
    let expected = [(b"new".to_vec(), new), (b"two".to_vec(), two)];
    for (found, expected) in found.into_iter().zip(expected) {
        assert!(found.is_none_or(|found| found == expected));
    }
}

pub fn resident_look_up_can_be_broken_off(tester: &Tester) {
    for oid in 0..6 {
        tester.store(oid, "x");
    }
    assert!(look_up(tester, &[0, 1, 2, 3, 4, 5], 2).len() <= 2);
}

pub fn missing_object_is_not_resident(tester: &Tester) {
    tester.store(1, "gone");
    tester.delete(1);
    assert!(look_up(tester, &[1, 2], 6).into_iter().all(|found| found.is_none()));
}

pub fn look_up_of_many_objects_shows_the_first(tester: &Tester) {
    let oids: Vec<u64> = (0..20).collect();
    let tids: Vec<Tid> = oids.iter().map(|oid| tester.store(*oid, &oid.to_string())).collect();
    let found = look_up(tester, &oids, oids.len());
    assert!(found.len() <= LOOKED_UP_TOGETHER);
    for ((found, tid), oid) in found.into_iter().zip(tids).zip(oids) {
        assert!(found.is_none_or(|found| found == (oid.to_string().into_bytes(), tid)));
    }
}

/// Compares a load from memory with one that may wait, before that and after it.
fn check_load(tester: &Tester, oid: u64, before: Tid) {
    let resident = || tester.storage.load_resident(Oid(oid), before, &Missed::default()).unwrap();
    let first = resident();
    let load = tester.storage.load_before(Oid(oid), before, Access::Blocking).unwrap();
    for found in [first, resident()] {
        match (found, &load) {
            // It need not be in memory.
            (Load::WouldBlock, _)
            | (Load::NoRevision, Load::NoRevision)
            | (Load::Missing, Load::Missing) => {}
            (Load::Revision(one), Load::Revision(other)) => {
                assert_eq!((one.data, one.serial), (other.data.clone(), other.serial));
                assert_eq!(one.end, other.end);
            }
            (one, other) => panic!("object {oid} before {before}: {one:?} and {other:?}"),
        }
    }
}

fn check_loads(tester: &Tester, oids: &[u64], tids: &[Tid]) {
    let edges = [Tid::ZERO, Tid(1), Tid::MAX].into_iter();
    for before in tids.iter().flat_map(|tid| [*tid, tid.next()]).chain(edges) {
        oids.iter().for_each(|oid| check_load(tester, *oid, before));
    }
}

pub fn resident_loads_are_of_their_time(tester: &Tester) {
    let tids = [
        tester.store(1, "first"),
        tester.store(1, "second"),
        tester.store(2, "other"),
        tester.delete(1),
        tester.store(1, "again"),
        tester.delete(2),
    ];
    check_loads(tester, &[1, 2, 3], &tids);
}

pub fn resident_loads_see_each_commit(tester: &Tester) {
    for n in 0..20 {
        let tid = match n % 5 {
            4 => tester.delete(1),
            _ => tester.store(1, &n.to_string()),
        };
        check_loads(tester, &[1], &[tid]);
        let Load::Revision(found) =
            tester.storage.load_resident(Oid(1), Tid::MAX, &Missed::default()).unwrap()
        else {
            continue;
        };
        assert_eq!((found.serial, found.end), (tid, None));
    }
}

pub fn resident_loads_agree_after_a_pack(tester: &Tester) {
    let tids = [
        tester.store(1, "first"),
        tester.store(1, "second"),
        tester.store(2, "gone"),
        tester.delete(2),
        tester.store(3, "kept"),
    ];
    check_loads(tester, &[1, 2, 3], &tids);
    pack(tester, Tid::MAX, false);
    check_loads(tester, &[1, 2, 3], &tids);
}
