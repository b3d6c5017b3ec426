//! A bounded cache of immutable records by their position in the file. Hits take no lock.
//!
//! A record never changes, so a hit needs no synchronization with other threads. It reads a line of
//! the table and borrows the record through `arc_swap`, which notes the borrow in memory of the
//! reading thread. It writes nothing that other threads read, except the reference bit when that is
//! clear.
//!
//! The [table](Table) is set-associative: a position has one set of eight places. The number of
//! sets grows with the number of records. Eviction is CLOCK: a hand goes round over the sets. It
//! spares once each record that was hit since its last round, and evicts the others, until there is
//! room. Writers, which are the threads that had to read the disk, share a lock.
//!
//! **Invariants.** A tag says what its place may hold; only the record itself proves it. The
//! table's own memory counts as used, and is allocated piece by piece as records come. An idle
//! cache takes a directory of 200 bytes for each MB of its budget.

mod lookups;
#[cfg(test)]
#[cfg(loom)]
mod models;
mod table;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use arc_swap::{Guard, RefCnt};

use lookups::LookupCounters;
use table::{Place, Table};

use crate::sync::Mutex;

/// The properties of a record that the cache needs. They must never change.
pub(crate) trait Weighted {
    /// Where the record begins in the file, which is its key: above 0, below 2^63.
    fn position(&self) -> u64;

    /// Bytes that the record keeps in memory, without the allocator's overhead.
    fn bytes(&self) -> usize;
}

/// A cache of records of one file, shared by all workers. `R` is a shared pointer to a record.
///
/// After a pack, a position means another record. So a cache belongs to one generation of the file,
/// and is dropped with it.
pub(crate) struct RecordCache<R: RefCnt> {
    budget_bytes: usize,
    table: Table<R>,
    lookups: LookupCounters,
    writer: Mutex<Writer>,
}

/// A record borrowed from the cache, without a change of its reference count.
pub(crate) type BorrowedRecord<R> = Guard<Option<R>>;

/// Statistics of the record cache. Other threads use the cache meanwhile, so the figures are of
/// about the same moment, not of exactly the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCacheStatistics {
    /// Lookups that found their record.
    pub hits: u64,
    /// Records that were read from the file, after one lookup or several.
    pub misses: u64,
    /// Records evicted to make room.
    pub evictions: u64,
    /// Records held.
    pub entries: usize,
    /// Bytes held: the records, their overhead, and the table. At most the budget.
    pub bytes: usize,
    /// Largest number of bytes that the cache may hold.
    pub budget_bytes: usize,
}

/// State for inserts and evictions, used by one thread at a time. It has its own cache lines,
/// because readers need the neighbouring fields.
#[repr(align(128))]
struct Writer {
    bytes: usize,
    entries: usize,
    evictions: u64,
    /// The place of the clock's hand, counted over all sets.
    hand: usize,
}

/// The allocator's overhead for a record, which has one allocation or two.
const ALLOCATION_BYTES: usize = 32;

/// A record may take an eighth of the budget: one large object must not evict all others.
const RECORD_BUDGET_SHARE: usize = 8;

impl<R: RefCnt + Weighted> RecordCache<R> {
    /// A cache that never holds more than `budget_bytes`; with 0 it never holds anything.
    pub(crate) fn new(budget_bytes: usize) -> RecordCache<R> {
        RecordCache {
            budget_bytes,
            table: Table::new(budget_bytes),
            lookups: LookupCounters::new(),
            writer: Mutex::new(Writer { bytes: 0, entries: 0, evictions: 0, hand: 0 }),
        }
    }

    /// Lends the record at `position` to `read` during the call; `None` on a miss, which the caller
    /// [counts](RecordCache::count_miss).
    ///
    /// Cheaper than [`RecordCache::lookup`]: it does not even touch the record's reference count.
    #[inline]
    pub(crate) fn with<T>(&self, position: u64, read: impl FnOnce(&R) -> T) -> Option<T> {
        let [found] = self.find_each(&[position]);
        self.lookups.count(u64::from(found.is_some()), 0);
        found.as_ref().and_then(|record| record.as_ref()).map(read)
    }

    /// The record at `position`; `None` on a miss, which the caller
    /// [counts](RecordCache::count_miss).
    #[inline]
    pub(crate) fn lookup(&self, position: u64) -> Option<R> {
        let [found] = self.find_each(&[position]);
        self.lookups.count(u64::from(found.is_some()), 0);
        found.and_then(Guard::into_inner)
    }

    /// Borrows the records at several positions; position 0 has no record. The caller has to
    /// [count](RecordCache::count_hits) the hits.
    ///
    /// The processor spends most of the time waiting for memory. It waits for several lines at once
    /// if none depends on another. A borrow prevents that, because it locks its line. So this reads
    /// all sets before the first borrow, and all records after the last one.
    #[inline]
    pub(crate) fn find_each<const N: usize>(
        &self,
        positions: &[u64; N],
    ) -> [Option<BorrowedRecord<R>>; N] {
        let places = positions.map(|position| self.table.find(position));
        let mut records = places.map(|place| place.map(Place::borrow));
        for ((borrowed, place), position) in records.iter_mut().zip(places).zip(positions) {
            let record = borrowed.as_ref().and_then(|record| record.as_ref());
            if record.is_some_and(|record| record.position() == *position) {
                place.into_iter().for_each(|place| place.mark(*position));
            } else {
                *borrowed = None;
            }
        }
        records
    }

    /// Counts lookups that found their records.
    pub(crate) fn count_hits(&self, hits: u64) {
        self.lookups.count(hits, 0);
    }

    /// Counts a record that no lookup has found, once it was read: a read that waits for the disk
    /// looks it up at each of its attempts.
    pub(crate) fn count_miss(&self) {
        self.lookups.count(0, 1);
    }

    /// Caches a record that was read from the file, evicting others until it fits. Does nothing if
    /// the record is cached already, or takes more than an eighth of the budget.
    pub(crate) fn insert(&self, record: R) {
        self.add(record, false);
    }

    /// As [`RecordCache::insert`], as if the record had been hit already.
    pub(crate) fn insert_hit(&self, record: R) {
        self.add(record, true);
    }

    /// Whether the record at `position` is cached, and was hit since the hand's last round.
    pub(crate) fn was_hit(&self, position: u64) -> bool {
        self.table.find(position).is_some_and(Place::is_marked)
    }

    fn add(&self, record: R, is_marked: bool) {
        let position = record.position();
        let weight = weight(&record);
        if !table::is_possible(position) || weight > self.budget_bytes / RECORD_BUDGET_SHARE {
            return;
        }
        // Declared before the lock, so dropped after it: freeing large records takes time.
        let mut evicted = Vec::new();
        let mut writer = self.writer.lock();
        writer.bytes += self.table.make_room(writer.entries + 1);
        let Some(set) = self.table.set(position) else { return };
        if set.place_of(position).is_some() {
            return;
        }
        while writer.bytes + weight > self.budget_bytes {
            let Some(record) = self.evict_at_hand(&mut writer) else { return };
            evicted.push(record);
        }
        let place = set.free_place().unwrap_or_else(|| {
            let place = set.least_used_place(writer.evictions as usize);
            evicted.extend(writer.evict(place));
            place
        });
        writer.bytes += weight;
        writer.entries += 1;
        place.put(position, record, is_marked);
    }

    /// Statistics of the cache.
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

    /// Evicts the next record without a hit since the hand's last round; `None` when the cache is
    /// empty.
    ///
    /// On average the hand passes 1 place for each 256 bytes it evicts, and 2 places when all are
    /// in use. The size of the table makes it so.
    fn evict_at_hand(&self, writer: &mut Writer) -> Option<R> {
        let places = self.table.places();
        // The second round evicts any record: readers may mark as fast as the hand clears.
        for passed in 0..2 * places {
            let place = self.table.place(writer.hand);
            writer.hand = if writer.hand + 1 < places { writer.hand + 1 } else { 0 };
            let Some(place) = place else { continue };
            if !place.is_free() && (passed >= places || place.spend_chance()) {
                return writer.evict(place);
            }
        }
        None
    }
}

impl Writer {
    fn evict<R: RefCnt + Weighted>(&mut self, place: &Place<R>) -> Option<R> {
        let record = place.take()?;
        self.bytes -= weight(&record);
        self.entries -= 1;
        self.evictions += 1;
        Some(record)
    }
}

fn weight<R: Weighted>(record: &R) -> usize {
    record.bytes().saturating_add(ALLOCATION_BYTES)
}
