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
        let is_later = known.last() < places.iter().min();
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
