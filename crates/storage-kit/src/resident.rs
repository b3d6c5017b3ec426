//! Revisions in memory. A storage need not keep any: then there is nothing to claim.

use std::ops::ControlFlow;

use zodium_types::{Oid, Tid};

use crate::Tester;

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
