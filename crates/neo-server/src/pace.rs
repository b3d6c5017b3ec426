//! Whether reads of the database come quickly, so from memory.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A read that takes longer has waited for the disk, or for a processor.
const SLOW: Duration = Duration::from_micros(500);
/// How long reads run elsewhere after slow ones.
const PAUSE: Duration = Duration::from_millis(20);
/// So many quick reads make up for a slow one.
const QUICK_PER_SLOW: u32 = 8;

/// Whether reads are quick.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    slow_until: Cell<Option<Instant>>,
    /// Quick reads that are wanting to make up for the slow ones.
    debt: Cell<u32>,
}

impl Pace {
    pub(crate) fn is_quick(&self, now: Instant) -> bool {
        self.slow_until.get().is_none_or(|until| now >= until)
    }

    /// Notes a read from one moment to another.
    pub(crate) fn note(&self, began: Instant, ended: Instant) {
        let debt = self.debt.get();
        if ended.saturating_duration_since(began) <= SLOW {
            self.debt.set(debt.saturating_sub(1));
            return;
        }
        self.debt.set(QUICK_PER_SLOW);
        if debt > 0 {
            self.slow_until.set(Some(ended + PAUSE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_slow_reads_reads_run_elsewhere_for_a_while() {
        let (pace, began) = (Pace::default(), Instant::now());
        let ended = began + 2 * SLOW;
        pace.note(began, ended);
        assert!(pace.is_quick(ended), "one slow read is no reason");
        (0..QUICK_PER_SLOW).for_each(|_| pace.note(began, began + SLOW));
        pace.note(began, ended);
        assert!(pace.is_quick(ended), "quick reads have made up for it");
        pace.note(began, ended);
        assert!(!pace.is_quick(ended) && !pace.is_quick(ended + PAUSE / 2));
        assert!(pace.is_quick(ended + PAUSE));
        pace.note(began, ended + PAUSE);
        assert!(!pace.is_quick(ended + PAUSE), "the first read after the pause is slow again");
    }
}
