//! Changes of a stripe that a log has, and its device may not.
//!
//! Key decision: keys are known by their hashes, and only while their changes are on their way. So
//! a reader of other keys of the stripe waits for nothing.

use rustc_hash::FxHashMap;

/// Entries from which those that are safe by now are looked for.
const ENTRIES_MIN: usize = 32;

/// The positions of changes in a log, by the hash of the key.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    /// The last position of any.
    last: u64,
    /// The last position of a change of all keys.
    all: u64,
    by_hash: FxHashMap<u64, u64>,
    /// Entries that were left when it was looked for safe ones.
    swept: usize,
}

impl Unsynced {
    /// Notes a change of a key. Positions up to `safe` need not be known any more.
    pub(crate) fn note(&mut self, hash: u64, position: u64, safe: u64) {
        self.last = self.last.max(position);
        if self.by_hash.len() >= 2 * self.swept + ENTRIES_MIN {
            self.by_hash.retain(|_, position| *position > safe);
            self.swept = self.by_hash.len();
        }
        self.by_hash.insert(hash, position);
    }

    /// Notes a change of all keys.
    pub(crate) fn note_all(&mut self, position: u64) {
        self.last = self.last.max(position);
        self.all = position;
        self.by_hash.clear();
    }

    /// The position of the last change of a key; 0 if that is at `safe` or before.
    pub(crate) fn of(&self, hash: u64, safe: u64) -> u64 {
        if self.last <= safe {
            return 0;
        }
        let of_key = self.by_hash.get(&hash).copied().unwrap_or(0);
        Some(of_key.max(self.all)).filter(|position| *position > safe).unwrap_or(0)
    }

    /// The position of the last change of any key; 0 if that is at `safe` or before.
    pub(crate) fn of_any(&self, safe: u64) -> u64 {
        if self.last > safe { self.last } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_whose_changes_are_not_safe_are_known() {
        let mut unsynced = Unsynced::default();
        for position in 1..=1000 {
            unsynced.note(position % 500, position, position.saturating_sub(10));
        }
        assert_eq!(unsynced.of(0, 999), 1000);
        assert_eq!(unsynced.of(0, 1000), 0);
        assert_eq!((unsynced.of(495, 990), unsynced.of(250, 990)), (995, 0));
        assert_eq!((unsynced.of_any(999), unsynced.of_any(1000)), (1000, 0));
        assert!(unsynced.by_hash.len() <= 2 * 10 + ENTRIES_MIN);
        unsynced.note_all(1001);
        assert_eq!(unsynced.of(12_345, 1000), 1001);
    }
}
