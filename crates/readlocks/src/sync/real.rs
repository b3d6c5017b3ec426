//! The types of std and of `parking_lot`.

use std::cell::UnsafeCell;

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::thread::yield_now;

pub(crate) use parking_lot::{Mutex, MutexGuard};

/// The value of a lock.
pub(crate) struct Value<T>(UnsafeCell<T>);

impl<T> Value<T> {
    pub(crate) fn new(value: T) -> Value<T> {
        Value(UnsafeCell::new(value))
    }

    /// # Safety
    /// There is no mutable reference to it, as long as the result lives.
    pub(crate) unsafe fn shared(&self) -> &T {
        // SAFETY: the caller promises it.
        unsafe { &*self.0.get() }
    }

    /// # Safety
    /// There is no other reference to it, as long as the result lives.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that there is no other one")]
    pub(crate) unsafe fn exclusive(&self) -> &mut T {
        // SAFETY: the caller promises it.
        unsafe { &mut *self.0.get() }
    }
}

/// Sequentially consistent accesses need no fence.
pub(crate) fn fence_in_models() {}
