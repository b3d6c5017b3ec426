//! KeyedMutex: what several threads may do at once, but not with the same key.

use std::hash::Hash;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashSet;

use crate::interrupt::TICK;

/// Who has a turn at what.
pub(crate) struct KeyedMutex<T> {
    locked: Mutex<FxHashSet<T>>,
    unlocked: Condvar,
}

/// A turn; over when dropped.
pub(crate) struct KeyedGuard<'t, T: Copy + Eq + Hash> {
    mutex: &'t KeyedMutex<T>,
    key: T,
}

impl<T: Copy + Eq + Hash> KeyedMutex<T> {
    pub(crate) fn new() -> KeyedMutex<T> {
        KeyedMutex { locked: Mutex::default(), unlocked: Condvar::new() }
    }

    /// Waits until nobody else has one at this. `None`: `stops` has said to wait no longer; nothing
    /// is held when it is asked, about once a tick.
    pub(crate) fn lock(&self, key: T, stops: impl Fn() -> bool) -> Option<KeyedGuard<'_, T>> {
        let mut locked = self.locked.lock();
        while !locked.insert(key) {
            let waited = self.unlocked.wait_for(&mut locked, TICK);
            if waited.timed_out() && MutexGuard::unlocked(&mut locked, &stops) {
                return None;
            }
        }
        Some(KeyedGuard { mutex: self, key })
    }
}

impl<T: Copy + Eq + Hash> Drop for KeyedGuard<'_, T> {
    fn drop(&mut self) {
        self.mutex.locked.lock().remove(&self.key);
        self.mutex.unlocked.notify_all();
    }
}
