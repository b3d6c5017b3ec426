//! Turns: what several threads may do at once, but not with the same thing.

use std::hash::Hash;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashSet;

use crate::interrupt::TICK;

/// Who has a turn at what.
pub(crate) struct Turns<T> {
    taken: Mutex<FxHashSet<T>>,
    given_back: Condvar,
}

/// A turn; over when dropped.
pub(crate) struct Turn<'t, T: Copy + Eq + Hash> {
    turns: &'t Turns<T>,
    thing: T,
}

impl<T: Copy + Eq + Hash> Turns<T> {
    pub(crate) fn new() -> Turns<T> {
        Turns { taken: Mutex::default(), given_back: Condvar::new() }
    }

    /// Waits until nobody else has one at this. `None`: `stops` has said to wait no longer; nothing
    /// is held when it is asked, about once a tick.
    pub(crate) fn take(&self, thing: T, stops: impl Fn() -> bool) -> Option<Turn<'_, T>> {
        let mut taken = self.taken.lock();
        while !taken.insert(thing) {
            let waited = self.given_back.wait_for(&mut taken, TICK);
            if waited.timed_out() && MutexGuard::unlocked(&mut taken, &stops) {
                return None;
            }
        }
        Some(Turn { turns: self, thing })
    }
}

impl<T: Copy + Eq + Hash> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.turns.taken.lock().remove(&self.thing);
        self.turns.given_back.notify_all();
    }
}
