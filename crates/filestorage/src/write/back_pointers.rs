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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_last_step_of_a_pack_waits_for_transactions_a_while() {
        let back_pointers = Arc::new(BackPointers::default());
        let closed = back_pointers.close();
        let started = Instant::now();
        assert_eq!(closed.wait(LONG), 0);
        assert!(started.elapsed() < LONG);
        drop(closed);
        let [first, second] = [back_pointers.enter(), back_pointers.enter()];
        let closed = back_pointers.close();
        let (started, short) = (Instant::now(), Duration::from_millis(2));
        assert_eq!(closed.wait(short), 2);
        assert!(started.elapsed() >= short);
        drop(first);
        assert_eq!(closed.wait(short), 1);
        std::thread::scope(|scope| {
            let ends = scope.spawn(move || drop(second));
            while closed.wait(LONG) > 0 {}
            ends.join().unwrap();
        });
        assert!(started.elapsed() < LONG);
    }

    #[test]
    fn new_transactions_wait_until_the_last_step_is_over() {
        let back_pointers = Arc::new(BackPointers::default());
        drop(back_pointers.close());
        // It would wait for ever.
        drop(back_pointers.enter());
        let closed = back_pointers.close();
        std::thread::scope(|scope| {
            let entering = scope.spawn(|| back_pointers.enter());
            assert_eq!(closed.wait(Duration::from_millis(2)), 0);
            assert!(!entering.is_finished());
            drop(closed);
            drop(entering.join().unwrap());
        });
    }
}
