//! One lock: whether readers may enter, the mutex of writers, and the value.

use crate::sync::{AtomicBool, Mutex, Ordering, Value};

/// On a line of its own, so that none slows down its neighbours.
#[repr(align(128))]
pub(crate) struct Lock<T> {
    /// Whether a reader that has announced itself may enter. Set by the holder of the mutex only.
    ///
    /// Invariant: it is not set while there is a write guard.
    is_open: AtomicBool,
    mutex: Mutex<Reads>,
    value: Value<T>,
}

/// Number of readers that have taken the mutex since the lock was closed.
pub(crate) struct Reads(pub(crate) usize);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        let (is_open, mutex) = (AtomicBool::new(false), Mutex::new(Reads(0)));
        Lock { is_open, mutex, value: Value::new(value) }
    }

    pub(crate) fn mutex(&self) -> &Mutex<Reads> {
        &self.mutex
    }

    #[inline]
    pub(crate) fn value(&self) -> &Value<T> {
        &self.value
    }

    /// Whether readers that have announced it before may enter.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        // Acquires what the last writer wrote, from the thread that has opened it.
        self.is_open.load(Ordering::SeqCst)
    }

    /// Lets readers in. The caller holds the mutex, and writes no more.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// Whether it is worth to announce it.
    #[inline]
    pub(crate) fn seems_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Lets no more readers in; whether it was open. The caller holds the mutex.
    pub(crate) fn close(&self) -> bool {
        // Only the holder of the mutex changes it. Sequentially consistent with the look at the
        // readers' words that follows, as an announcement is with the reader's look at this.
        self.seems_open() && self.is_open.swap(false, Ordering::SeqCst)
    }
}
