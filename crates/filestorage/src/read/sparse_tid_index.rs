//! Positions of some transactions by tid, which shorten the search for an old transaction.
//!
//! The log is a chain, and has no index by tid. So the log writer notes an entry at every 1,024th
//! transaction, and so does each walk along the chain ([`super::tid_search`]).
//!
//! Key decision: entries are not built when a file is opened, and not saved. They cost 16 bytes
//! for each 1,024 transactions passed.
//!
//! Invariant: tids and positions ascend together.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use zodium_types::Tid;

/// Transactions from one entry to the next.
pub(crate) const INTERVAL: u64 = 1024;

/// Tid and position of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) tid: Tid,
    pub(crate) position: u64,
}

/// The entries of one generation of the log.
#[derive(Debug, Default)]
pub(crate) struct SparseTidIndex {
    places: Mutex<Vec<Place>>,
    /// Number of transactions appended. Relaxed: only the log writer counts.
    appended: AtomicU64,
}

impl SparseTidIndex {
    /// Counts an appended transaction. Called by the log writer, in order.
    pub(crate) fn pass_appended(&self, tid: Tid, position: u64) {
        if self.appended.fetch_add(1, Ordering::Relaxed).is_multiple_of(INTERVAL) {
            self.add(vec![Place { tid, position }]);
        }
    }

    pub(crate) fn add(&self, mut places: Vec<Place>) {
        if places.is_empty() {
            return;
        }
        let mut known = self.places.lock();
        // Those of a walk back descend.
        let is_later = places.is_sorted() && known.last() < places.first();
        known.append(&mut places);
        if !is_later {
            known.sort_unstable();
            known.dedup();
        }
    }

    /// Narrows a stretch with the known entries.
    pub(crate) fn narrow(&self, stretch: &mut Stretch) {
        let known = self.places.lock();
        let after = known.partition_point(|place| place.tid < stretch.wanted);
        if let Some(place) = after.checked_sub(1).and_then(|before| known.get(before)) {
            stretch.take(*place);
        }
        if let Some(place) = known.get(after) {
            stretch.take(*place);
        }
    }
}

/// The part of the log with the first transaction at or after `wanted`: behind `low`, and not
/// behind `high`.
pub(crate) struct Stretch {
    pub(crate) wanted: Tid,
    pub(crate) low: Place,
    pub(crate) high: Place,
}

impl Stretch {
    /// Ends the stretch at a place. One outside of it gives no direction: tids may go back there.
    pub(crate) fn take(&mut self, place: Place) {
        if !(self.low.position..=self.high.position).contains(&place.position) {
            return;
        }
        if place.tid < self.wanted { self.low = place } else { self.high = place }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.high.position - self.low.position
    }

    /// Whether `wanted` is probably nearer to `high`: tids grow nearly evenly with time.
    pub(crate) fn is_nearer_to_high(&self) -> bool {
        self.high.tid.0 - self.wanted.0 <= self.wanted.0 - self.low.tid.0
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn place(number: u64) -> Place {
        Place { tid: Tid(number * 10), position: number * 1000 }
    }

    fn known(index: &SparseTidIndex) -> Vec<Place> {
        index.places.lock().clone()
    }

    /// Between the first and the ninth of ten places.
    fn stretch(wanted: u64) -> Stretch {
        Stretch { wanted: Tid(wanted), low: place(1), high: place(9) }
    }

    #[test]
    fn an_entry_is_noted_at_each_1024th_appended_transaction() {
        let index = SparseTidIndex::default();
        for number in 1..=3 * INTERVAL {
            let Place { tid, position } = place(number);
            index.pass_appended(tid, position);
        }
        assert_eq!(known(&index), [1, 1025, 2049].map(place));
    }

    #[test]
    fn entries_ascend_and_each_is_there_once_in_whatever_order_they_come() {
        let index = SparseTidIndex::default();
        index.add(vec![]);
        for (added, all) in [
            (vec![5], vec![5]),
            (vec![6, 7], vec![5, 6, 7]),
            (vec![7], vec![5, 6, 7]),
            (vec![2, 6, 8], vec![2, 5, 6, 7, 8]),
            (vec![10, 9], vec![2, 5, 6, 7, 8, 9, 10]),
            (vec![11], vec![2, 5, 6, 7, 8, 9, 10, 11]),
        ] {
            index.add(added.into_iter().map(place).collect());
            assert_eq!(known(&index), all.into_iter().map(place).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_stretch_is_narrowed_to_the_nearest_entries_on_both_sides() {
        let index = SparseTidIndex::default();
        index.add([2, 4, 6, 8].map(place).to_vec());
        for (wanted, low, high) in
            [(11, 1, 2), (20, 1, 2), (21, 2, 4), (40, 2, 4), (41, 4, 6), (80, 6, 8), (81, 8, 9)]
        {
            let mut stretch = stretch(wanted);
            index.narrow(&mut stretch);
            assert_eq!((stretch.low, stretch.high), (place(low), place(high)), "{wanted}");
        }
        let mut alone = stretch(50);
        SparseTidIndex::default().narrow(&mut alone);
        assert_eq!((alone.low, alone.high), (place(1), place(9)));
    }

    /// As tids may go back there.
    #[test]
    fn a_stretch_is_not_narrowed_by_what_is_outside_of_it() {
        let at = |tid, position| Place { tid: Tid(tid), position };
        for (taken, low, high) in [
            (at(20, 999), place(1), place(9)),
            (at(20, 1000), at(20, 1000), place(9)),
            (at(20, 9000), at(20, 9000), place(9)),
            (at(20, 9001), place(1), place(9)),
            (at(70, 999), place(1), place(9)),
            (at(70, 1000), place(1), at(70, 1000)),
            (at(70, 9001), place(1), place(9)),
            // The one that is wanted ends it.
            (at(50, 5000), place(1), at(50, 5000)),
        ] {
            let mut stretch = stretch(50);
            stretch.take(taken);
            assert_eq!((stretch.low, stretch.high), (low, high), "{taken:?}");
        }
    }

    #[test]
    fn a_stretch_has_a_length_and_a_nearer_end() {
        assert_eq!(stretch(50).bytes(), 8000);
        assert_eq!(
            [11, 49, 50, 51, 90].map(|wanted| stretch(wanted).is_nearer_to_high()),
            [false, false, true, true, true]
        );
    }
}
