//! The changes that a hold has seen, which the device of a log may not have yet.

use std::cell::Cell;

/// How far a log is safe, and how far changes were seen. Both are positions of the log.
pub struct Seen {
    /// Changes up to here are safe.
    pub safe: u64,
    last: Cell<u64>,
}

impl Seen {
    /// The largest position of a change that was seen, and is not safe; 0 if there is none.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last.get()
    }

    pub(crate) fn see(&self, position: u64) {
        if position > self.last.get() {
            self.last.set(position);
        }
    }
}

impl Default for Seen {
    /// Without a log, all is safe.
    fn default() -> Seen {
        Seen { safe: u64::MAX, last: Cell::new(0) }
    }
}
