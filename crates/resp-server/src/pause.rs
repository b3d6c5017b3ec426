//! Whether commands have to wait, and until when.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use zodium_keyspace::now;

/// The pause of a server, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// The end and kind of the pause, or of the last one, as [`State`] packs them; 0 for none. Read
    /// before each request, and hardly ever written. Relaxed: no other data depends on it, and a
    /// worker that sees it late pauses late.
    state: AtomicU64,
    /// Clients whose commands wait.
    clients: AtomicUsize,
}

/// A pause, as one number holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// When it ends, in milliseconds since 1970.
    until: u64,
    /// Whether all commands wait, or those that write.
    is_of_all: bool,
}

impl State {
    fn packed(self) -> u64 {
        self.until.min(u64::MAX >> 1) << 1 | u64::from(self.is_of_all)
    }

    /// The pause of a number, if it has not ended.
    fn current(packed: u64) -> Option<State> {
        let state = State { until: packed >> 1, is_of_all: packed & 1 == 1 };
        // Usually there is none: then the clock is not asked.
        (packed > 0 && state.until > now()).then_some(state)
    }
}

impl Pause {
    fn state(&self) -> Option<State> {
        State::current(self.state.load(Ordering::Relaxed))
    }

    /// When it ends; `None` without a pause.
    pub(crate) fn until(&self) -> Option<u64> {
        self.state().map(|state| state.until)
    }

    /// Number of clients whose commands wait.
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Notes a client whose command waits.
    pub(crate) fn enter(&self) {
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that such a client goes on, or has gone.
    pub(crate) fn leave(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a pause stops all commands, or those that write; `None` without a pause.
    pub(crate) fn is_of_all(&self) -> Option<bool> {
        self.state().map(|state| state.is_of_all)
    }

    /// What waits, as `INFO` says it.
    pub(crate) fn actions(&self) -> &'static str {
        match self.is_of_all() {
            None => "none",
            Some(true) => "all",
            Some(false) => "write",
        }
    }

    /// Begins a pause. One that is there ends no earlier, and pauses no less.
    pub(crate) fn begin(&self, until: u64, is_of_all: bool) {
        let joined = |packed| {
            let joined = match State::current(packed) {
                None => State { until, is_of_all },
                Some(before) => State {
                    until: until.max(before.until),
                    is_of_all: is_of_all || before.is_of_all,
                },
            };
            Some(joined.packed())
        };
        // It never fails, as `joined` always gives a number.
        let _ = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, joined);
    }

    /// Ends the pause, if there is one.
    pub(crate) fn end(&self) {
        self.state.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_pause_ends_no_earlier_and_stops_no_less() {
        let (pause, end) = (Pause::default(), now() + 1_000_000);
        assert_eq!((pause.until(), pause.actions()), (None, "none"));
        pause.begin(end, true);
        pause.begin(end - 1000, false);
        assert_eq!((pause.until(), pause.actions()), (Some(end), "all"));
        pause.end();
        assert_eq!((pause.until(), pause.actions()), (None, "none"));
        pause.begin(end, false);
        pause.begin(u64::MAX, false);
        assert_eq!((pause.until(), pause.actions()), (Some(u64::MAX >> 1), "write"));
    }

    #[test]
    fn a_pause_that_is_past_has_no_effect() {
        let pause = Pause::default();
        pause.begin(now() - 1, true);
        assert_eq!(pause.until(), None);
        pause.begin(now() + 1_000_000, false);
        assert_eq!(pause.actions(), "write");
    }
}
