//! One locked key, for commands that need nothing of a [`crate::Hold`] but its string.

use parking_lot::MutexGuard;

use crate::record::New;
use crate::stripe::{Database, Stripe};
use crate::{EntryRef, Keyspace, Place, Text, Uses, ValueRef, WrongType};

/// A key whose stripe is locked. As with a hold, it is not there if its time is past, or if one of
/// its ties was cut.
pub struct LockedKey<'a> {
    stripe: MutexGuard<'a, Stripe>,
    hash: u64,
    database: usize,
    key: &'a [u8],
    now: u64,
    /// Ties that were cut until then are cut.
    moment: u64,
    uses: Uses,
}

impl Keyspace {
    /// Locks the stripe of a key; `None` if another thread has locked it. `now` is in milliseconds
    /// since 1970.
    #[must_use]
    pub fn try_lock_key<'a>(
        &'a self,
        place: Place,
        database: usize,
        key: &'a [u8],
        now: u64,
    ) -> Option<LockedKey<'a>> {
        let stripe = self.try_lock_one(place.stripe)?;
        let (hash, moment, uses) = (place.hash, self.moments.last(), self.uses());
        Some(LockedKey { stripe, hash, database, key, now, moment, uses })
    }
}

impl LockedKey<'_> {
    fn database(&self) -> &Database {
        &self.stripe.databases[self.database]
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.database().get(self.hash, self.key)
    }

    fn is_gone(&self, entry: EntryRef<'_>) -> bool {
        self.database().is_gone(entry, self.now, self.moment)
    }

    /// Its string; `None` if the key is not there.
    ///
    /// # Errors
    /// Its value is of another type.
    pub fn read_string(&self, notes_use: bool) -> Result<Option<Text<'_>>, WrongType> {
        let Some(entry) = self.entry().filter(|entry| !self.is_gone(*entry)) else {
            return Ok(None);
        };
        let ValueRef::String(text) = entry.value() else { return Err(WrongType) };
        if notes_use {
            entry.note_use(self.now, self.uses);
        }
        Ok(Some(text))
    }

    /// Whether the key is to be removed, because its time is past or a tie of it was cut.
    #[must_use]
    pub fn has_gone(&self) -> bool {
        self.entry().is_some_and(|entry| self.is_gone(entry))
    }

    /// Sets its string, which does not expire, and marks the watchers of the key. A new value has
    /// no ties. The caller has looked that the key has not gone.
    pub fn put_string(&mut self, value: &[u8]) {
        let (now, uses) = (self.now, self.uses);
        let database = &mut self.stripe.databases[self.database];
        let new = New::String(value, None);
        database.insert(self.hash, self.key, new, |used| used.again(now, uses));
        self.stripe.mark(self.database, self.key);
    }

    /// The position of its last change in a log; 0 if that is at `safe` or before.
    #[must_use]
    pub fn unsynced(&self, safe: u64) -> u64 {
        self.stripe.unsynced.of(self.hash, safe)
    }
}
