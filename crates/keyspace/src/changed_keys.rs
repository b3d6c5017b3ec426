//! Keys that change while all of them are copied, key by key.

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Removed;

/// Keys that have changed since a copy of the keyspace began.
#[derive(Debug, Default)]
pub(crate) struct ChangedKeys {
    /// Whether they are noted. Set before the first stripe is locked to be copied: a hold that
    /// locks a stripe after that sees it.
    is_noted: AtomicBool,
    changes: Mutex<KeyChanges>,
}

/// What has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyChanges {
    /// Keys, by database.
    pub keys: FxHashSet<(usize, Box<[u8]>)>,
    /// Whole databases have changed: the copy must begin anew.
    pub is_whole: bool,
}

impl ChangedKeys {
    pub(crate) fn begin(&self) {
        *self.changes.lock() = KeyChanges::default();
        self.is_noted.store(true, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        self.is_noted.store(false, Ordering::Release);
        *self.changes.lock() = KeyChanges::default();
    }

    pub(crate) fn is_noted(&self) -> bool {
        self.is_noted.load(Ordering::Acquire)
    }

    /// Whether a key was noted since they were taken. The caller holds its stripe.
    pub(crate) fn has(&self, database: usize, key: &[u8]) -> bool {
        let changes = self.changes.lock();
        changes.is_whole || changes.keys.contains(&(database, key.into()))
    }

    /// Notes keys. The caller holds their stripes.
    pub(crate) fn note(&self, keys: impl Iterator<Item = Removed>, is_whole: bool) {
        let mut changes = self.changes.lock();
        changes.is_whole |= is_whole;
        changes.keys.extend(keys.map(|Removed { database, key }| (database, key)));
    }

    pub(crate) fn take(&self) -> KeyChanges {
        std::mem::take(&mut *self.changes.lock())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Keyspace, now};

    #[test]
    fn a_key_that_has_changed_is_not_visited_until_its_change_was_taken() {
        let keyspace = Keyspace::default();
        let set = |value: &[u8]| {
            let mut hold = keyspace.lock(keyspace.stripe(b"key"), now());
            hold.journal.is_kept = true;
            hold.put_string(b"key", value, None);
            hold.end_touches(None);
        };
        let is_visited = |key: &[u8]| keyspace.visit_unchanged(0, key, &mut |_, _| ());
        set(b"1");
        keyspace.begin_changes();
        assert!(is_visited(b"key") && !is_visited(b"other"));
        set(b"2");
        assert!(!is_visited(b"key"));
        assert_eq!(keyspace.take_changes().keys.len(), 1);
        assert!(is_visited(b"key"));
    }
}
