//! Counts lookups without slowing the workers down.

use std::cell::Cell;

use crate::sync::{AtomicU64, Ordering};

/// Counters spread over enough places that threads do not contend for a cache line.
pub(super) struct LookupCounters {
    cells: Box<[LookupCell; LOOKUP_CELLS]>,
}

#[derive(Default)]
#[repr(align(128))]
struct LookupCell {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// More than workers on the largest machines: two that share a cell move its line with each load.
const LOOKUP_CELLS: usize = if cfg!(loom) { 1 } else { 256 };

impl LookupCounters {
    pub(super) fn new() -> LookupCounters {
        LookupCounters { cells: Box::new(std::array::from_fn(|_| LookupCell::default())) }
    }

    #[inline]
    pub(super) fn count(&self, hits: u64, misses: u64) {
        let cell = &self.cells[thread_number() % LOOKUP_CELLS];
        for (counter, count) in [(&cell.hits, hits), (&cell.misses, misses)] {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Hits and misses of all threads.
    pub(super) fn sum(&self) -> (u64, u64) {
        self.cells.iter().fold((0, 0), |(hits, misses), cell| {
            let (more_hits, more_misses) =
                (cell.hits.load(Ordering::Relaxed), cell.misses.load(Ordering::Relaxed));
            (hits + more_hits, misses + more_misses)
        })
    }
}

/// A number that differs between neighbouring threads.
#[inline]
fn thread_number() -> usize {
    // Not part of the model: any number is correct.
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1);
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
