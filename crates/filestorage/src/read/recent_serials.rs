//! Serials of the records that were committed last, by their position. A vote needs no more than
//! the serial of a record, and most records that are written again were written recently.
//!
//! Key decision: a position has one set of eight places, and a new record takes the place of the
//! oldest one there. The serial of that is then read from the record cache or the file. So the log
//! writer keeps the table up with three stores a record, and a reader takes no lock.
//!
//! Invariant: a position never comes back within a generation of the file. So a place that has the
//! same position before and after its serial was read had it meanwhile.

use zodium_types::Tid;

use crate::sync::{AtomicU64, Ordering, fence};

/// Sets, of 128 bytes each.
const SETS: usize = if cfg!(loom) { 1 } else { 2048 };
const SET_PLACES: usize = if cfg!(loom) { 1 } else { 8 };
/// The position of a place without a record; no record is at the start of the file.
const EMPTY: u64 = 0;
/// 2^64 divided by the golden ratio: spreads positions at regular distances.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The table. One thread at a time notes, any number look up.
pub(crate) struct RecentSerials {
    sets: Box<[Set]>,
}

#[repr(align(64))]
struct Set {
    places: [Place; SET_PLACES],
}

struct Place {
    position: AtomicU64,
    serial: AtomicU64,
}

impl RecentSerials {
    /// An empty table. Without `is_used` no serial is ever found: all are read from the file.
    pub(crate) fn new(is_used: bool) -> RecentSerials {
        let count = if is_used { SETS } else { 0 };
        let place = |_| Place { position: AtomicU64::new(EMPTY), serial: AtomicU64::new(0) };
        let set = || Set { places: std::array::from_fn(place) };
        RecentSerials { sets: std::iter::repeat_with(set).take(count).collect() }
    }

    /// Notes a committed record.
    pub(crate) fn note(&self, position: u64, serial: Tid) {
        // Positions ascend: the oldest record has the lowest one, and an empty place is before it.
        let oldest = |place: &&Place| place.position.load(Ordering::Relaxed);
        let Some(place) = self.places(position).iter().min_by_key(oldest) else { return };
        place.position.store(EMPTY, Ordering::Relaxed);
        // Pairs with the fence of a reader: with the new serial it sees that the place was emptied.
        fence(Ordering::Release);
        place.serial.store(serial.0, Ordering::Relaxed);
        // Release pairs with Acquire of a reader: the position comes with its serial.
        place.position.store(position, Ordering::Release);
    }

    /// The serial of the record at `position`, if it is one of the recent ones.
    pub(crate) fn serial(&self, position: u64) -> Option<Tid> {
        let has_position = |place: &&Place| place.position.load(Ordering::Acquire) == position;
        let place = self.places(position).iter().find(has_position)?;
        let serial = place.serial.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (place.position.load(Ordering::Relaxed) == position).then_some(Tid(serial))
    }

    /// The places that a record may have; none for the position of an empty place.
    fn places(&self, position: u64) -> &[Place] {
        let mixed = (position.wrapping_mul(MULTIPLIER) >> 32) as usize;
        let set = self.sets.get(mixed % SETS).filter(|_| position != EMPTY);
        set.map_or(&[], |set| &set.places)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Positions that all have the same set.
    fn in_one_set(number: u64) -> u64 {
        number << 43
    }

    #[test]
    fn a_serial_is_that_of_its_position_or_none() {
        let serials = RecentSerials::new(true);
        assert_eq!(serials.serial(0), None);
        for number in 1..100_000_u64 {
            let position = |number| 4 + number * 1077;
            assert_eq!(serials.serial(position(number)), None);
            serials.note(position(number), Tid(number));
            assert_eq!(serials.serial(position(number)), Some(Tid(number)));
            let older = number / 2 + 1;
            let found = serials.serial(position(older));
            assert!(found.is_none_or(|found| found == Tid(older)));
        }
    }

    #[test]
    fn a_table_that_is_not_used_knows_none() {
        let serials = RecentSerials::new(false);
        serials.note(4, Tid(1));
        assert_eq!(serials.serial(4), None);
    }

    #[test]
    fn nearly_all_of_the_last_thousands_of_records_are_found() {
        for bytes in [42, 464, 1041, 4139] {
            let serials = RecentSerials::new(true);
            let positions = (1..=40_000).map(|number| number * bytes);
            positions.clone().for_each(|position| serials.note(position, Tid(position)));
            let found = positions.rev().take(5000).filter(|at| serials.serial(*at).is_some());
            let found = found.count();
            assert!(found > 4950, "{found} records of {bytes} bytes");
        }
    }

    #[test]
    fn readers_never_see_the_serial_of_another_position() {
        let serials = RecentSerials::new(true);
        let (newest, done) = (std::sync::atomic::AtomicU64::new(1), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    // The oldest of these are about to be replaced.
                    let newest = newest.load(Ordering::Relaxed);
                    for number in newest.saturating_sub(10).max(1)..newest + 2 {
                        let serial = serials.serial(in_one_set(number));
                        assert!(serial.is_none_or(|serial| serial == Tid(number)));
                    }
                }
            });
            for number in 1..2_000_000 {
                serials.note(in_one_set(number), Tid(number));
                newest.store(number, Ordering::Relaxed);
            }
            done.store(true, Ordering::Release);
            reader.join().unwrap();
        });
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models {
    use super::*;
    use crate::sync::beside;

    #[test]
    fn a_reader_gets_the_serial_of_its_position_or_none_while_the_place_changes() {
        let before = || {
            let serials = RecentSerials::new(true);
            serials.note(1, Tid(10));
            serials
        };
        let write = |serials: &RecentSerials| {
            serials.note(2, Tid(20));
            serials.note(3, Tid(30));
        };
        let read = |serials: &RecentSerials| {
            for position in [1, 2] {
                let found = serials.serial(position);
                assert!(found.is_none_or(|found| found == Tid(10 * position)), "{found:?}");
            }
        };
        beside(before, write, read, |serials| assert_eq!(serials.serial(3), Some(Tid(30))));
    }
}
