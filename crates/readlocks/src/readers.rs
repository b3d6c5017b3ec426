//! The words in which readers announce what they read.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, fence_in_models, yield_now};

/// Most readers at a time that have a word. More of them take mutexes.
pub const READERS_MAX: usize = if cfg!(loom) { 2 } else { 256 };

/// The words of all readers of some locks.
pub(crate) struct Readers {
    words: Box<[Word]>,
    /// Words from this number on were never given out. It only grows.
    given: AtomicUsize,
    /// Words that were given back.
    free: Mutex<Vec<usize>>,
}

/// On a line of its own, as only its reader writes to it.
#[repr(align(128))]
struct Word {
    /// A bit for each lock that its reader may be reading.
    reading: AtomicU64,
}

/// A thread's permission to read without a mutex. It belongs to the locks that it was made for.
///
/// It announces one read at a time: another one meanwhile takes the mutex.
pub struct Reader {
    readers: Arc<Readers>,
    /// The number of its word; `None` if there was none left.
    number: Option<usize>,
    /// The word is written by one thread at a time.
    not_shared: PhantomData<Cell<()>>,
}

impl Readers {
    pub(crate) fn new() -> Readers {
        let word = |_| Word { reading: AtomicU64::new(0) };
        let words = (0..READERS_MAX).map(word).collect();
        Readers { words, given: AtomicUsize::new(0), free: Mutex::new(Vec::new()) }
    }

    /// Number of words that a writer looks at.
    pub(crate) fn count(&self) -> usize {
        self.given.load(Ordering::Relaxed)
    }

    /// Waits until no reader reads a lock that the caller has closed.
    pub(crate) fn wait_for(&self, lock: usize) {
        fence_in_models();
        // Sequentially consistent, as is the closing: either the reader sees that the lock is
        // closed, or its word is seen here. A new reader's number comes before its first word.
        let given = self.given.load(Ordering::SeqCst);
        for word in &self.words[..given] {
            let mut looks = 0;
            // Acquires what the reader did before it left.
            while word.reading.load(Ordering::SeqCst) & bit(lock) != 0 {
                looks += 1;
                pause(looks);
            }
        }
    }
}

/// Pauses a thread that has looked so many times whether a reader has left.
fn pause(looks: usize) {
    /// Most readers leave within a microsecond, unless their threads are not running.
    const SPINS: usize = if cfg!(loom) { 0 } else { 200 };
    /// Others read many values: a processor is not kept busy as long.
    const YIELDS: usize = if cfg!(loom) { usize::MAX } else { SPINS + 100 };
    const SLEEP: Duration = Duration::from_micros(50);
    match looks {
        _ if looks < SPINS => std::hint::spin_loop(),
        _ if looks < YIELDS => yield_now(),
        _ => std::thread::sleep(SLEEP),
    }
}

impl Reader {
    pub(crate) fn new(readers: &Arc<Readers>) -> Reader {
        let mut free = readers.free.lock();
        let number = free.pop().or_else(|| {
            let next = readers.given.load(Ordering::Relaxed);
            let is_left = next < READERS_MAX;
            // Only under the mutex.
            is_left.then(|| readers.given.store(next + 1, Ordering::SeqCst)).map(|()| next)
        });
        drop(free);
        Reader { readers: Arc::clone(readers), number, not_shared: PhantomData }
    }

    #[inline]
    pub(crate) fn is_of(&self, readers: &Arc<Readers>) -> bool {
        Arc::ptr_eq(&self.readers, readers)
    }

    /// Announces locks. `None` if it can't: it has no word, or it is in use.
    #[inline]
    pub(crate) fn announce(&self, locks: u64) -> Option<Announced<'_>> {
        let Word { reading } = &self.readers.words[self.number?];
        if reading.load(Ordering::Relaxed) != 0 {
            return None;
        }
        reading.swap(locks, Ordering::SeqCst);
        fence_in_models();
        Some(Announced { reading })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // A guard that was forgotten reads for ever.
        let is_reading =
            |number: &usize| self.readers.words[*number].reading.load(Ordering::Relaxed) != 0;
        if let Some(number) = self.number.filter(|number| !is_reading(number)) {
            self.readers.free.lock().push(number);
        }
    }
}

/// Locks that a reader has announced. They are not closed until it is dropped, if they were open
/// after the announcement.
///
/// A guard that has it has at least one of them: the word tells that its reader is in use.
pub(crate) struct Announced<'a> {
    reading: &'a AtomicU64,
}

impl Announced<'_> {
    /// Withdraws the announced locks that are not among these, which were all announced. `None` if
    /// no lock is left.
    pub(crate) fn keep(self, locks: u64) -> Option<Self> {
        if locks == 0 {
            return None;
        }
        // Only its reader writes to the word.
        if self.reading.load(Ordering::Relaxed) != locks {
            self.reading.store(locks, Ordering::Release);
        }
        Some(self)
    }
}

impl Drop for Announced<'_> {
    #[inline]
    fn drop(&mut self) {
        self.reading.store(0, Ordering::Release);
    }
}

pub(crate) fn bit(lock: usize) -> u64 {
    1 << lock
}
