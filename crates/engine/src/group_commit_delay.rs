//! The group commit delay: how long a batch may wait for more transactions.
//!
//! One sync serves all clients that asked for their finish before it begins, and costs the same for
//! one as for many. So the log writer waits for clients that are about to ask, if the wait is short
//! beside the sync. A distant client does not ask in that time: after several waits in vain, the
//! writer pauses waiting for some batches. It never waits if the disk syncs at once.

use std::time::Duration;

/// Longest wait before a batch: the mean batch duration divided by this.
const SHARE: u32 = 4;
/// Shorter waits are skipped: too short to sleep.
const TIME_MIN: Duration = Duration::from_micros(20);
/// Upper limit of the wait: a slow disk is not made slower by more than this.
const TIME_MAX: Duration = Duration::from_millis(1);
/// Window of the moving average: a new batch has a weight of one in this many.
const MEMORY: u32 = 8;
/// Number of waits in vain, in a row, after which waiting pauses.
const FRUITLESS_WAITS_MAX: u32 = 4;
/// Number of batches without a wait in such a pause.
const PAUSE_BATCHES: u32 = 32;

/// The mean duration of recent batches, and whether recent waits were useful.
#[derive(Debug, Default)]
pub(crate) struct GroupCommitDelay {
    mean: Duration,
    fruitless_waits: u32,
    paused: u32,
}

impl GroupCommitDelay {
    /// Records that a batch of so many transactions was written and synced; of none, nothing was.
    pub(crate) fn note_batch(&mut self, transactions: usize, took: Duration) {
        if transactions == 0 {
            return;
        }
        self.mean = (self.mean * (MEMORY - 1) + took) / MEMORY;
    }

    /// How long the next batch may wait; `None` when waiting is not worthwhile.
    pub(crate) fn time_max(&mut self) -> Option<Duration> {
        let time = self.mean / SHARE;
        if time < TIME_MIN {
            return None;
        }
        if self.fruitless_waits >= FRUITLESS_WAITS_MAX {
            self.paused += 1;
            if self.paused <= PAUSE_BATCHES {
                return None;
            }
            self.paused = 0;
        }
        Some(time.min(TIME_MAX))
    }

    /// Records a wait, and whether all transactions waited for became ready in time.
    pub(crate) fn note_waiting(&mut self, all_came: bool) {
        self.fruitless_waits = if all_came { 0 } else { self.fruitless_waits.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_follows_the_disk_within_bounds() {
        let mut delay = GroupCommitDelay::default();
        assert_eq!(delay.time_max(), None);
        let mut after = |micros, batches| {
            for _ in 0..batches {
                delay.note_batch(1, Duration::from_micros(micros));
            }
            delay.time_max()
        };
        // A disk in memory.
        assert_eq!(after(10, 100), None);
        let waited = after(800, 100).unwrap();
        assert!((190..=200).contains(&waited.as_micros()), "{waited:?}");
        assert_eq!(after(1_000_000, 3), Some(TIME_MAX));
        assert_eq!(after(10, 200), None);
        // Rounds of no transaction say nothing of the disk.
        after(800, 100);
        (0..100).for_each(|_| delay.note_batch(0, Duration::from_micros(10)));
        assert!(delay.time_max().is_some());
    }

    #[test]
    fn waiting_in_vain_is_given_up_and_tried_again() {
        let mut delay = GroupCommitDelay::default();
        (0..100).for_each(|_| delay.note_batch(1, Duration::from_millis(1)));
        let waits = |delay: &mut GroupCommitDelay, all_came| {
            let waits = delay.time_max().is_some();
            if waits {
                delay.note_waiting(all_came);
            }
            waits
        };
        let in_vain = (0..1000).filter(|_| waits(&mut delay, false)).count();
        assert!((20..60).contains(&in_vain), "{in_vain}");
        while !waits(&mut delay, true) {}
        assert!((0..1000).all(|_| waits(&mut delay, true)));
    }
}
