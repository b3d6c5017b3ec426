//! One locked key, for commands that need nothing of a [`crate::Hold`] but its string.

use std::ops::Deref;

use zodium_readlocks::{ReadGuard, Reader, WriteGuard};

use crate::record::New;
use crate::stripe::{Database, Stripe};
use crate::{EntryRef, Keyspace, Place, Text, Uses, ValueRef, WrongType};

/// A key whose stripe no other thread changes, to read its string. Others may read it too.
pub struct ReadableKey<'a>(LockedKey<'a, ReadGuard<'a, Stripe>>);

/// A key whose stripe no other thread reads or changes, to set its string.
pub struct WritableKey<'a>(LockedKey<'a, WriteGuard<'a, Stripe>>);

/// As with a hold, a key is not there if its time is past, or if one of its ties was cut.
struct LockedKey<'a, G> {
    stripe: G,
    hash: u64,
    database: usize,
    key: &'a [u8],
    now: u64,
    /// Ties that were cut until then are cut.
    moment: u64,
    uses: Uses,
}

impl Keyspace {
    /// Locks the stripe of a key to read it; `None` if another thread has locked it. `now` is in
    /// milliseconds since 1970.
    #[must_use]
    #[inline]
    pub fn try_read_key<'a>(
        &'a self,
        reader: &'a Reader,
        place: Place,
        database: usize,
        key: &'a [u8],
        now: u64,
    ) -> Option<ReadableKey<'a>> {
        let stripe = self.stripes.try_read(reader, place.stripe)?;
        Some(ReadableKey(self.locked(stripe, place, database, key, now)))
    }

    /// Locks the stripe of a key to write to it; `None` if another thread has locked it. `now` is
    /// in milliseconds since 1970.
    #[must_use]
    pub fn try_lock_key<'a>(
        &'a self,
        place: Place,
        database: usize,
        key: &'a [u8],
        now: u64,
    ) -> Option<WritableKey<'a>> {
        let stripe = self.stripes.try_lock(place.stripe)?;
        Some(WritableKey(self.locked(stripe, place, database, key, now)))
    }

    /// As [`Keyspace::try_lock_key`], but waits for other threads.
    #[must_use]
    pub fn lock_key<'a>(
        &'a self,
        place: Place,
        database: usize,
        key: &'a [u8],
        now: u64,
    ) -> WritableKey<'a> {
        let stripe = self.stripes.lock(place.stripe);
        WritableKey(self.locked(stripe, place, database, key, now))
    }

    #[inline]
    fn locked<'a, G>(
        &self,
        stripe: G,
        Place { hash, .. }: Place,
        database: usize,
        key: &'a [u8],
        now: u64,
    ) -> LockedKey<'a, G> {
        // After the stripe was locked, as for a hold.
        let (moment, uses) = (self.moments.last(), self.uses());
        LockedKey { stripe, hash, database, key, now, moment, uses }
    }
}

impl<G: Deref<Target = Stripe>> LockedKey<'_, G> {
    #[inline]
    fn database(&self) -> &Database {
        &self.stripe.databases[self.database]
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.database().get(self.hash, self.key)
    }

    #[inline]
    fn is_gone(&self, entry: EntryRef<'_>) -> bool {
        self.database().is_gone(entry, self.now, self.moment)
    }
}

impl ReadableKey<'_> {
    /// Its string; `None` if the key is not there.
    ///
    /// # Errors
    /// Its value is of another type.
    #[inline]
    pub fn read_string(&self, notes_use: bool) -> Result<Option<Text<'_>>, WrongType> {
        let key = &self.0;
        let Some(entry) = key.entry().filter(|entry| !key.is_gone(*entry)) else {
            return Ok(None);
        };
        let ValueRef::String(text) = entry.value() else { return Err(WrongType) };
        if notes_use {
            entry.note_use(key.now, key.uses);
        }
        Ok(Some(text))
    }

    /// The position of its last change in a log; 0 if that is at `safe` or before.
    #[must_use]
    pub fn unsynced(&self, safe: u64) -> u64 {
        self.0.stripe.unsynced.of(self.0.hash, safe)
    }
}

impl WritableKey<'_> {
    /// Whether the key is to be removed, because its time is past or a tie of it was cut.
    #[must_use]
    pub fn has_gone(&self) -> bool {
        self.0.entry().is_some_and(|entry| self.0.is_gone(entry))
    }

    /// Whether it has a value that takes long to free.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.0.entry().is_some_and(EntryRef::is_large)
    }

    /// Sets its string and when that expires, in milliseconds since 1970, and marks the watchers of
    /// the key. A new value has no ties. If the key has gone, that is not noted: the caller has
    /// looked, or it does not matter.
    pub fn put_string(&mut self, value: &[u8], expires_at: Option<u64>) {
        let LockedKey { stripe, hash, database, key, now, uses, .. } = &mut self.0;
        let new = New::String(value, expires_at);
        stripe.databases[*database].insert(*hash, key, new, |used| used.again(*now, *uses));
        stripe.mark(*database, key);
    }
}
