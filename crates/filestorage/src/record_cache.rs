//! A bounded cache of immutable records by their position in the file, hits without a lock.
//!
//! A record never changes, so a hit needs no agreement with anybody: it reads a line of the
//! table, borrows the record through `arc_swap` (which notes the loan in memory of the reading
//! thread) and writes nothing that other threads read, but for the reference bit when it is clear.
//!
//! The table is set-associative: eight places for a position, in one set. Eviction is CLOCK: a
//! hand goes round over the sets, spares once what was hit since it last came by, and takes the
//! rest, until there is room. Writers, that is whoever had to read the disk, share a lock.
//!
//! **Invariants.** A tag says what its place may hold, only the record itself proves it. The
//! table's own memory counts as used and comes into being piece by piece with its first records;
//! an idle cache takes a directory of 200 bytes for each MB of its budget.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

/// What the cache needs to know of a record. Both answers must never change.
pub(crate) trait Weighted {
    /// Where the record begins in the file, which is its key: above 0, below 2^63.
    fn position(&self) -> u64;

    /// The bytes it keeps in memory beside the size of the type: what it alone points to.
    fn bytes(&self) -> usize;
}

/// A cache of records of one file, shared by all workers.
///
/// A position means another record once the file is replaced by a packed one, so a cache lives
/// and dies with the file it was made for.
pub(crate) struct RecordCache<T> {
    budget_bytes: usize,
    sets: usize,
    segments: Box<[OnceLock<Segment<T>>]>,
    writer: Mutex<Writer>,
    lookups: LookupCounters,
}

/// What the cache of records has done and holds. Taken while others use it, so the figures are of
/// about the same moment, not of exactly the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCacheStatistics {
    /// Lookups that found their record.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Records evicted to make room.
    pub evictions: u64,
    /// Records held.
    pub entries: usize,
    /// Bytes held: the records, what it takes to keep them, and the table. At most the budget.
    pub bytes: usize,
    /// The most it may hold.
    pub budget_bytes: usize,
}

/// Sets which come into being together.
type Segment<T> = Box<[Set<T>]>;

/// The places a position can be at. Two cache lines, filled from the front: most lookups need
/// the first only.
#[repr(align(64))]
struct Set<T> {
    places: [Place<T>; SET_PLACES],
}

struct Place<T> {
    /// The position of the record, or [`EMPTY`], with [`REFERENCED`].
    tag: AtomicU64,
    record: ArcSwapOption<T>,
}

/// What only one thread at a time may do: insert and evict.
struct Writer {
    bytes: usize,
    entries: usize,
    evictions: u64,
    /// The place the clock's hand is at, counted over all sets.
    hand: usize,
}

/// Counts in as many places as it takes for threads not to fight over a cache line.
struct LookupCounters {
    cells: Box<[LookupCell; LOOKUP_CELLS]>,
}

#[derive(Default)]
#[repr(align(128))]
struct LookupCell {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The tag of a free place; no record lies at the start of the file.
const EMPTY: u64 = 0;

/// Set in a tag by a hit, cleared by the clock's hand.
const REFERENCED: u64 = 1 << 63;

const SET_PLACES: usize = 8;
/// Places for 500 million records; bounds what an enormous budget costs before it is used.
const SETS_MAX: usize = 1 << 26;
const SEGMENT_SETS: usize = 64;
const SEGMENT_PLACES: usize = SEGMENT_SETS * SET_PLACES;
const LOOKUP_CELLS: usize = 32;

/// One place for so much budget: enough that with records of a few hundred bytes, the smallest
/// that occur in numbers, the budget is what limits the cache. A place takes 16 bytes, so the
/// table takes a sixteenth of the budget at most.
const BUDGET_BYTES_PER_PLACE: usize = 256;

/// The two counters of an `Arc` and what an allocator keeps for the two or three allocations a
/// record consists of.
const ALLOCATION_BYTES: usize = 64;

/// A record may take an eighth of the budget: one large object must not sweep out all others.
const RECORD_BUDGET_SHARE: usize = 8;

const _: () = assert!(size_of::<Set<u64>>() == 128);

impl<T: Weighted> RecordCache<T> {
    /// A cache that never holds more than `budget_bytes`; with 0 it never holds anything.
    pub(crate) fn new(budget_bytes: usize) -> RecordCache<T> {
        let sets = (budget_bytes / (BUDGET_BYTES_PER_PLACE * SET_PLACES)).min(SETS_MAX);
        let segments = sets.div_ceil(SEGMENT_SETS);
        RecordCache {
            budget_bytes,
            sets,
            segments: std::iter::repeat_with(OnceLock::new).take(segments).collect(),
            writer: Mutex::new(Writer { bytes: 0, entries: 0, evictions: 0, hand: 0 }),
            lookups: LookupCounters::new(),
        }
    }

    /// Lends the record at `position` to `read`, for the time of the call. `None` on a miss.
    ///
    /// Cheaper than [`RecordCache::lookup`]: not even the record's reference count is touched.
    #[inline]
    pub(crate) fn with<R>(&self, position: u64, read: impl FnOnce(&T) -> R) -> Option<R> {
        let found = self.find(position);
        self.lookups.count_one(found.is_some());
        found.as_ref().and_then(|record| record.as_deref()).map(read)
    }

    /// As [`RecordCache::with`], but a hit has to be [counted](RecordCache::count_hits) by the
    /// caller, and a miss by its next lookup.
    #[inline]
    pub(crate) fn with_uncounted<R>(&self, position: u64, read: impl FnOnce(&T) -> R) -> Option<R> {
        self.find(position).as_ref().and_then(|record| record.as_deref()).map(read)
    }

    /// Counts lookups that found their records.
    pub(crate) fn count_hits(&self, hits: u64) {
        self.lookups.count(hits, 0);
    }

    /// The record at `position`. `None` on a miss.
    #[inline]
    pub(crate) fn lookup(&self, position: u64) -> Option<Arc<T>> {
        let found = self.find(position);
        self.lookups.count_one(found.is_some());
        found.and_then(Guard::into_inner)
    }

    /// Keeps a record that was read from the file, evicting others until it fits. Does nothing
    /// with a record that is there already, or takes more than an eighth of the budget.
    pub(crate) fn insert(&self, record: Arc<T>) {
        let position = record.position();
        let weight = weight(&*record);
        if position == EMPTY
            || position & REFERENCED != 0
            || weight > self.budget_bytes / RECORD_BUDGET_SHARE
        {
            return;
        }
        // Declared before the lock, so dropped after it: freeing large records takes its time.
        let mut evicted = Vec::new();
        let mut writer = self.writer.lock();
        let Some(set) = self.set_or_make(position, &mut writer) else { return };
        if set.place_of(position).is_some() {
            return;
        }
        while writer.bytes + weight > self.budget_bytes {
            let Some(record) = self.evict_at_hand(&mut writer) else { return };
            evicted.push(record);
        }
        let place = set.place_of(EMPTY).unwrap_or_else(|| {
            let place = set.least_used_place(writer.evictions as usize);
            evicted.extend(writer.evict(place));
            place
        });
        writer.bytes += weight;
        writer.entries += 1;
        place.put(position, record);
    }

    /// What the cache has done and holds.
    pub(crate) fn statistics(&self) -> RecordCacheStatistics {
        let (hits, misses) = self.lookups.sum();
        let writer = self.writer.lock();
        RecordCacheStatistics {
            hits,
            misses,
            evictions: writer.evictions,
            entries: writer.entries,
            bytes: writer.bytes,
            budget_bytes: self.budget_bytes,
        }
    }

    #[inline]
    fn find(&self, position: u64) -> Option<Guard<Option<Arc<T>>>> {
        let set = self.set(self.set_number(position))?;
        for Place { tag, record } in &set.places {
            // Acquire pairs with Release in `Place::put`: the record is there before its tag.
            let seen = tag.load(Ordering::Acquire);
            if seen & !REFERENCED != position {
                continue;
            }
            let record = record.load();
            if record.as_ref().is_some_and(|record| record.position() == position) {
                if seen & REFERENCED == 0 {
                    // Fails when the place is being given to another record: then so be it.
                    let marked = seen | REFERENCED;
                    let _ =
                        tag.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed);
                }
                return Some(record);
            }
        }
        None
    }

    /// The set of a position. Records of one size lie at regular distances: Fibonacci hashing
    /// spreads them, and its high bits scale to any number of sets.
    #[inline]
    fn set_number(&self, position: u64) -> usize {
        let mixed = position.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mixed) * self.sets as u128) >> 64) as usize
    }

    /// `None` where nothing has been inserted yet, and always when the budget is too small.
    #[inline]
    fn set(&self, number: usize) -> Option<&Set<T>> {
        self.segments.get(number / SEGMENT_SETS)?.get()?.get(number % SEGMENT_SETS)
    }

    fn set_or_make(&self, position: u64, writer: &mut Writer) -> Option<&Set<T>> {
        let number = self.set_number(position);
        let segment_number = number / SEGMENT_SETS;
        let segment = self.segments.get(segment_number)?.get_or_init(|| {
            let sets = (self.sets - segment_number * SEGMENT_SETS).min(SEGMENT_SETS);
            writer.bytes += sets * size_of::<Set<T>>();
            std::iter::repeat_with(Set::new).take(sets).collect()
        });
        segment.get(number % SEGMENT_SETS)
    }

    /// Evicts the next record that has not been hit since the hand came by; `None` when there is
    /// no record at all.
    ///
    /// On average the hand passes 1 place for each 256 bytes it evicts, twice that when all are
    /// in use: the table is sized so.
    fn evict_at_hand(&self, writer: &mut Writer) -> Option<Arc<T>> {
        let places = self.sets * SET_PLACES;
        let mut passed = 0;
        // The second round takes whatever it meets: readers may mark as fast as the hand clears.
        while passed < 2 * places {
            let (set_number, place) = (writer.hand / SET_PLACES, writer.hand % SET_PLACES);
            let set = self.set(set_number);
            let step = match set {
                Some(_) => 1,
                None => SEGMENT_PLACES - writer.hand % SEGMENT_PLACES,
            };
            writer.hand = if writer.hand + step < places { writer.hand + step } else { 0 };
            passed += step;
            let Some(place) = set.and_then(|set| set.places.get(place)) else { continue };
            if !place.is_free() && (place.spend_chance() || passed > places) {
                return writer.evict(place);
            }
        }
        None
    }
}

impl<T> Set<T> {
    fn new() -> Set<T> {
        let places = std::array::from_fn(|_| Place {
            tag: AtomicU64::new(EMPTY),
            record: ArcSwapOption::empty(),
        });
        Set { places }
    }

    /// The place of a position, or the first free one for [`EMPTY`]. For writers.
    fn place_of(&self, position: u64) -> Option<&Place<T>> {
        self.places.iter().find(|place| place.position() == position)
    }

    /// The first place from `start` on, going round, that was not hit lately. When all were, none
    /// is marked any more.
    fn least_used_place(&self, start: usize) -> &Place<T> {
        let start = start % SET_PLACES;
        let (before, after) = self.places.split_at(start);
        let place = after.iter().chain(before).find(|place| place.spend_chance());
        place.unwrap_or(&self.places[start])
    }
}

impl<T> Place<T> {
    fn position(&self) -> u64 {
        self.tag.load(Ordering::Relaxed) & !REFERENCED
    }

    fn is_free(&self) -> bool {
        self.position() == EMPTY
    }

    /// Takes the mark of a hit away; whether there was none.
    fn spend_chance(&self) -> bool {
        if self.tag.load(Ordering::Relaxed) & REFERENCED == 0 {
            return true;
        }
        self.tag.fetch_and(!REFERENCED, Ordering::Relaxed);
        false
    }

    fn put(&self, position: u64, record: Arc<T>) {
        self.record.store(Some(record));
        self.tag.store(position, Ordering::Release);
    }

    fn take(&self) -> Option<Arc<T>> {
        self.tag.store(EMPTY, Ordering::Relaxed);
        self.record.swap(None)
    }
}

impl Writer {
    fn evict<T: Weighted>(&mut self, place: &Place<T>) -> Option<Arc<T>> {
        let record = place.take()?;
        self.bytes -= weight(&*record);
        self.entries -= 1;
        self.evictions += 1;
        Some(record)
    }
}

impl LookupCounters {
    fn new() -> LookupCounters {
        LookupCounters { cells: Box::new(std::array::from_fn(|_| LookupCell::default())) }
    }

    #[inline]
    fn count_one(&self, is_hit: bool) {
        self.count(u64::from(is_hit), u64::from(!is_hit));
    }

    #[inline]
    fn count(&self, hits: u64, misses: u64) {
        let cell = &self.cells[thread_number() % LOOKUP_CELLS];
        for (counter, count) in [(&cell.hits, hits), (&cell.misses, misses)] {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    fn sum(&self) -> (u64, u64) {
        self.cells.iter().fold((0, 0), |(hits, misses), cell| {
            let (more_hits, more_misses) =
                (cell.hits.load(Ordering::Relaxed), cell.misses.load(Ordering::Relaxed));
            (hits + more_hits, misses + more_misses)
        })
    }
}

fn weight<T: Weighted>(record: &T) -> usize {
    record.bytes().saturating_add(size_of::<T>() + ALLOCATION_BYTES)
}

/// A number that neighbouring threads do not share.
#[inline]
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Claims to take `bytes`, whatever it really takes.
    #[derive(Debug)]
    struct TestRecord {
        position: u64,
        bytes: usize,
        content: u64,
    }

    impl Weighted for TestRecord {
        fn position(&self) -> u64 {
            self.position
        }

        fn bytes(&self) -> usize {
            self.bytes
        }
    }

    const TEST_OVERHEAD_BYTES: usize = size_of::<TestRecord>() + ALLOCATION_BYTES;

    fn record(position: u64, bytes: usize) -> Arc<TestRecord> {
        Arc::new(TestRecord { position, bytes, content: content_of(position) })
    }

    fn content_of(position: u64) -> u64 {
        position.wrapping_mul(0x1234_5678_9abc_def1) ^ 0x5555
    }

    /// Without marking it as used.
    fn holds(cache: &RecordCache<TestRecord>, position: u64) -> bool {
        let set = cache.set(cache.set_number(position));
        set.is_some_and(|set| set.place_of(position).is_some())
    }

    /// Adds up what is really there, to compare it with what the cache has counted.
    fn assert_counted_well(cache: &RecordCache<TestRecord>) {
        let sets: Vec<_> = cache.segments.iter().filter_map(|s| s.get()).flatten().collect();
        let mut positions = HashSet::new();
        let mut bytes = sets.len() * 128;
        for place in sets.iter().flat_map(|set| &set.places) {
            let position = place.position();
            let record = place.record.load();
            assert_eq!(position, record.as_ref().map_or(EMPTY, |record| record.position));
            if let Some(record) = record.as_ref() {
                assert!(positions.insert(position), "position {position} is there twice");
                bytes += record.bytes + TEST_OVERHEAD_BYTES;
            }
        }
        let statistics = cache.statistics();
        assert_eq!((statistics.entries, statistics.bytes), (positions.len(), bytes));
        assert!(bytes <= statistics.budget_bytes, "{bytes} > {}", statistics.budget_bytes);
    }

    #[test]
    fn inserted_record_is_found_by_its_position_only() {
        let cache = RecordCache::new(1 << 20);
        cache.insert(record(4, 100));
        assert_eq!(cache.lookup(4).map(|record| record.content), Some(content_of(4)));
        assert_eq!(cache.with(4, |record| record.position), Some(4));
        for position in [0, 5, 4 | REFERENCED, u64::MAX] {
            assert!(cache.lookup(position).is_none());
        }
        let statistics = cache.statistics();
        assert_eq!((statistics.hits, statistics.misses, statistics.entries), (2, 4, 1));
    }

    #[test]
    fn record_inserted_twice_is_held_once() {
        let cache = RecordCache::new(1 << 20);
        let first = record(4, 100);
        cache.insert(Arc::clone(&first));
        cache.insert(record(4, 100));
        assert!(cache.lookup(4).is_some_and(|found| Arc::ptr_eq(&found, &first)));
        assert_counted_well(&cache);
    }

    #[test]
    fn impossible_positions_are_not_kept() {
        let cache = RecordCache::new(1 << 20);
        for position in [0, REFERENCED, u64::MAX] {
            cache.insert(record(position, 100));
            assert!(cache.lookup(position).is_none());
        }
        assert_counted_well(&cache);
    }

    #[test]
    fn no_budget_is_no_cache() {
        for budget_bytes in [0, 1, 2047] {
            let cache = RecordCache::new(budget_bytes);
            cache.insert(record(4, 0));
            assert!(cache.lookup(4).is_none());
            assert_eq!(cache.statistics().bytes, 0);
        }
    }

    #[test]
    fn idle_cache_takes_little_whatever_its_budget() {
        let unlimited = RecordCache::<TestRecord>::new(usize::MAX);
        assert!(size_of_val(&*unlimited.segments) <= 32 << 20);
        let cache = RecordCache::<TestRecord>::new(256 << 20);
        assert!(size_of_val(&*cache.segments) <= 64 << 10);
        cache.insert(record(4, 100));
        assert!(cache.statistics().bytes < 10_000);
    }

    #[test]
    fn record_above_an_eighth_of_the_budget_is_not_kept() {
        let cache = RecordCache::new(80_000);
        cache.insert(record(4, 10_000 - TEST_OVERHEAD_BYTES));
        cache.insert(record(5, 10_001 - TEST_OVERHEAD_BYTES));
        cache.insert(record(6, usize::MAX));
        assert!(holds(&cache, 4) && !holds(&cache, 5) && !holds(&cache, 6));
    }

    #[test]
    fn hot_records_survive_a_scan_of_cold_ones() {
        let cache = RecordCache::new(1 << 20);
        let hot = 1..100;
        for position in hot.clone() {
            cache.insert(record(position, 1000));
        }
        for cold in 1000..20_000 {
            if cold % 200 == 0 {
                assert!(hot.clone().all(|position| cache.with(position, |_| ()).is_some()));
            }
            cache.insert(record(cold, 1000));
        }
        assert!(hot.clone().all(|position| holds(&cache, position)));
        assert_counted_well(&cache);
    }

    #[test]
    fn hot_records_survive_in_a_crowded_set() {
        // One set: its eight places are the limit, not the budget.
        let cache = RecordCache::new(4095);
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
        let cache = RecordCache::new(1 << 20);
        for position in 1..2000 {
            cache.insert(record(position, 1000));
            assert!(cache.lookup(position).is_some());
        }
        assert!(!holds(&cache, 1) && holds(&cache, 1999));
        assert_counted_well(&cache);
    }

    #[test]
    fn small_records_fill_most_of_the_budget() {
        let cache = RecordCache::new(4 << 20);
        for position in 1..100_000 {
            cache.insert(record(position * 350, 350 - TEST_OVERHEAD_BYTES));
        }
        let statistics = cache.statistics();
        assert!(statistics.bytes > statistics.budget_bytes / 100 * 90, "{statistics:?}");
        assert_counted_well(&cache);
    }

    #[test]
    fn evicted_record_lives_as_long_as_it_is_used() {
        let cache = RecordCache::new(2048);
        cache.insert(record(4, 0));
        let held = cache.lookup(4).unwrap();
        let seen = cache.with(held.position, |lent| {
            for position in 100..200 {
                cache.insert(record(position, 0));
            }
            assert!(!holds(&cache, 4));
            lent.content
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
            let cache = RecordCache::new(budget_bytes);
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
        let cache = RecordCache::new(200_000);
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

    fn read_until(seed: u64, cache: &RecordCache<TestRecord>, done: &AtomicBool) -> u64 {
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

    fn insert_many(seed: u64, cache: &RecordCache<TestRecord>) {
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
}
