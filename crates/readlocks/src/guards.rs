//! References to the values of locks, while they are held.

use std::ops::{Deref, DerefMut};

use crate::lock::{Lock, Reads};
use crate::readers::{Announced, Readers, bit};
use crate::sync::MutexGuard;

/// Reads the value of a lock. No thread writes to it meanwhile.
pub struct ReadGuard<'a, T> {
    lock: &'a Lock<T>,
    _entered: Entered<'a>,
}

/// How a reader keeps writers out, until it is dropped.
pub(crate) enum Entered<'a> {
    Announced { _announced: Announced<'a> },
    Locked { _reads: MutexGuard<'a, Reads> },
}

impl<'a, T> ReadGuard<'a, T> {
    /// # Safety
    /// The lock was open after the announcement, or the mutex is that of the lock.
    #[inline]
    pub(crate) unsafe fn new(lock: &'a Lock<T>, entered: Entered<'a>) -> ReadGuard<'a, T> {
        ReadGuard { lock, _entered: entered }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: no writer comes while the guard is there. After an announcement the lock was
        // open, so there was no writer. One that closes the lock later sees the announcement,
        // and waits. With the mutex there is no writer at all.
        unsafe { self.lock.value().shared() }
    }
}

/// Reads the values of several locks. No thread writes to them meanwhile.
pub struct ReadGuards<'a, T> {
    locks: &'a [Lock<T>],
    /// The locks that were entered by the announcement, a bit for each.
    open: u64,
    _announced: Option<Announced<'a>>,
    /// The others, with their numbers.
    locked: Vec<(usize, ReadGuard<'a, T>)>,
}

impl<'a, T> ReadGuards<'a, T> {
    /// # Safety
    /// The locks of `open` are announced, and were open after that.
    pub(crate) unsafe fn new(
        locks: &'a [Lock<T>],
        open: u64,
        announced: Option<Announced<'a>>,
        locked: Vec<(usize, ReadGuard<'a, T>)>,
    ) -> ReadGuards<'a, T> {
        ReadGuards { locks, open, _announced: announced, locked }
    }

    /// The value of a lock; `None` if it was not entered.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&T> {
        let lock = self.locks.get(number)?;
        if self.open & bit(number) != 0 {
            // SAFETY: as that of a guard of this lock alone.
            return Some(unsafe { lock.value().shared() });
        }
        self.locked.iter().find(|(locked, _)| *locked == number).map(|(_, guard)| &**guard)
    }
}

/// Reads and changes the value of a lock. There is no other reference to it.
pub struct WriteGuard<'a, T> {
    lock: &'a Lock<T>,
    readers: &'a Readers,
    _reads: MutexGuard<'a, Reads>,
}

impl<'a, T> WriteGuard<'a, T> {
    /// # Safety
    /// The mutex is that of the lock, the lock is closed, and no reader is within.
    pub(crate) unsafe fn new(
        lock: &'a Lock<T>,
        readers: &'a Readers,
        reads: MutexGuard<'a, Reads>,
    ) -> WriteGuard<'a, T> {
        WriteGuard { lock, readers, _reads: reads }
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: no reader was within when the guard was made. Only the holder of the mutex,
        // which is the guard, opens the lock again, and that when it is dropped.
        unsafe { self.lock.value().shared() }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably: there is no other reference.
        unsafe { self.lock.value().exclusive() }
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        // With one reader a look at its word costs next to nothing. The mutex is unlocked after
        // that.
        if self.readers.count() == 1 {
            self.lock.open();
        }
    }
}
