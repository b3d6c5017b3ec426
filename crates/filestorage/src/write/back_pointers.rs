//! Voted and unfinished transactions whose records point back to other records.
//!
//! A back pointer is a position in the file, and a pack moves records. So the last step of a pack
//! waits until no such transaction is left, and keeps new ones out meanwhile.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Counts transactions with back pointers, and keeps new ones out during a pack's last step.
#[derive(Debug, Default)]
pub(crate) struct BackPointers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    transactions: u64,
    /// Whether a pack waits for its last step, or runs it.
    is_closed: bool,
}

/// One transaction with back pointers, counted until this value is dropped.
#[derive(Debug)]
pub(crate) struct PointsBack(Arc<BackPointers>);

/// While this value exists, new transactions with back pointers have to wait.
pub(crate) struct Closed<'a>(&'a BackPointers);

impl BackPointers {
    /// Counts a new transaction, after waiting for the last step of a running pack. Blocking.
    pub(crate) fn enter(self: &Arc<Self>) -> PointsBack {
        let mut state = self.state.lock();
        while state.is_closed {
            self.changed.wait(&mut state);
        }
        state.transactions += 1;
        PointsBack(Arc::clone(self))
    }

    /// Keeps new transactions out from now on.
    pub(crate) fn close(&self) -> Closed<'_> {
        self.state.lock().is_closed = true;
        Closed(self)
    }
}

impl Closed<'_> {
    /// Waits until no transaction is left, for at most `timeout`. Returns how many are left.
    pub(crate) fn wait(&self, timeout: Duration) -> u64 {
        let mut state = self.0.state.lock();
        if state.transactions > 0 {
            self.0.changed.wait_for(&mut state, timeout);
        }
        state.transactions
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = false;
        self.0.changed.notify_all();
    }
}

impl Drop for PointsBack {
    fn drop(&mut self) {
        self.0.state.lock().transactions -= 1;
        self.0.changed.notify_all();
    }
}
