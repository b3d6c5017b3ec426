//! Models of the record cache: interleavings of writers and a reader (`make loom`).

use std::sync::Arc;

use super::table::SET_PLACES;
use super::*;
use crate::sync::beside;

#[derive(Debug)]
struct TestRecord(u64);

impl Weighted for Arc<TestRecord> {
    fn position(&self) -> u64 {
        self.0
    }

    fn bytes(&self) -> usize {
        0
    }
}

type TestCache = RecordCache<Arc<TestRecord>>;

/// A cache with this many sets and the records at `positions`.
fn cache(sets: usize, positions: &[u64]) -> TestCache {
    let cache = TestCache::new(sets * SET_PLACES * 256);
    insert(&cache, positions);
    cache
}

fn insert(cache: &TestCache, positions: &[u64]) {
    positions.iter().for_each(|position| cache.insert(Arc::new(TestRecord(*position))));
}

/// A hit gives the record of its position.
fn look_up(cache: &TestCache, position: u64) -> bool {
    let found = cache.with(position, |record| record.0);
    assert!(found.is_none_or(|found| found == position), "{found:?} for {position}");
    found.is_some()
}

/// Checks that every tag is of the record in its place, and that the figures match the places.
fn assert_sound(cache: &TestCache) {
    let mut entries = 0;
    for place in (0..cache.table.places()).filter_map(|number| cache.table.place(number)) {
        let record = place.borrow();
        assert_eq!(place.position(), record.as_ref().map_or(0, |record| record.0));
        if let Some(record) = record.as_ref() {
            entries += 1;
            assert!(look_up(cache, record.0), "a look-up misses {record:?}");
        }
    }
    let statistics = cache.statistics();
    assert_eq!(statistics.entries, entries);
    assert!(statistics.bytes <= statistics.budget_bytes);
}

/// A cache whose only set is full: each insertion evicts.
fn full() -> TestCache {
    cache(1, &[1, 2])
}

#[test]
fn a_reader_gets_its_record_or_none_while_its_place_is_given_away() {
    let read = |cache: &TestCache| {
        for position in [1, 3] {
            look_up(cache, position);
        }
    };
    beside(
        full,
        |cache| insert(cache, &[3, 4]),
        read,
        |cache| {
            assert_sound(cache);
            assert!(look_up(cache, 4));
        },
    );
}

#[test]
fn a_place_that_is_used_again_for_its_record_stays_sound() {
    let read = |cache: &TestCache| _ = look_up(cache, 1);
    beside(
        full,
        |cache| insert(cache, &[3, 4, 1]),
        read,
        |cache| {
            assert_sound(cache);
            assert!(look_up(cache, 1));
        },
    );
}

#[test]
fn a_borrowed_record_outlives_its_place() {
    let read = |cache: &TestCache| {
        let [borrowed] = cache.find_each(&[1]);
        look_up(cache, 3);
        let position = borrowed.map(|record| record.as_ref().map(|record| record.0));
        assert!([None, Some(Some(1))].contains(&position), "{position:?}");
    };
    beside(full, |cache| insert(cache, &[3, 4]), read, assert_sound);
}

#[test]
fn records_stay_sound_while_the_table_grows() {
    let read = |cache: &TestCache| {
        // The first record may be missed, but only while it moves.
        for position in [1, 3] {
            look_up(cache, position);
        }
    };
    beside(
        || cache(4, &[1]),
        |cache| insert(cache, &[2, 3]),
        read,
        |cache| {
            assert_eq!(cache.table.places(), 3 * SET_PLACES);
            assert_eq!(cache.statistics().entries, 3);
            assert_sound(cache);
        },
    );
}

#[test]
fn two_writers_of_one_record_keep_it_once() {
    let write = |cache: &TestCache| insert(cache, &[1]);
    let write_and_read = |cache: &TestCache| {
        insert(cache, &[1]);
        assert!(look_up(cache, 1));
    };
    beside(
        || cache(2, &[]),
        write,
        write_and_read,
        |cache| {
            assert_sound(cache);
            assert_eq!(cache.statistics().entries, 1);
        },
    );
}

#[test]
fn every_lookup_is_counted_once() {
    let miss = |cache: &TestCache| {
        assert!(!look_up(cache, 2));
        cache.count_miss();
    };
    beside(
        || cache(1, &[1]),
        |cache| assert!(look_up(cache, 1)),
        miss,
        |cache| {
            let RecordCacheStatistics { hits, misses, .. } = cache.statistics();
            assert_eq!((hits, misses), (1, 1));
        },
    );
}
