//! Transactions between their vote and their finish whose records point back to others.
//!
//! A back pointer is a position in the file, and a pack moves records. So the last step of a pack
//! waits until no such transaction is left, and no new one is prepared meanwhile.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Counts the transactions that point back, and keeps new ones out during a pack's last step.
#[derive(Debug, Default)]
pub(crate) struct BackPointers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    transactions: u64,
    /// A pack waits for its last step, or does it.
    is_closed: bool,
}

/// One transaction that points back; gone with its value.
#[derive(Debug)]
pub(crate) struct PointsBack(Arc<BackPointers>);

/// While it exists no transaction is let in.
pub(crate) struct Closed<'a>(&'a BackPointers);

impl BackPointers {
    /// Lets a transaction in, once no pack is at its last step. Blocking.
    pub(crate) fn enter(self: &Arc<Self>) -> PointsBack {
        let mut state = self.state.lock();
        while state.is_closed {
            self.changed.wait(&mut state);
        }
        state.transactions += 1;
        PointsBack(Arc::clone(self))
    }

    /// Keeps new transactions out, from now on.
    pub(crate) fn close(&self) -> Closed<'_> {
        self.state.lock().is_closed = true;
        Closed(self)
    }
}

impl Closed<'_> {
    /// Waits until none is left, `timeout` at most. How many are left.
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
