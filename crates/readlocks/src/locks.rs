//! The locks: opening, closing and entering them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::guards::{Entered, ReadGuard, ReadGuards, WriteGuard};
use crate::lock::{Lock, Reads};
use crate::readers::{Reader, Readers, bit};
use crate::sync::MutexGuard;

/// Most locks that are read with one announcement: bits of a word.
pub const LOCKS_MAX: usize = 64;

/// How long a reader waits for a mutex: for others that read or write one value. Others may hold
/// it as long as a script runs.
const MOMENT: Duration = Duration::from_micros(50);

/// Locks around values, by number.
///
/// A thread that reads a lock must not write to it before the guard is dropped: it would wait for
/// itself.
pub struct ReadLocks<T> {
    locks: Box<[Lock<T>]>,
    readers: Arc<Readers>,
}

// SAFETY: a shared `ReadLocks` gives `&T` to several threads and `&mut T` to one of any of them, so
// `T` must be both. The guards of `guards.rs` say why these references never meet.
unsafe impl<T: Send + Sync> Sync for ReadLocks<T> {}

impl<T> ReadLocks<T> {
    /// Locks around values.
    ///
    /// # Panics
    /// There are more than [`LOCKS_MAX`].
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = T>) -> ReadLocks<T> {
        let locks: Box<[Lock<T>]> = values.into_iter().map(Lock::new).collect();
        assert!(locks.len() <= LOCKS_MAX, "{} locks", locks.len());
        ReadLocks { locks, readers: Arc::new(Readers::new()) }
    }

    /// Permission of a thread to read without mutexes.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(&self.readers)
    }

    /// Locks one to write, and waits for all readers and writers of it.
    ///
    /// # Panics
    /// There is no lock with this number.
    pub fn lock(&self, number: usize) -> WriteGuard<'_, T> {
        let lock = &self.locks[number];
        self.close(number, lock.mutex().lock())
    }

    /// As [`ReadLocks::lock`]; `None` if another thread holds its mutex.
    ///
    /// # Panics
    /// There is no lock with this number.
    pub fn try_lock(&self, number: usize) -> Option<WriteGuard<'_, T>> {
        let lock = &self.locks[number];
        Some(self.close(number, lock.mutex().try_lock()?))
    }

    /// As [`ReadLocks::lock`]; `None` if another thread holds its mutex until a time.
    ///
    /// # Panics
    /// There is no lock with this number.
    pub fn try_lock_until(&self, number: usize, until: Instant) -> Option<WriteGuard<'_, T>> {
        let lock = &self.locks[number];
        Some(self.close(number, lock.mutex().try_lock_until(until)?))
    }

    fn close<'a>(&'a self, number: usize, mut reads: MutexGuard<'a, Reads>) -> WriteGuard<'a, T> {
        let lock = &self.locks[number];
        if lock.close() {
            reads.0 = 0;
            self.readers.wait_for(number);
        }
        // SAFETY: no reader is within, and none enters: the lock is closed until the guard opens
        // it, and others wait for the mutex.
        unsafe { WriteGuard::new(lock, &self.readers, reads) }
    }

    /// Reads one; `None` if another thread holds its mutex for longer than a moment.
    ///
    /// # Panics
    /// There is no lock with this number, or the reader is that of other locks.
    #[inline]
    pub fn try_read<'a>(&'a self, reader: &'a Reader, number: usize) -> Option<ReadGuard<'a, T>> {
        assert!(reader.is_of(&self.readers), "a reader of other locks");
        let lock = &self.locks[number];
        // The first look saves an announcement that would be of no use.
        if lock.seems_open()
            && let Some(announced) = reader.announce(bit(number))
            && lock.is_open()
        {
            let entered = Entered::Announced { _announced: announced };
            // SAFETY: the lock was open after the announcement.
            return Some(unsafe { ReadGuard::new(lock, entered) });
        }
        Some(self.read_locked(lock, lock.mutex().try_lock_for(MOMENT)?))
    }

    /// Reads by the mutex.
    #[cold]
    fn read_locked<'a>(
        &'a self,
        lock: &'a Lock<T>,
        mut reads: MutexGuard<'a, Reads>,
    ) -> ReadGuard<'a, T> {
        reads.0 += 1;
        // A writer's look at all words is paid by as many readers.
        if reads.0 + 1 >= self.readers.count() {
            lock.open();
        }
        // SAFETY: the guard holds the mutex.
        unsafe { ReadGuard::new(lock, Entered::Locked { _reads: reads }) }
    }

    /// Reads several at once: those of a set that no other thread holds the mutex of. Bit N of the
    /// set is for lock N.
    ///
    /// # Panics
    /// The reader is that of other locks.
    pub fn read_each<'a>(&'a self, reader: &'a Reader, wanted: u64) -> ReadGuards<'a, T> {
        assert!(reader.is_of(&self.readers), "a reader of other locks");
        let (mut open, mut announced) = (0, reader.announce(wanted));
        if let Some(all) = announced {
            open = self.chosen(wanted).fold(0, |open, (number, lock)| {
                open | if lock.is_open() { bit(number) } else { 0 }
            });
            announced = all.keep(open);
        }
        let closed = self.chosen(wanted & !open);
        let locked = closed
            .filter_map(|(number, lock)| {
                let reads = lock.mutex().try_lock()?;
                Some((number, self.read_locked(lock, reads)))
            })
            .collect();
        // SAFETY: the locks of `open` were open after the announcement.
        unsafe { ReadGuards::new(&self.locks, open, announced, locked) }
    }

    /// Reads all of a set at once, for long: other readers may enter all of them meanwhile. `None`
    /// if another thread holds the mutex of one, or the reader is in use. Bit N of the set is for
    /// lock N.
    ///
    /// # Panics
    /// The reader is that of other locks.
    pub fn read_all<'a>(&'a self, reader: &'a Reader, wanted: u64) -> Option<ReadGuards<'a, T>> {
        assert!(reader.is_of(&self.readers), "a reader of other locks");
        let announced = reader.announce(wanted)?;
        for (_, lock) in self.chosen(wanted) {
            if !lock.is_open() {
                // With the mutex there is no writer. The next one finds the announcement.
                let _reads = lock.mutex().try_lock()?;
                lock.open();
            }
        }
        // SAFETY: the locks were open after the announcement, some by this thread.
        Some(unsafe { ReadGuards::new(&self.locks, wanted, announced.keep(wanted), Vec::new()) })
    }

    /// The locks of a set, with their numbers.
    fn chosen(&self, set: u64) -> impl Iterator<Item = (usize, &Lock<T>)> {
        let mut left = set;
        std::iter::from_fn(move || {
            let number = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            Some((number, self.locks.get(number)?))
        })
    }
}
