//! What a key has: on its own, or as it is read from a database.

use crate::uses::{SharedUsed, Used};
use crate::{Eviction, First, Kind, Record, Uses, Value, ValueRef, WrongType};

/// A value, and when it ends.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// When the key expires, in milliseconds since 1970.
    expires_at: Option<u64>,
}

impl Entry {
    /// A value that does not end.
    #[must_use]
    pub fn new(value: Value) -> Entry {
        Entry { value, expires_at: None }
    }

    /// The same, which ends at a time in milliseconds since 1970.
    #[must_use]
    pub fn expiring(mut self, at: Option<u64>) -> Entry {
        self.expires_at = at;
        self
    }

    /// When it expires, in milliseconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        self.expires_at
    }
}

/// What a database has for a key.
#[derive(Clone, Copy, Debug)]
pub struct EntryRef<'a> {
    record: &'a Record,
    /// Its uses: the last one, or how frequent they are.
    used: &'a SharedUsed,
}

impl<'a> EntryRef<'a> {
    pub(crate) fn new((record, used): (&'a Record, &'a SharedUsed)) -> EntryRef<'a> {
        EntryRef { record, used }
    }

    /// The key.
    #[must_use]
    pub fn key(self) -> &'a [u8] {
        self.record.as_ref()
    }

    /// The value.
    #[must_use]
    pub fn value(self) -> ValueRef<'a> {
        self.record.value()
    }

    /// The value as one of a type.
    ///
    /// # Errors
    /// It is of another one.
    pub fn of<T: Kind>(self) -> Result<&'a T, WrongType> {
        T::of(self.value()).ok_or(WrongType)
    }

    /// A copy of its own.
    #[must_use]
    pub fn to_entry(self) -> Entry {
        Entry::new(self.value().to_value()).expiring(self.expires_at())
    }

    /// Whether its value takes long to free or to copy, as a collection of thousands of elements.
    #[must_use]
    pub fn is_large(self) -> bool {
        self.record.is_large()
    }

    /// When it expires, in milliseconds since 1970.
    #[must_use]
    pub fn expires_at(self) -> Option<u64> {
        self.record.expires_at()
    }

    /// Whether its time is past.
    #[must_use]
    pub fn is_expired(self, now: u64) -> bool {
        self.record.is_expired(now)
    }

    /// Bytes of the entry with its key, by the sizes of `samples` elements; 0 for all.
    #[must_use]
    pub fn estimated_bytes(self, samples: usize) -> usize {
        self.record.estimated_bytes(samples)
    }

    /// When it was last used, in seconds since 1970. `now` is in milliseconds.
    #[must_use]
    pub fn used_at(self, now: u64) -> u32 {
        self.used.get().seconds(now)
    }

    /// How frequently it is used, from 0 to 255; 0 if that is not counted.
    #[must_use]
    pub fn frequency(self, now: u64, uses: Uses) -> u8 {
        match uses {
            Uses::Times => 0,
            Uses::Frequencies { decay_minutes, .. } => {
                self.used.get().frequency(now, decay_minutes)
            }
        }
    }

    /// Notes that it is used now, in milliseconds since 1970.
    pub(crate) fn note_use(self, now: u64, uses: Uses) {
        // Mostly the same second as before: a line that is not written need not be written back.
        let used = self.used.get().again(now, uses);
        if used != self.used.get() {
            self.used.set(used);
        }
    }

    pub(crate) fn set_used(self, used: Used) {
        self.used.set(used);
    }

    /// Its rank when memory is full: the lowest goes first. `None`: it stays.
    pub(crate) fn rank(self, eviction: Eviction, now: u64, uses: Uses) -> Option<u64> {
        let expires_at = self.expires_at();
        if eviction.only_volatile && expires_at.is_none() {
            return None;
        }
        match eviction.first {
            First::LeastRecent => Some(self.used_at(now).into()),
            First::LeastFrequent => Some(self.frequency(now, uses).into()),
            First::Shortest => expires_at,
            First::Random => Some(0),
        }
    }
}

impl Record {
    /// Whether its time is past.
    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }
}
