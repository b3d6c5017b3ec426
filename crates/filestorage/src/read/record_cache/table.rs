//! The places of records, in sets. The number of sets grows with the number of records.
//!
//! Key decision: linear hashing. The table grows one set at a time, and moves about half of the
//! records of one other set there. So growing never blocks a thread, and a table of few records
//! fits into the processor's caches, whatever the budget. The table never shrinks.
//!
//! **Invariant:** a position is only put into the set that it has for the current number of sets. A
//! reader may miss a record while it moves, and then reads it from the file.

use arc_swap::RefCnt;

use super::{BorrowedRecord, Weighted};
use crate::sync::{ArcSwapAny, AtomicU64, AtomicUsize, OnceLock, Ordering};

/// Changed by one thread at a time, read by any number.
pub(super) struct Table<R: RefCnt> {
    sets_max: usize,
    /// Sets in use. Release once the last one has its records; pairs with Acquire in `set`.
    sets: AtomicUsize,
    segments: Box<[OnceLock<Segment<R>>]>,
}

/// Sets that are allocated together.
type Segment<R> = Box<[Set<R>]>;

/// The possible places of a position. They take two cache lines and are filled from the front: most
/// lookups need only the first line.
#[repr(align(64))]
pub(super) struct Set<R: RefCnt> {
    places: [Place<R>; SET_PLACES],
}

pub(super) struct Place<R: RefCnt> {
    /// The position of the record, or [`EMPTY`]; with the [`REFERENCED`] bit.
    tag: AtomicU64,
    record: ArcSwapAny<Option<R>>,
}

/// The tag of a free place; no record is at the start of the file.
const EMPTY: u64 = 0;

/// Bit of a tag that a hit sets and the clock's hand clears.
const REFERENCED: u64 = 1 << 63;

pub(super) const SET_PLACES: usize = if cfg!(loom) { 2 } else { 8 };
/// Places for 500 million records. Bounds the cost of an enormous budget before it is used.
const SETS_MAX: usize = 1 << 26;
const SEGMENT_SETS: usize = if cfg!(loom) { 1 } else { 64 };

/// At most one place for this much budget. With records of a few hundred bytes, the smallest that
/// are common, the budget is then the limit of the cache. A place takes 16 bytes, so the table
/// takes at most a sixteenth of the budget.
const BUDGET_BYTES_PER_PLACE: usize = 256;

/// 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

const _: () = assert!(size_of::<Set<std::sync::Arc<u64>>>() == 128 || cfg!(loom));

/// Whether a record can be at this position.
pub(super) fn is_possible(position: u64) -> bool {
    position != EMPTY && position & REFERENCED == 0
}

impl<R: RefCnt + Weighted> Table<R> {
    /// An empty table without sets.
    pub(super) fn new(budget_bytes: usize) -> Table<R> {
        let sets_max = (budget_bytes / (BUDGET_BYTES_PER_PLACE * SET_PLACES)).min(SETS_MAX);
        let segments = sets_max.div_ceil(SEGMENT_SETS);
        Table {
            sets_max,
            sets: AtomicUsize::new(0),
            segments: std::iter::repeat_with(OnceLock::new).take(segments).collect(),
        }
    }

    /// The place with the tag of `position`; `None` for the position of a free place.
    #[inline]
    pub(super) fn find(&self, position: u64) -> Option<&Place<R>> {
        if position == EMPTY {
            return None;
        }
        // Acquire pairs with Release in `Place::put`: the record is stored before its tag.
        let has_tag =
            |place: &&Place<R>| place.tag.load(Ordering::Acquire) & !REFERENCED == position;
        self.set(position)?.places.iter().find(has_tag)
    }

    /// The set of a position. `None` before the first insertion, and always when the budget is too
    /// small.
    #[inline]
    pub(super) fn set(&self, position: u64) -> Option<&Set<R>> {
        self.set_numbered(set_number(position, self.sets.load(Ordering::Acquire)))
    }

    /// Number of places in use.
    pub(super) fn places(&self) -> usize {
        self.sets.load(Ordering::Relaxed) * SET_PLACES
    }

    /// The place in use with this number.
    pub(super) fn place(&self, number: usize) -> Option<&Place<R>> {
        self.set_numbered(number / SET_PLACES)?.places.get(number % SET_PLACES)
    }

    /// Adds a set if there are fewer sets than records. Returns the bytes allocated for it.
    ///
    /// With one record per set, hardly one set in a thousand has more records than places. This
    /// includes the sets that are still to be split.
    pub(super) fn make_room(&self, records: usize) -> usize {
        let sets = self.sets.load(Ordering::Relaxed);
        if sets == self.sets_max || sets >= records {
            return 0;
        }
        let bytes = self.make_segment(sets / SEGMENT_SETS);
        if let Some(added) = self.set_numbered(sets) {
            self.split(added, sets);
        }
        bytes
    }

    /// Bytes of all allocated sets, in use or not.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn allocated_bytes(&self) -> usize {
        self.segments.iter().filter_map(OnceLock::get).map(|sets| size_of_val(&**sets)).sum()
    }

    /// Bytes of the table without any set.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn directory_bytes(&self) -> usize {
        size_of_val(&*self.segments)
    }

    fn make_segment(&self, number: usize) -> usize {
        let Some(segment) = self.segments.get(number).filter(|segment| segment.get().is_none())
        else {
            return 0;
        };
        let sets = (self.sets_max - number * SEGMENT_SETS).min(SEGMENT_SETS);
        segment.get_or_init(|| std::iter::repeat_with(Set::new).take(sets).collect());
        sets * size_of::<Set<R>>()
    }

    /// Takes a set into use. Records that belong there now are in both sets first, then in the new
    /// one only. A reader that knows of the new set by then finds them there.
    fn split(&self, added: &Set<R>, number: usize) {
        let belongs = |place: &&Place<R>| {
            !place.is_free() && set_number(place.position(), number + 1) == number
        };
        let split = (number > 0).then(|| self.set_numbered(split_number(number))).flatten();
        let places = split.map_or(&[][..], |set| &set.places);
        for (from, to) in places.iter().filter(belongs).zip(&added.places) {
            to.record.store(from.record.load_full());
            to.tag.store(from.tag.load(Ordering::Relaxed), Ordering::Release);
        }
        self.sets.store(number + 1, Ordering::Release);
        for from in places.iter().filter(belongs) {
            from.take();
        }
    }

    #[inline]
    fn set_numbered(&self, number: usize) -> Option<&Set<R>> {
        self.segments.get(number / SEGMENT_SETS)?.get()?.get(number % SEGMENT_SETS)
    }
}

/// The set of a position for this number of sets. It is the set for the next power of two, if that
/// exists already. Otherwise it is the set for half as many.
///
/// Records of one size are at regular distances. One multiplication spreads most of these evenly
/// and leaves a few clusters; the second one leaves none.
#[inline]
fn set_number(position: u64, sets: usize) -> usize {
    let mixed = position.wrapping_mul(MULTIPLIER);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(MULTIPLIER);
    let (mixed, mask) = ((mixed >> 32) as usize, sets.next_power_of_two() - 1);
    let number = mixed & mask;
    if number < sets { number } else { mixed & mask >> 1 }
}

/// The set that has to be split to fill set `number`, which is not the first.
fn split_number(number: usize) -> usize {
    number & !(1 << number.ilog2())
}

impl<R: RefCnt + Weighted> Set<R> {
    fn new() -> Set<R> {
        let places = std::array::from_fn(|_| Place {
            tag: AtomicU64::new(EMPTY),
            record: ArcSwapAny::from(None),
        });
        Set { places }
    }

    /// The place of a position, for writers.
    pub(super) fn place_of(&self, position: u64) -> Option<&Place<R>> {
        self.places.iter().find(|place| place.position() == position)
    }

    /// The first free place.
    pub(super) fn free_place(&self) -> Option<&Place<R>> {
        self.place_of(EMPTY)
    }

    /// The first place without a recent hit, from `start` on and round. If all had one, their marks
    /// are cleared.
    pub(super) fn least_used_place(&self, start: usize) -> &Place<R> {
        let start = start % SET_PLACES;
        let (before, after) = self.places.split_at(start);
        let place = after.iter().chain(before).find(|place| place.spend_chance());
        place.unwrap_or(&self.places[start])
    }
}

impl<R: RefCnt> Place<R> {
    /// Borrows the record that is in the place now, which may differ from the one of the tag.
    #[inline]
    pub(super) fn borrow(&self) -> BorrowedRecord<R> {
        self.record.load()
    }

    /// Marks the place as used, if it still has the tag of `position`.
    #[inline]
    pub(super) fn mark(&self, position: u64) {
        if self.tag.load(Ordering::Relaxed) & REFERENCED == 0 {
            // Fails when another record takes over the place; the mark is then not needed.
            let marked = position | REFERENCED;
            let _ =
                self.tag.compare_exchange(position, marked, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    pub(super) fn is_marked(&self) -> bool {
        self.tag.load(Ordering::Relaxed) & REFERENCED != 0
    }

    pub(super) fn position(&self) -> u64 {
        self.tag.load(Ordering::Relaxed) & !REFERENCED
    }

    pub(super) fn is_free(&self) -> bool {
        self.position() == EMPTY
    }

    /// Clears the mark of a hit; returns whether there was none.
    pub(super) fn spend_chance(&self) -> bool {
        if self.tag.load(Ordering::Relaxed) & REFERENCED == 0 {
            return true;
        }
        self.tag.fetch_and(!REFERENCED, Ordering::Relaxed);
        false
    }

    /// Puts a record here, with or without the mark of a hit.
    pub(super) fn put(&self, position: u64, record: R, is_marked: bool) {
        self.record.store(Some(record));
        let mark = if is_marked { REFERENCED } else { 0 };
        self.tag.store(position | mark, Ordering::Release);
    }

    pub(super) fn take(&self) -> Option<R> {
        // A store would suffice, since a mark is only set on the expected tag. But loom does not
        // know that the store then comes after the mark.
        self.tag.swap(EMPTY, Ordering::Relaxed);
        self.record.swap(None)
    }
}
