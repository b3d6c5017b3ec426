//! Why a server serves nothing now: for the log, and for monitors.
//!
//! A transaction waits a minute for its server, and its client has no error meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{info, warn};

use super::MariaAddress;
use crate::driver::Error;

/// How often failures are logged, at most: readers may find no connection while the writer has one.
const WARNING_PAUSE: Duration = Duration::from_secs(10);

/// The last failed attempt to connect, until a statement succeeds.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Whether there is one: what each statement looks at. It orders nothing else.
    is_there: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failing: Option<Failing>,
    /// When a failure was logged last.
    warned: Option<Instant>,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    reason: String,
    /// Whether this reason was logged.
    is_told: bool,
}

impl Trouble {
    /// Why the last attempt failed.
    pub(super) fn obstacle(&self) -> Option<String> {
        self.state.lock().failing.as_ref().map(|failing| failing.reason.clone())
    }

    /// Notes a failed attempt.
    pub(super) fn note(&self, database: &MariaAddress, error: &Error) {
        self.note_at(Instant::now(), database, error);
    }

    fn note_at(&self, now: Instant, database: &MariaAddress, error: &Error) {
        let reason = error.to_string();
        let State { failing, warned } = &mut *self.state.lock();
        self.is_there.store(true, Ordering::Relaxed);
        let is_same = failing.as_ref().is_some_and(|failing| failing.reason == reason);
        let is_told = is_same && failing.as_ref().is_some_and(|failing| failing.is_told);
        let is_due = warned.is_none_or(|warned| now.duration_since(warned) >= WARNING_PAUSE);
        if !is_told && is_due {
            warn!(%database, reason, "cannot connect to the database, trying again");
            *warned = Some(now);
        }
        let since = failing.as_ref().map_or(now, |failing| failing.since);
        *failing = Some(Failing { since, reason, is_told: is_told || is_due });
    }

    /// Notes that a statement has succeeded.
    pub(super) fn end(&self, database: &MariaAddress) {
        if !self.is_there.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        self.is_there.store(false, Ordering::Relaxed);
        if let Some(failing) = state.failing.take().filter(|failing| failing.is_told) {
            let seconds = failing.since.elapsed().as_secs();
            info!(%database, seconds, "connected to the database again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_there_until_a_statement_succeeds_and_is_told_once() {
        let database = MariaAddress::of_url("mysql://user@host/name").unwrap();
        let error = |text: &str| Error::Settings(text.to_owned());
        let trouble = Trouble::default();
        let is_told = || trouble.state.lock().failing.as_ref().map(|failing| failing.is_told);
        let start = Instant::now();
        trouble.note_at(start, &database, &error("first"));
        assert_eq!((trouble.obstacle().as_deref(), is_told()), (Some("first"), Some(true)));
        trouble.note_at(start, &database, &error("second"));
        assert_eq!((trouble.obstacle().as_deref(), is_told()), (Some("second"), Some(false)));
        trouble.note_at(start + WARNING_PAUSE, &database, &error("second"));
        assert_eq!(is_told(), Some(true));
        trouble.end(&database);
        assert_eq!((trouble.obstacle(), is_told()), (None, None));
        trouble.note_at(start + WARNING_PAUSE, &database, &error("third"));
        assert_eq!(is_told(), Some(false), "too soon");
    }
}
