//! A bounded cache of immutable records by their position in the file, hits without a lock.
//!
//! A record never changes, so a hit needs no agreement with anybody: it reads a line of the
//! table, borrows the record through `arc_swap` (which notes the loan in memory of the reading
//! thread) and writes nothing that other threads read, but for the reference bit when it is clear.
//!
//! The [table](Table) is set-associative: eight places for a position, in one set; there are as
//! many sets as the records there are need. Eviction is CLOCK: a hand goes round over the sets,
//! spares once what was hit since it last came by, and takes the rest, until there is room.
//! Writers, that is whoever had to read the disk, share a lock.
//!
//! **Invariants.** A tag says what its place may hold, only the record itself proves it. The
//! table's own memory counts as used and comes into being piece by piece with its records; an
//! idle cache takes a directory of 200 bytes for each MB of its budget.

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

/// What the cache needs to know of a record. Both answers must never change.
pub(crate) trait Weighted {
    /// Where the record begins in the file, which is its key: above 0, below 2^63.
    fn position(&self) -> u64;

    /// The bytes it keeps in memory, but for what the allocator needs itself.
    fn bytes(&self) -> usize;
}

/// A cache of records of one file, shared by all workers. `R` is a shared pointer to a record.
///
/// A position means another record once the file is replaced by a packed one, so a cache lives
/// and dies with the file it was made for.
pub(crate) struct RecordCache<R: RefCnt> {
    budget_bytes: usize,
    table: Table<R>,
    lookups: LookupCounters,
    writer: Mutex<Writer>,
}

/// A record that is lent by the cache, without a change of its reference count.
pub(crate) type Loan<R> = Guard<Option<R>>;

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

/// What only one thread at a time may do: insert and evict. On cache lines of its own: readers
/// need what is beside it.
#[repr(align(128))]
struct Writer {
    bytes: usize,
    entries: usize,
    evictions: u64,
    /// The place the clock's hand is at, counted over all sets.
    hand: usize,
}

/// What an allocator keeps for a record, which is one allocation, or two.
const ALLOCATION_BYTES: usize = 32;

/// A record may take an eighth of the budget: one large object must not sweep out all others.
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

    /// Lends the record at `position` to `read`, for the time of the call. `None` on a miss.
    ///
    /// Cheaper than [`RecordCache::lookup`]: not even the record's reference count is touched.
    #[inline]
    pub(crate) fn with<T>(&self, position: u64, read: impl FnOnce(&R) -> T) -> Option<T> {
        let [found] = self.find_each(&[position]);
        self.lookups.count_one(found.is_some());
        found.as_ref().and_then(|record| record.as_ref()).map(read)
    }

    /// The record at `position`. `None` on a miss.
    #[inline]
    pub(crate) fn lookup(&self, position: u64) -> Option<R> {
        let [found] = self.find_each(&[position]);
        self.lookups.count_one(found.is_some());
        found.and_then(Guard::into_inner)
    }

    /// Lends the records at several positions; 0 is the position of none. A hit has to be
    /// [counted](RecordCache::count_hits) by the caller, and a miss by its next lookup.
    ///
    /// What takes its time is that the processor waits for memory, and it waits for several lines
    /// at once if none of them is what another depends on. A loan ends that: it locks its line.
    /// So all sets are read before the first loan, and after the last one all records.
    #[inline]
    pub(crate) fn find_each<const N: usize>(&self, positions: &[u64; N]) -> [Option<Loan<R>>; N] {
        let places = positions.map(|position| self.table.find(position));
        let mut loans = places.map(|place| place.map(Place::lend));
        for ((loan, place), position) in loans.iter_mut().zip(places).zip(positions) {
            let record = loan.as_ref().and_then(|record| record.as_ref());
            if record.is_some_and(|record| record.position() == *position) {
                place.into_iter().for_each(|place| place.mark(*position));
            } else {
                *loan = None;
            }
        }
        loans
    }

    /// Counts lookups that found their records.
    pub(crate) fn count_hits(&self, hits: u64) {
        self.lookups.count(hits, 0);
    }

    /// Keeps a record that was read from the file, evicting others until it fits. Does nothing
    /// with a record that is there already, or takes more than an eighth of the budget.
    pub(crate) fn insert(&self, record: R) {
        let position = record.position();
        let weight = weight(&record);
        if !table::is_possible(position) || weight > self.budget_bytes / RECORD_BUDGET_SHARE {
            return;
        }
        // Declared before the lock, so dropped after it: freeing large records takes its time.
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

    /// Evicts the next record that has not been hit since the hand came by; `None` when there is
    /// no record at all.
    ///
    /// On average the hand passes 1 place for each 256 bytes it evicts, twice that when all are
    /// in use: the table is sized so.
    fn evict_at_hand(&self, writer: &mut Writer) -> Option<R> {
        let places = self.table.places();
        // The second round takes whatever it meets: readers may mark as fast as the hand clears.
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
