//! Saying seldom what happens often.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What could be said a thousand times a second is said so often.
const PERIOD: Duration = Duration::from_secs(10);

/// Keeps one kind of message from filling the log.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    said: Option<Instant>,
    unsaid: u64,
}

impl Seldom {
    /// Whether to say it now, and how often it happened since it was last said, this time
    /// included.
    pub(crate) fn now(&self) -> Option<u64> {
        let mut state = self.0.lock();
        state.unsaid += 1;
        let now = Instant::now();
        if state.said.is_some_and(|said| now - said < PERIOD) {
            return None;
        }
        state.said = Some(now);
        Some(std::mem::take(&mut state.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_happens_often_is_said_once_in_a_while_with_its_count() {
        let seldom = Seldom::default();
        assert_eq!(seldom.now(), Some(1));
        for _ in 0..500 {
            assert_eq!(seldom.now(), None);
        }
        tokio::time::advance(PERIOD).await;
        assert_eq!(seldom.now(), Some(501));
    }
}
