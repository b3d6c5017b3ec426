//! How long threads wait: until their answer comes, or until they are interrupted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::interrupt::{Interrupt, Interrupted, TICK};

/// Whether the threads of a client may be interrupted while they wait.
#[derive(Clone, Default)]
pub struct Patience(Option<Arc<dyn Interrupt>>);

impl Patience {
    /// Threads stop waiting when `interrupt` says so.
    pub fn new(interrupt: Option<Arc<dyn Interrupt>>) -> Patience {
        Patience(interrupt)
    }

    /// Waits in steps: `step` waits at most until the moment that it is given, and gives what was
    /// waited for. `None` at the deadline.
    ///
    /// # Errors
    /// When the calling thread is interrupted.
    pub fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut step: impl FnMut(Option<Instant>) -> Option<T>,
    ) -> Result<Option<T>, Interrupted> {
        let Some(interrupt) = self.asked() else { return Ok(step(deadline)) };
        loop {
            let now = Instant::now();
            let tick = now + TICK;
            let next = deadline.map_or(tick, |deadline| deadline.min(tick));
            if let Some(done) = step(Some(next)) {
                return Ok(Some(done));
            }
            if interrupt.stops() {
                return Err(Interrupted);
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(None);
            }
        }
    }

    /// Whether the calling thread may be interrupted.
    pub(crate) fn may_end(&self) -> bool {
        self.asked().is_some()
    }

    /// What decides for the calling thread; `None` if it is never interrupted.
    fn asked(&self) -> Option<&Arc<dyn Interrupt>> {
        self.0.as_ref().filter(|interrupt| interrupt.may_stop())
    }

    /// Whether the calling thread is to stop waiting now. Called with no lock held.
    pub fn has_ended(&self) -> bool {
        self.asked().is_some_and(|interrupt| interrupt.stops())
    }

    /// As [`Patience::has_ended`]; asks at most once a tick.
    pub(crate) fn has_ended_by(&self, next_look: &mut Option<Instant>) -> bool {
        let Some(interrupt) = self.asked() else { return false };
        let now = Instant::now();
        if next_look.is_some_and(|next_look| now < next_look) {
            return false;
        }
        *next_look = Some(now + TICK);
        interrupt.stops()
    }

    /// Sleeps.
    ///
    /// # Errors
    /// When the calling thread is interrupted.
    pub fn sleep(&self, time: Duration) -> Result<(), Interrupted> {
        let step = |until: Option<Instant>| {
            let left = until.map_or(time, |until| until.saturating_duration_since(Instant::now()));
            std::thread::sleep(left);
            None::<()>
        };
        self.wait(Some(Instant::now() + time), step).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Stops at the third question.
    #[derive(Default)]
    struct Third(AtomicU32);

    impl Interrupt for Third {
        fn may_stop(&self) -> bool {
            true
        }

        fn stops(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed) == 2
        }
    }

    #[test]
    fn waits_end_when_they_are_interrupted_at_the_deadline_or_with_an_answer() {
        let patience = Patience::new(Some(Arc::new(Third::default())));
        let mut steps = 0;
        let waited = patience.wait(None, |until| {
            assert!(until.is_some());
            steps += 1;
            None::<()>
        });
        assert_eq!(waited, Err(Interrupted));
        assert_eq!(steps, 3);
        assert_eq!(patience.wait(None, |_| Some(7)).unwrap(), Some(7));
        let over = Some(Instant::now());
        assert_eq!(patience.wait(over, |_| None::<()>).unwrap(), None);
        let endless = Patience::default();
        assert_eq!(endless.wait(None, |until| Some(until.is_none())).unwrap(), Some(true));
    }
}
