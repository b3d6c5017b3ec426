//! A queue whose items are due some time after they were added.
//!
//! The timer is set a little early and the rest is spent polling, because a sleeping processor
//! wakes up late.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// How long before a due time the thread polls.
const AWAKE_BEFORE: Duration = Duration::from_micros(60);
/// The kernel's timer slack of a thread that waits for items.
pub(super) const TIMER_SLACK_NANOS: NonZeroU64 = NonZeroU64::MIN;

/// Lets exactly so much time pass.
pub(super) fn let_pass(time: Duration) {
    let due = Instant::now() + time;
    std::thread::sleep(time.saturating_sub(4 * AWAKE_BEFORE));
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

/// Items in the order in which they are due.
pub(super) struct Delayed<T> {
    delay: Duration,
    items: VecDeque<(Instant, T)>,
}

impl<T> Delayed<T> {
    /// An empty queue.
    pub(super) fn new(delay: Duration) -> Delayed<T> {
        Delayed { delay, items: VecDeque::new() }
    }

    /// Whether there is a delay at all.
    pub(super) fn delays(&self) -> bool {
        !self.delay.is_zero()
    }

    pub(super) fn push(&mut self, item: T) {
        self.items.push_back((Instant::now() + self.delay, item));
    }

    /// Takes the first item, if it is due.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.items.pop_front_if(|(due, _)| *due <= Instant::now()).map(|(_, item)| item)
    }

    /// How long the thread may sleep; `None` if there are no items.
    pub(super) fn wait(&self) -> Option<Duration> {
        let (due, _) = self.items.front()?;
        Some(due.saturating_duration_since(Instant::now()).saturating_sub(AWAKE_BEFORE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_due_in_order_and_not_before_their_time() {
        let delay = Duration::from_millis(2);
        let mut delayed = Delayed::new(delay);
        assert!(delayed.delays() && delayed.wait().is_none());
        let began = Instant::now();
        delayed.push(1);
        delayed.push(2);
        let mut taken = Vec::new();
        while taken.len() < 2 {
            taken.extend(delayed.pop());
        }
        assert!(began.elapsed() >= delay);
        assert_eq!(taken, [1, 2]);
    }
}
