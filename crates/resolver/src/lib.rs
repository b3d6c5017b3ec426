//! Conflict resolution with the classes of an application, in a Python process of its own.
//!
//! [`PythonResolver`] has a helper, a Python interpreter of the operator's, import the classes and
//! call their `_p_resolveConflict`, as ZODB does in a stock server's own process (`helper.py`).
//! Loading what clients have stored executes what they name, so the helper has limits and few
//! rights, and nothing in this process depends on it: whatever happens to it, a conflict is not
//! resolved, and the next one finds another helper.
//!
//! Invariants: no call waits for a helper longer than its limits say; a helper has one request at
//! a time, and none that failed one is asked again; the helper gets no descriptor but its socket.

#![forbid(unsafe_code)]

mod frame;
mod helper;
mod retrying;

use std::env;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{debug, info, warn};

use frame::Answer;
use helper::{Failure, Helper};
use retrying::Retrying;

/// What a helper may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time for its start: an interpreter, and the import of ZODB, on a busy machine.
    pub start_time_max: Duration,
    /// Time for one conflict, the import of the class included. The objects of the transaction are
    /// locked meanwhile. Of processor time the helper allows itself a third of the default.
    pub call_time_max: Duration,
    /// Calls after which another helper takes over, so that what leaks does not pile up.
    pub calls_max: u32,
    /// Bytes of the three records of a conflict together, and of the merged one.
    pub record_bytes_max: usize,
    /// Conflicts that may wait at once. Each has a thread, and locks.
    pub waiting_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            start_time_max: Duration::from_secs(30),
            call_time_max: Duration::from_secs(30),
            calls_max: 10_000,
            record_bytes_max: 64 << 20,
            waiting_max: 64,
        }
    }
}

/// Resolves the conflicts of one storage with the classes that a Python interpreter imports.
///
/// One for each storage: what a hostile record does to a helper stays with the storage it is in.
#[derive(Debug)]
pub struct PythonResolver {
    python: PathBuf,
    limits: Limits,
    waiting: AtomicUsize,
    state: Mutex<State>,
}

/// Held during a call: the helper has one at a time.
#[derive(Debug, Default)]
struct State {
    helper: Option<Helper>,
    retrying: Retrying,
}

impl PythonResolver {
    /// Uses this interpreter: a path, or a name that is looked up in `PATH`. It is started by the
    /// first conflict that needs it.
    pub fn new(python: PathBuf, limits: Limits) -> PythonResolver {
        PythonResolver { python, limits, waiting: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// Whether there is such a program now.
    pub fn is_there(&self) -> bool {
        if self.python.components().count() > 1 {
            return self.python.is_file();
        }
        let folders = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&folders).any(|folder| folder.join(&self.python).is_file())
    }

    /// What the class of these records makes of a conflict: `new` was made from `old`, and
    /// `committed` came first. `None`: it is not resolved. Blocking, as long as the limits say.
    pub fn resolve(&self, old: &[u8], committed: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        let bytes = old.len() + committed.len() + new.len();
        if bytes > self.limits.record_bytes_max {
            debug!(bytes, "a conflict is too large for the Python resolver");
            return None;
        }
        // Relaxed: a bound, and nothing is read that another thread wrote before it.
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let merged = match waiting < self.limits.waiting_max {
            true => self.resolve_in_turn([old, committed, new]),
            false => None,
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        merged
    }

    fn resolve_in_turn(&self, records: [&[u8]; 3]) -> Option<Vec<u8>> {
        let mut state = self.state.try_lock_for(self.limits.call_time_max)?;
        let helper = self.started(&mut state)?;
        match helper.call(records, &self.limits) {
            Ok(Answer::Resolved(record)) => Some(record),
            Ok(Answer::Unresolved(reason)) => {
                debug!(reason, "the class does not resolve a conflict");
                None
            }
            Ok(Answer::Failed(reason)) => {
                if let Some(times) = state.retrying.is_said() {
                    warn!(
                        times,
                        "a class of the application failed to resolve a conflict: {reason}"
                    );
                }
                None
            }
            Err(failure) => {
                self.end(&mut state, &failure);
                None
            }
        }
    }

    /// The helper that takes the next call. `None`: it cannot be started, or not yet again.
    fn started<'a>(&self, state: &'a mut State) -> Option<&'a mut Helper> {
        if state.helper.as_ref().is_some_and(|helper| helper.calls() >= self.limits.calls_max) {
            state.helper = None;
        }
        if let Some(Err(failure)) = state.helper.as_mut().map(Helper::check) {
            self.end(state, &failure);
        }
        if state.helper.is_none() {
            if !state.retrying.may_try(Instant::now()) {
                debug!("a conflict is not resolved: the Python resolver failed too often");
                return None;
            }
            match Helper::start(&self.python, &self.limits) {
                Ok(helper) => {
                    if state.retrying.has_started() {
                        let without = helper.without();
                        info!(python = %self.python.display(), without, "the Python resolver runs");
                    }
                    state.helper = Some(helper);
                }
                Err(failure) => self.end(state, &failure),
            }
        }
        state.helper.as_mut()
    }

    /// A helper that failed is no more, and logged unless that was said just now.
    fn end(&self, state: &mut State, failure: &Failure) {
        state.helper = None;
        if let Some(times) = state.retrying.has_failed(failure.is_at_start(), Instant::now()) {
            warn!(
                python = %self.python.display(),
                times,
                "the Python resolver failed: {failure}"
            );
        }
    }
}
