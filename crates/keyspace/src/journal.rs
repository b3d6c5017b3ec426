//! What a log gets of the changes of a hold, and which keys they are.

use std::cell::RefCell;

use rustc_hash::FxHashSet;

use crate::Removed;

/// What the caller writes about a hold, and the keys that it has changed.
#[derive(Default)]
pub struct Journal {
    /// Whether the caller keeps a log. Keys are noted then.
    pub is_kept: bool,
    /// What the log gets.
    pub record: Vec<u8>,
    /// How many of the expired keys the record has.
    pub expired: usize,
    /// Number of times that a key was changed. One change may count several times.
    touches: u64,
    /// These keys.
    touched: Vec<Removed>,
    /// Whether whole databases were changed.
    is_whole_touched: bool,
    /// Keys that were asked for and not seen, since a tie of theirs was cut.
    hidden: RefCell<FxHashSet<Removed>>,
}

impl Journal {
    /// Number of times that a key was changed. One change may count several times.
    #[must_use]
    pub fn touches(&self) -> u64 {
        self.touches
    }

    /// Notes that a key is changed.
    pub(crate) fn touch(&mut self, database: usize, key: &[u8]) {
        self.touches += 1;
        self.note(database, key);
    }

    /// Notes a change of whole databases.
    pub(crate) fn touch_all(&mut self) {
        self.touches += 1;
        self.is_whole_touched = true;
    }

    /// Notes a key that is gone because its time is past, which is no change of the caller's.
    pub(crate) fn note(&mut self, database: usize, key: &[u8]) {
        let is_last = |last: &Removed| last.database == database && *last.key == *key;
        if self.is_kept && !self.touched.last().is_some_and(is_last) {
            self.touched.push(Removed { database, key: key.into() });
        }
    }

    /// Notes a key that was asked for and not seen, since a tie of it was cut.
    pub(crate) fn note_hidden(&self, database: usize, key: &[u8]) {
        if self.is_kept {
            self.hidden.borrow_mut().insert(Removed { database, key: key.into() });
        }
    }

    /// Takes these keys.
    pub(crate) fn take_hidden(&mut self) -> FxHashSet<Removed> {
        std::mem::take(self.hidden.get_mut())
    }

    /// Takes the noted keys, and whether whole databases were changed.
    pub(crate) fn take_touched(&mut self) -> (Vec<Removed>, bool) {
        (std::mem::take(&mut self.touched), std::mem::take(&mut self.is_whole_touched))
    }
}
