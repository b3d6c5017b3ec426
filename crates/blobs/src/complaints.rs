//! Logs what clients are refused again and again: the first time, then once a minute.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::warn;

use crate::BlobError;

/// Least time between two lines.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// What is refused for one kind of reason.
#[derive(Debug)]
pub(crate) struct Complaints {
    what: &'static str,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    logged: Option<Instant>,
    /// Refusals that no line has told of.
    untold: u64,
}

impl Complaints {
    pub(crate) fn of(what: &'static str) -> Complaints {
        Complaints { what, state: Mutex::default() }
    }

    /// Notes a refusal, and logs it if it is time.
    pub(crate) fn note(&self, error: &BlobError) {
        if let Some(count) = self.due(Instant::now()) {
            warn!(%error, count, "{}", self.what);
        }
    }

    /// How many refusals to tell of now.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        state.untold += 1;
        if state.logged.is_some_and(|logged| now.duration_since(logged) < LOG_INTERVAL) {
            return None;
        }
        state.logged = Some(now);
        Some(std::mem::take(&mut state.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_of_at_once_and_then_once_a_minute() {
        let (complaints, start) = (Complaints::of("refused"), Instant::now());
        let told =
            [0, 1, 59, 60, 61, 200].map(|at| complaints.due(start + Duration::from_secs(at)));
        assert_eq!(told, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
