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
