//! How long a batch may wait for more.
//!
//! One sync serves all who have asked for their finish when it begins, and costs the same for one
//! as for many. So it is worth waiting for who is about to ask, as long as that is little beside
//! the sync itself. Who is far away does not come in that time: when waiting was in vain some
//! times, it is only tried again now and then. A disk that syncs at once is not waited for at all.

use std::time::Duration;

/// This part of the time that a batch takes may be waited before it.
const SHARE: u32 = 4;
/// Less than that is no time to sleep.
const TIME_MIN: Duration = Duration::from_micros(20);
/// A disk that is slow by itself is not made slower by more than that.
const TIME_MAX: Duration = Duration::from_millis(1);
/// A batch counts as one of so many in the mean.
const MEMORY: u32 = 8;
/// So often in a row it is waited in vain.
const DISAPPOINTMENTS_MAX: u32 = 4;
/// So many batches are then not waited for.
const PAUSE_BATCHES: u32 = 32;

/// What batches took lately, and whether waiting for them was of use.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    mean: Duration,
    disappointments: u32,
    paused: u32,
}

impl Patience {
    /// A batch was written and synced.
    pub(crate) fn note_batch(&mut self, took: Duration) {
        self.mean = (self.mean * (MEMORY - 1) + took) / MEMORY;
    }

    /// How long the next one may wait; `None` when it is not worth it.
    pub(crate) fn time_max(&mut self) -> Option<Duration> {
        let time = self.mean / SHARE;
        if time < TIME_MIN {
            return None;
        }
        if self.disappointments >= DISAPPOINTMENTS_MAX {
            self.paused += 1;
            if self.paused <= PAUSE_BATCHES {
                return None;
            }
            self.paused = 0;
        }
        Some(time.min(TIME_MAX))
    }

    /// It was waited, and those who were waited for have all come or not.
    pub(crate) fn note_waiting(&mut self, all_came: bool) {
        self.disappointments = if all_came { 0 } else { self.disappointments.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_follows_the_disk_within_bounds() {
        let mut patience = Patience::default();
        assert_eq!(patience.time_max(), None);
        let mut after = |micros, batches| {
            for _ in 0..batches {
                patience.note_batch(Duration::from_micros(micros));
            }
            patience.time_max()
        };
        // In memory.
        assert_eq!(after(10, 100), None);
        let waited = after(800, 100).unwrap();
        assert!((190..=200).contains(&waited.as_micros()), "{waited:?}");
        assert_eq!(after(1_000_000, 3), Some(TIME_MAX));
        assert_eq!(after(10, 200), None);
    }

    #[test]
    fn waiting_in_vain_is_given_up_and_tried_again() {
        let mut patience = Patience::default();
        (0..100).for_each(|_| patience.note_batch(Duration::from_millis(1)));
        let waits = |patience: &mut Patience, all_came| {
            let waits = patience.time_max().is_some();
            if waits {
                patience.note_waiting(all_came);
            }
            waits
        };
        let in_vain = (0..1000).filter(|_| waits(&mut patience, false)).count();
        assert!((20..60).contains(&in_vain), "{in_vain}");
        while !waits(&mut patience, true) {}
        assert!((0..1000).all(|_| waits(&mut patience, true)));
    }
}
