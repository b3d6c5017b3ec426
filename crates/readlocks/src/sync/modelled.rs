//! The types of loom.

use loom::cell::UnsafeCell;
pub(crate) use loom::sync::MutexGuard;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use loom::thread::yield_now;

/// The value of a lock. Each access must come after all that are incompatible with it: loom
/// checks that.
pub(crate) struct Value<T>(UnsafeCell<T>);

impl<T> Value<T> {
    pub(crate) fn new(value: T) -> Value<T> {
        Value(UnsafeCell::new(value))
    }

    /// # Safety
    /// There is no mutable reference to it, as long as the result lives.
    pub(crate) unsafe fn shared(&self) -> &T {
        // SAFETY: the caller promises it.
        self.0.with(|value| unsafe { &*value })
    }

    /// # Safety
    /// There is no other reference to it, as long as the result lives.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that there is no other one")]
    pub(crate) unsafe fn exclusive(&self) -> &mut T {
        // SAFETY: the caller promises it.
        self.0.with_mut(|value| unsafe { &mut *value })
    }
}

/// A mutex with the interface of `parking_lot`.
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub(crate) fn try_lock_for(&self, _: std::time::Duration) -> Option<MutexGuard<'_, T>> {
        self.try_lock()
    }

    pub(crate) fn try_lock_until(&self, _: std::time::Instant) -> Option<MutexGuard<'_, T>> {
        self.try_lock()
    }
}

/// loom takes a sequentially consistent access for one that acquires and releases only. It knows
/// sequentially consistent fences.
pub(crate) fn fence_in_models() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}
