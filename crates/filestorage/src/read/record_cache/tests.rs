//! Tests of the cache of records.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::table::SET_PLACES;
use super::*;

/// A record that claims to take `bytes`, whatever it really takes.
#[derive(Debug)]
struct TestRecord {
    position: u64,
    bytes: usize,
    content: u64,
}

impl Weighted for Arc<TestRecord> {
    fn position(&self) -> u64 {
        self.position
    }

    fn bytes(&self) -> usize {
        self.bytes.saturating_add(size_of::<TestRecord>())
    }
}

type TestCache = RecordCache<Arc<TestRecord>>;

const TEST_OVERHEAD_BYTES: usize = size_of::<TestRecord>() + ALLOCATION_BYTES;

fn record(position: u64, bytes: usize) -> Arc<TestRecord> {
    Arc::new(TestRecord { position, bytes, content: content_of(position) })
}

fn content_of(position: u64) -> u64 {
    position.wrapping_mul(0x1234_5678_9abc_def1) ^ 0x5555
}

/// Looks for a record without marking it as used.
fn holds(cache: &TestCache, position: u64) -> bool {
    cache.table.set(position).is_some_and(|set| set.place_of(position).is_some())
}

/// Adds up the real contents, and compares them with the counts of the cache.
fn assert_counted_well(cache: &TestCache) {
    let mut positions = HashSet::new();
    let mut bytes = cache.table.allocated_bytes();
    for place in (0..cache.table.places()).filter_map(|number| cache.table.place(number)) {
        let position = place.position();
        let record = place.borrow();
        assert_eq!(position, record.as_ref().map_or(0, |record| record.position));
        if let Some(record) = record.as_ref() {
            assert!(positions.insert(position), "position {position} is there twice");
            assert!(cache.table.find(position).is_some_and(|found| std::ptr::eq(found, place)));
            bytes += record.bytes + TEST_OVERHEAD_BYTES;
        }
    }
    let statistics = cache.statistics();
    assert_eq!((statistics.entries, statistics.bytes), (positions.len(), bytes));
    assert!(bytes <= statistics.budget_bytes, "{bytes} > {}", statistics.budget_bytes);
}

#[test]
fn inserted_record_is_found_by_its_position_only() {
    let cache = TestCache::new(1 << 20);
    cache.insert(record(4, 100));
    assert_eq!(cache.lookup(4).map(|record| record.content), Some(content_of(4)));
    assert_eq!(cache.with(4, |record| record.position), Some(4));
    for position in [0, 5, 4 | (1 << 63), u64::MAX] {
        assert!(cache.lookup(position).is_none());
    }
    cache.count_miss();
    let statistics = cache.statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.entries), (2, 1, 1));
}

#[test]
fn record_inserted_twice_is_held_once() {
    let cache = TestCache::new(1 << 20);
    let first = record(4, 100);
    cache.insert(Arc::clone(&first));
    cache.insert(record(4, 100));
    assert!(cache.lookup(4).is_some_and(|found| Arc::ptr_eq(&found, &first)));
    assert_counted_well(&cache);
}

#[test]
fn impossible_positions_are_not_kept() {
    let cache = TestCache::new(1 << 20);
    for position in [0, 1 << 63, u64::MAX] {
        cache.insert(record(position, 100));
        assert!(cache.lookup(position).is_none());
    }
    assert_counted_well(&cache);
}

#[test]
fn a_record_was_hit_if_it_came_so_or_was_found() {
    let cache = TestCache::new(1 << 20);
    cache.insert(record(4, 100));
    cache.insert_hit(record(5, 100));
    assert_eq!([4, 5, 6].map(|position| cache.was_hit(position)), [false, true, false]);
    assert!(cache.lookup(4).is_some() && cache.was_hit(4));
    // While the table grows, too.
    (100..2000).for_each(|position| cache.insert(record(position, 100)));
    assert_eq!([4, 5, 100].map(|position| cache.was_hit(position)), [true, true, false]);
    assert_counted_well(&cache);
}

#[test]
fn no_budget_is_no_cache() {
    for budget_bytes in [0, 1, 2047] {
        let cache = TestCache::new(budget_bytes);
        cache.insert(record(4, 0));
        assert!(cache.lookup(4).is_none());
        assert_eq!(cache.statistics().bytes, 0);
    }
}

#[test]
fn idle_cache_takes_little_whatever_its_budget() {
    let unlimited = TestCache::new(usize::MAX);
    assert!(unlimited.table.directory_bytes() <= 32 << 20);
    let cache = TestCache::new(256 << 20);
    assert!(cache.table.directory_bytes() <= 64 << 10);
    cache.insert(record(4, 100));
    assert!(cache.statistics().bytes < 10_000);
}

#[test]
fn the_table_grows_to_what_the_budget_allows_and_no_further() {
    for sets in [1, 63, 64, 65, 100, 128, 130] {
        // A place for each 256 bytes.
        let cache = TestCache::new(sets * SET_PLACES * 256);
        (1..2000).for_each(|position| cache.insert(record(position, 0)));
        assert_eq!(cache.table.places(), sets * SET_PLACES);
        // A place takes 16 bytes.
        assert_eq!(cache.table.allocated_bytes(), sets * SET_PLACES * 16, "{sets} sets");
        assert_counted_well(&cache);
    }
}

#[test]
fn record_above_an_eighth_of_the_budget_is_not_kept() {
    let cache = TestCache::new(80_000);
    cache.insert(record(4, 10_000 - TEST_OVERHEAD_BYTES));
    cache.insert(record(5, 10_001 - TEST_OVERHEAD_BYTES));
    cache.insert(record(6, usize::MAX));
    assert!(holds(&cache, 4) && !holds(&cache, 5) && !holds(&cache, 6));
}

#[test]
fn hot_records_survive_a_scan_of_cold_ones() {
    let cache = TestCache::new(1 << 20);
    let hot = 1..100;
    for position in hot.clone() {
        cache.insert(record(position, 1000));
    }
    for cold in 1000..20_000 {
        if cold % 200 == 0 {
            // A set with more hot records than places may lose one.
            let hits = hot.clone().filter(|position| cache.with(*position, |_| ()).is_some());
            assert!(hits.count() >= 97);
        }
        cache.insert(record(cold, 1000));
    }
    assert_counted_well(&cache);
}

#[test]
fn records_at_any_regular_distance_are_spread() {
    for distance in 42..600 {
        let cache = TestCache::new(8 << 20);
        let held = (1..=1000).map(|number| number * distance);
        held.clone().for_each(|position| cache.insert(record(position, 10)));
        let found = held.filter(|position| holds(&cache, *position)).count();
        assert!(found >= 995, "{found} at {distance}");
    }
}

#[test]
fn hot_records_survive_in_a_crowded_set() {
    // One set: its eight places are the limit, not the budget.
    let cache = TestCache::new(4095);
    for position in 1..=4 {
        cache.insert(record(position, 0));
    }
    for cold in 100..200 {
        (1..=4).for_each(|hot| assert!(cache.lookup(hot).is_some(), "{hot} before {cold}"));
        cache.insert(record(cold, 0));
        assert!(holds(&cache, cold));
    }
    assert_eq!(cache.statistics().entries, SET_PLACES);
    assert_counted_well(&cache);
}

#[test]
fn records_that_are_not_hit_any_more_make_room() {
    let cache = TestCache::new(1 << 20);
    for position in 1..2000 {
        cache.insert(record(position, 1000));
        assert!(cache.lookup(position).is_some());
    }
    assert!(!holds(&cache, 1) && holds(&cache, 1999));
    assert_counted_well(&cache);
}

#[test]
fn small_records_fill_most_of_the_budget() {
    let cache = TestCache::new(4 << 20);
    for position in 1..100_000 {
        cache.insert(record(position * 350, 350 - TEST_OVERHEAD_BYTES));
    }
    let statistics = cache.statistics();
    assert!(statistics.bytes > statistics.budget_bytes / 100 * 90, "{statistics:?}");
    assert_counted_well(&cache);
}

#[test]
fn evicted_record_lives_as_long_as_it_is_used() {
    let cache = TestCache::new(2048);
    cache.insert(record(4, 0));
    let held = cache.lookup(4).unwrap();
    let seen = cache.with(held.position, |borrowed| {
        for position in 100..200 {
            cache.insert(record(position, 0));
        }
        assert!(!holds(&cache, 4));
        borrowed.content
    });
    assert_eq!(seen, Some(content_of(4)));
    assert_eq!(Arc::strong_count(&held), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, usize),
    Lookup(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..300_u64, 0..3000_usize).prop_map(|(position, bytes)| Step::Insert(position, bytes)),
        (0..300_u64).prop_map(Step::Lookup),
    ]
}

proptest! {
    #[test]
    fn never_lies_and_never_exceeds_its_budget(
        budget_bytes in 0..60_000_usize,
        steps in prop::collection::vec(any_step(), 1..400),
    ) {
        let cache = TestCache::new(budget_bytes);
        let mut inserted = HashSet::new();
        for step in steps {
            match step {
                Step::Insert(position, bytes) => {
                    cache.insert(record(position, bytes));
                    inserted.insert(position);
                    let fits = bytes + TEST_OVERHEAD_BYTES <= budget_bytes / 8;
                    prop_assert!(holds(&cache, position) || !fits || budget_bytes < 2048);
                }
                Step::Lookup(position) => if let Some(found) = cache.lookup(position) {
                    prop_assert_eq!(found.position, position);
                    prop_assert!(inserted.contains(&position));
                }
            }
            assert_counted_well(&cache);
        }
    }
}

#[test]
fn readers_get_the_right_record_or_none_while_others_evict() {
    let cache = TestCache::new(200_000);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                scope.spawn({
                    let (cache, done) = (&cache, &done);
                    move || read_until(seed, cache, done)
                })
            })
            .collect();
        let writers: Vec<_> = (10..12)
            .map(|seed| {
                scope.spawn({
                    let cache = &cache;
                    move || insert_many(seed, cache)
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Release);
        let hits: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(hits > 1000 && cache.statistics().hits == hits);
    });
    assert!(cache.statistics().evictions > 100_000);
    assert_counted_well(&cache);
}

fn read_until(seed: u64, cache: &TestCache, done: &AtomicBool) -> u64 {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut hits = 0;
    while !done.load(Ordering::Acquire) {
        let position = random.random_range(1..1000);
        let content = match random.random::<bool>() {
            true => cache.with(position, |record| record.content),
            false => cache.lookup(position).map(|record| record.content),
        };
        hits += u64::from(content.is_some());
        assert!(content.is_none_or(|content| content == content_of(position)));
    }
    hits
}

fn insert_many(seed: u64, cache: &TestCache) {
    let mut random = SmallRng::seed_from_u64(seed);
    for step in 0..200_000 {
        let bytes = random.random_range(0..2000);
        cache.insert(record(random.random_range(1..1000), bytes));
        if step % 1000 == 0 {
            let statistics = cache.statistics();
            assert!(statistics.bytes <= statistics.budget_bytes);
        }
    }
}

#[test]
fn several_are_found_at_once_as_one_by_one() {
    let cache = TestCache::new(1 << 20);
    for position in 1..=100 {
        cache.insert(record(position, 100));
    }
    let found = cache.find_each(&[7, 0, 200, 7, 100, u64::MAX]);
    let contents = found.map(|record| record.and_then(|r| r.as_ref().map(|r| r.content)));
    let [seven, hundred] = [7, 100].map(|position| Some(content_of(position)));
    assert_eq!(contents, [seven, None, None, seven, hundred, None]);
    assert_eq!(cache.statistics().hits, 0, "they were counted");
}

#[test]
fn a_borrowed_record_outlives_its_place() {
    let cache = TestCache::new(2048);
    (1..=4).for_each(|position| cache.insert(record(position, 0)));
    let borrowed = cache.find_each(&[1, 2, 3, 4]);
    (100..200).for_each(|position| cache.insert(record(position, 0)));
    for (position, record) in (1..).zip(&borrowed) {
        assert!(!holds(&cache, position));
        let record = record.as_ref().and_then(|record| record.as_ref());
        assert_eq!(record.map(|record| record.content), Some(content_of(position)));
    }
}

#[test]
fn a_table_grows_with_its_records_and_loses_none() {
    let cache = TestCache::new(64 << 20);
    for position in 1..=20_000 {
        cache.insert(record(position * 464, 300));
        if position % 1000 == 0 {
            let table_bytes = cache.table.allocated_bytes() as u64;
            assert!(table_bytes <= 8192 + 128 * position, "{table_bytes} for {position}");
        }
    }
    let held = (1..=20_000).filter(|position| holds(&cache, position * 464)).count();
    assert!(held > 19_990, "{held}");
    assert_counted_well(&cache);
}

#[test]
fn a_mark_moves_with_its_record() {
    // Eight sets and no more: when they are full, unmarked records are evicted.
    let cache = TestCache::new(8 * 2048);
    cache.insert(record(4, 0));
    assert!(cache.lookup(4).is_some());
    for cold in 100..130 {
        cache.insert(record(cold, 0));
    }
    assert_eq!(cache.table.places(), 8 * SET_PLACES);
    let set = cache.table.set(4).unwrap();
    assert!(!std::ptr::eq(set.least_used_place(0), cache.table.find(4).unwrap()));
}

#[test]
fn readers_find_what_is_there_while_the_table_grows() {
    let cache = TestCache::new(64 << 20);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (cache, done) = (&cache, &done);
                scope.spawn(move || read_until(seed, cache, done))
            })
            .collect();
        (1..=50_000).for_each(|position| cache.insert(record(position, 10)));
        done.store(true, Ordering::Release);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    });
    assert_counted_well(&cache);
}
