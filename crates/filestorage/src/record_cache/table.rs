//! The places of records, in sets; as many sets as the records that are held need.
//!
//! Key decision: linear hashing. The table grows one set at a time, by moving about half of the
//! records of one other set there, so growing never stops anybody, and a table of few records is
//! small enough to stay in the processor's caches, whatever the budget. It never shrinks.
//!
//! **Invariant:** a position is only ever put where the number of sets of that time has it. Who
//! looks for a record while it moves may miss it, and then reads it from the file.

use arc_swap::RefCnt;

use super::{Loan, Weighted};
use crate::sync::{ArcSwapAny, AtomicU64, AtomicUsize, OnceLock, Ordering};

/// Grown and changed by one thread at a time, read by any number.
pub(super) struct Table<R: RefCnt> {
    sets_max: usize,
    /// Sets in use. Release once the last one has what belongs there; pairs with Acquire in
    /// `set`.
    sets: AtomicUsize,
    segments: Box<[OnceLock<Segment<R>>]>,
}

/// Sets which are allocated together.
type Segment<R> = Box<[Set<R>]>;

/// The places a position can be at. Two cache lines, filled from the front: most lookups need
/// the first only.
#[repr(align(64))]
pub(super) struct Set<R: RefCnt> {
    places: [Place<R>; SET_PLACES],
}

pub(super) struct Place<R: RefCnt> {
    /// The position of the record, or [`EMPTY`], with [`REFERENCED`].
    tag: AtomicU64,
    record: ArcSwapAny<Option<R>>,
}

/// The tag of a free place; no record lies at the start of the file.
const EMPTY: u64 = 0;

/// Set in a tag by a hit, cleared by the clock's hand.
const REFERENCED: u64 = 1 << 63;

pub(super) const SET_PLACES: usize = if cfg!(loom) { 2 } else { 8 };
/// Places for 500 million records; bounds what an enormous budget costs before it is used.
const SETS_MAX: usize = 1 << 26;
const SEGMENT_SETS: usize = if cfg!(loom) { 1 } else { 64 };

/// One place for so much budget at most: enough that with records of a few hundred bytes, the
/// smallest that occur in numbers, the budget is what limits the cache. A place takes 16 bytes,
/// so the table takes a sixteenth of the budget at most.
const BUDGET_BYTES_PER_PLACE: usize = 256;

/// 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

const _: () = assert!(size_of::<Set<std::sync::Arc<u64>>>() == 128 || cfg!(loom));

/// Whether a record can be at this position.
pub(super) fn is_possible(position: u64) -> bool {
    position != EMPTY && position & REFERENCED == 0
}

impl<R: RefCnt + Weighted> Table<R> {
    /// Without any set.
    pub(super) fn new(budget_bytes: usize) -> Table<R> {
        let sets_max = (budget_bytes / (BUDGET_BYTES_PER_PLACE * SET_PLACES)).min(SETS_MAX);
        let segments = sets_max.div_ceil(SEGMENT_SETS);
        Table {
            sets_max,
            sets: AtomicUsize::new(0),
            segments: std::iter::repeat_with(OnceLock::new).take(segments).collect(),
        }
    }

    /// The place with the tag of `position`; `None` also for the position of a free one.
    #[inline]
    pub(super) fn find(&self, position: u64) -> Option<&Place<R>> {
        if position == EMPTY {
            return None;
        }
        // Acquire pairs with Release in `Place::put`: the record is there before its tag.
        let has_tag =
            |place: &&Place<R>| place.tag.load(Ordering::Acquire) & !REFERENCED == position;
        self.set(position)?.places.iter().find(has_tag)
    }

    /// The set of a position. `None` where nothing has been inserted yet, and always when the
    /// budget is too small.
    #[inline]
    pub(super) fn set(&self, position: u64) -> Option<&Set<R>> {
        self.set_numbered(set_number(position, self.sets.load(Ordering::Acquire)))
    }

    /// The number of places in use.
    pub(super) fn places(&self) -> usize {
        self.sets.load(Ordering::Relaxed) * SET_PLACES
    }

    /// The place of this number, of those in use.
    pub(super) fn place(&self, number: usize) -> Option<&Place<R>> {
        self.set_numbered(number / SET_PLACES)?.places.get(number % SET_PLACES)
    }

    /// Adds a set if there are fewer than this many records. Gives the bytes allocated for that.
    ///
    /// With a record for each set hardly one set in a thousand has more records than places, also
    /// of those that are still to be split.
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

    /// The bytes of all sets there are, in use or not.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn allocated_bytes(&self) -> usize {
        self.segments.iter().filter_map(OnceLock::get).map(|sets| size_of_val(&**sets)).sum()
    }

    /// The bytes that it takes without any set.
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

    /// Takes a set into use. What of another one belongs there now is in both, then in the new
    /// one only: who knows of it by then finds it.
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

/// Where a position belongs when there are so many sets: as if there were the next power of two,
/// and what has none of these yet is where it was when there were half as many.
///
/// Records of one size lie at regular distances. One multiplication spreads most of these evenly
/// and leaves a few in heaps; the second one leaves none.
#[inline]
fn set_number(position: u64, sets: usize) -> usize {
    let mixed = position.wrapping_mul(MULTIPLIER);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(MULTIPLIER);
    let (mixed, mask) = ((mixed >> 32) as usize, sets.next_power_of_two() - 1);
    let number = mixed & mask;
    if number < sets { number } else { mixed & mask >> 1 }
}

/// Where what belongs into set `number`, which is not the first, was before there was that set.
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

    /// The place of a position. For writers.
    pub(super) fn place_of(&self, position: u64) -> Option<&Place<R>> {
        self.places.iter().find(|place| place.position() == position)
    }

    /// The first free place.
    pub(super) fn free_place(&self) -> Option<&Place<R>> {
        self.place_of(EMPTY)
    }

    /// The first place from `start` on, going round, that was not hit lately. When all were, none
    /// is marked any more.
    pub(super) fn least_used_place(&self, start: usize) -> &Place<R> {
        let start = start % SET_PLACES;
        let (before, after) = self.places.split_at(start);
        let place = after.iter().chain(before).find(|place| place.spend_chance());
        place.unwrap_or(&self.places[start])
    }
}

impl<R: RefCnt> Place<R> {
    /// What is there by now, which need not be what its tag has promised.
    #[inline]
    pub(super) fn lend(&self) -> Loan<R> {
        self.record.load()
    }

    /// Marks it as used, if it is still that of `position`.
    #[inline]
    pub(super) fn mark(&self, position: u64) {
        if self.tag.load(Ordering::Relaxed) & REFERENCED == 0 {
            // Fails when the place is being given to another record: then so be it.
            let marked = position | REFERENCED;
            let _ =
                self.tag.compare_exchange(position, marked, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    pub(super) fn position(&self) -> u64 {
        self.tag.load(Ordering::Relaxed) & !REFERENCED
    }

    pub(super) fn is_free(&self) -> bool {
        self.position() == EMPTY
    }

    /// Takes the mark of a hit away; whether there was none.
    pub(super) fn spend_chance(&self) -> bool {
        if self.tag.load(Ordering::Relaxed) & REFERENCED == 0 {
            return true;
        }
        self.tag.fetch_and(!REFERENCED, Ordering::Relaxed);
        false
    }

    pub(super) fn put(&self, position: u64, record: R) {
        self.record.store(Some(record));
        self.tag.store(position, Ordering::Release);
    }

    pub(super) fn take(&self) -> Option<R> {
        // A store would do, since a mark only follows the tag that it expects. But loom does not
        // know that a store then comes after the mark.
        self.tag.swap(EMPTY, Ordering::Relaxed);
        self.record.swap(None)
    }
}
