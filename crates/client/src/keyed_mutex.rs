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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const NEVER: fn() -> bool = || false;

    #[test]
    fn one_thread_at_a_time_holds_a_key() {
        let mutex = KeyedMutex::new();
        let (holders, turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _guard = mutex.lock(1, NEVER).unwrap();
                        assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0);
                        std::thread::yield_now();
                        holders.fetch_sub(1, Ordering::Relaxed);
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(turns.into_inner(), 200);
    }

    #[test]
    fn a_wait_of_several_ticks_ends_with_the_key() {
        let mutex = KeyedMutex::new();
        let held = mutex.lock(1, NEVER).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| mutex.lock(1, NEVER).is_some());
            std::thread::sleep(TICK * 3 / 2);
            drop(held);
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn a_wait_ends_when_it_is_told_to_and_a_free_key_needs_none() {
        let mutex = KeyedMutex::new();
        let held = mutex.lock(1, NEVER).unwrap();
        assert!(mutex.lock(1, || true).is_none());
        let other = mutex.lock(2, || true);
        assert!(other.is_some());
        drop(held);
        assert!(mutex.lock(1, || true).is_some());
    }
}
