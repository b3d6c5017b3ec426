//! Conflict resolution with an application's classes, in a separate Python process.
//!
//! [`PythonResolver`] has a helper: a Python interpreter chosen by the operator (`helper.py`). It
//! imports the classes and calls their `_p_resolveConflict`, as ZODB does inside of a stock server.
//! Loading what clients have stored executes what they name. So the helper has limits and few
//! rights, and this process does not depend on it. Whatever happens to a helper, the worst result
//! is an unresolved conflict, and the next conflict gets another helper.
//!
//! Invariants: no call waits for a helper longer than its limits allow. A helper has one request at
//! a time, and is not used again after a failure. It inherits no descriptor except its socket.

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

/// Limits of a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time limit of its start: an interpreter and the import of ZODB, on a busy machine.
    pub start_time_max: Duration,
    /// Time limit of a conflict, including the import of the class. The transaction's objects are
    /// locked meanwhile. The helper limits its own processor time to a third of the default.
    pub call_time_max: Duration,
    /// Number of calls after which the helper is replaced, which bounds leaks.
    pub calls_max: u32,
    /// Largest total size of a conflict's three records, and of the merged one.
    pub record_bytes_max: usize,
    /// Most conflicts that may wait at once. Each one has a thread, and locks.
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

/// Resolves the conflicts of one storage with classes imported by a Python interpreter.
///
/// There is one for each storage, so that a hostile record affects only the storage that contains
/// it.
#[derive(Debug)]
pub struct PythonResolver {
    python: PathBuf,
    limits: Limits,
    waiting: AtomicUsize,
    state: Mutex<State>,
}

/// Locked during a call: the helper has one call at a time.
#[derive(Debug, Default)]
struct State {
    helper: Option<Helper>,
    retrying: Retrying,
}

impl PythonResolver {
    /// Uses this interpreter: a path, or a name looked up in `PATH`. It is started for the first
    /// conflict that needs it.
    pub fn new(python: PathBuf, limits: Limits) -> PythonResolver {
        PythonResolver { python, limits, waiting: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// Whether the program exists now.
    pub fn is_there(&self) -> bool {
        if self.python.components().count() > 1 {
            return self.python.is_file();
        }
        let folders = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&folders).any(|folder| folder.join(&self.python).is_file())
    }

    /// Resolves a conflict with the class of these records: `new` was made from `old`, and
    /// `committed` came first. Returns `None` if it is not resolved. Blocks as long as the limits
    /// allow.
    pub fn resolve(&self, old: &[u8], committed: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        let bytes = old.len() + committed.len() + new.len();
        if bytes > self.limits.record_bytes_max {
            debug!(bytes, "a conflict is too large for the Python resolver");
            return None;
        }
        // Relaxed: a bound; no other data depend on it.
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

    /// The helper for the next call; `None` if it cannot be started, or not yet again.
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

    /// Discards a failed helper, and logs the failure unless one was logged recently.
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
