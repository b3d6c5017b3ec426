//! Walks over all objects, beside a pack.

use std::sync::atomic::{AtomicBool, Ordering};

use zodium_sql::SqlStorage;
use zodium_storage::Read;
use zodium_storage_kit::packs::referring;
use zodium_types::{Oid, Tid};

use crate::support::{commit, options, pack};

/// The last object, the only one that is kept besides the root.
const LAST: u64 = 120;
const ROUNDS: u32 = 80;
const WALKERS: u32 = 2;

/// The last object of a walk.
fn last_of_walk(storage: &SqlStorage) -> Option<Oid> {
    let (mut from, mut last) = (Some(Oid(0)), None);
    while let Some(step) = from.and_then(|from| storage.next_object(from).unwrap()) {
        (from, last) = (step.following, Some(step.oid));
    }
    last
}

#[test]
fn a_walk_goes_on_behind_objects_that_a_pack_drops() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let storage = SqlStorage::open(&options(&folder.path().join("neo.sqlite"), 1)).unwrap();
    let empty = |oid| referring(oid, &[]);
    commit(&storage, vec![referring(0, &[LAST]), empty(LAST)]);
    let is_over = AtomicBool::new(false);
    let walk = || {
        while !is_over.load(Ordering::Relaxed) {
            assert_eq!(last_of_walk(&storage), Some(Oid(LAST)));
        }
    };
    std::thread::scope(|scope| {
        let walks: Vec<_> = (0..WALKERS).map(|_| scope.spawn(walk)).collect();
        for _ in 0..ROUNDS {
            commit(&storage, (1..LAST).map(empty).collect());
            let packed = pack(&storage, Tid::MAX, true);
            if packed.is_none() || walks.iter().any(|walk| walk.is_finished()) {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(storage.object_count(), 2);
}
