//! A mutex for each key, out of one set of locked keys.

use std::hash::Hash;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashSet;

use zodium_transport::TICK;

/// Locks keys of type `T`.
pub(crate) struct KeyedMutex<T> {
    locked: Mutex<FxHashSet<T>>,
    unlocked: Condvar,
}

/// Unlocks its key when dropped.
pub(crate) struct KeyedGuard<'t, T: Copy + Eq + Hash> {
    mutex: &'t KeyedMutex<T>,
    key: T,
}

impl<T: Copy + Eq + Hash> KeyedMutex<T> {
    pub(crate) fn new() -> KeyedMutex<T> {
        KeyedMutex { locked: Mutex::default(), unlocked: Condvar::new() }
    }

    /// Locks a key, waiting while another thread holds it. Returns `None` if `stops` says so; it is
    /// asked about once a tick, with nothing locked.
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
