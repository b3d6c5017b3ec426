//! Turns: what several threads may do at once, but not with the same thing.

use std::hash::Hash;

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashSet;

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

    /// Waits until nobody else has one at this.
    pub(crate) fn take(&self, thing: T) -> Turn<'_, T> {
        let mut taken = self.taken.lock();
        while !taken.insert(thing) {
            self.given_back.wait(&mut taken);
        }
        Turn { turns: self, thing }
    }
}

impl<T: Copy + Eq + Hash> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.turns.taken.lock().remove(&self.thing);
        self.turns.given_back.notify_all();
    }
}
