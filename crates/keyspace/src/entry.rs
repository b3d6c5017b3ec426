//! What a database has for a key.

use std::cell::Cell;
use std::num::NonZeroU64;

use crate::uses::Used;
use crate::{Eviction, First, Kind, Uses, Value, WrongType};

/// A value, and when it ends.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// When the key expires, in milliseconds since 1970.
    expires_at: Option<NonZeroU64>,
    /// Its uses: the last one, or how frequent they are.
    used: Cell<Used>,
    /// Its bytes with those of the key, as they were counted last: in units of [`SIZE_UNIT`].
    size: u32,
}

/// Bytes that sizes are counted in, so that four bytes suffice.
const SIZE_UNIT: usize = 16;

impl Entry {
    /// A value that does not end.
    #[must_use]
    pub fn new(value: Value) -> Entry {
        Entry { value, expires_at: None, used: Cell::default(), size: 0 }
    }

    /// The same, which ends at a time in milliseconds since 1970.
    #[must_use]
    pub fn expiring(mut self, at: Option<u64>) -> Entry {
        self.set_expires_at(at);
        self
    }

    /// Only the database changes the time of an entry that it holds: it counts these.
    pub(crate) fn set_expires_at(&mut self, at: Option<u64>) {
        self.expires_at = at.map(|at| NonZeroU64::new(at).unwrap_or(NonZeroU64::MIN));
    }

    /// When it expires, in milliseconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        self.expires_at.map(NonZeroU64::get)
    }

    /// Whether its time is past.
    #[must_use]
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at.get() <= now)
    }

    /// When it was last used, in seconds since 1970. `now` is in milliseconds.
    #[must_use]
    pub fn used_at(&self, now: u64) -> u32 {
        self.used.get().seconds(now)
    }

    /// How frequently it is used, from 0 to 255; 0 if that is not counted.
    #[must_use]
    pub fn frequency(&self, now: u64, uses: Uses) -> u8 {
        match uses {
            Uses::Times => 0,
            Uses::Frequencies { decay_minutes, .. } => {
                self.used.get().frequency(now, decay_minutes)
            }
        }
    }

    /// Notes that it is used now, in milliseconds since 1970.
    pub(crate) fn note_use(&self, now: u64, uses: Uses) {
        self.used.set(self.used.get().again(now, uses));
    }

    pub(crate) fn used(&self) -> Used {
        self.used.get()
    }

    pub(crate) fn set_used(&self, used: Used) {
        self.used.set(used);
    }

    /// Its rank when memory is full: the lowest goes first. `None`: it stays.
    pub(crate) fn rank(&self, eviction: Eviction, now: u64, uses: Uses) -> Option<u64> {
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

    /// Bytes of the entry with its key, as they were counted last.
    pub(crate) fn counted_bytes(&self) -> u64 {
        u64::from(self.size) * SIZE_UNIT as u64
    }

    /// Counts the bytes anew, by estimate. `None` for the key: it is no part of the database.
    pub(crate) fn count_bytes(&mut self, key: Option<&[u8]>) {
        let bytes = key.map_or(0, |key| self.quickly_estimated_bytes(key));
        self.size = u32::try_from(bytes.div_ceil(SIZE_UNIT)).unwrap_or(u32::MAX);
    }

    /// The value as one of a type.
    ///
    /// # Errors
    /// It is of another one.
    pub fn of<T: Kind>(&self) -> Result<&T, WrongType> {
        T::of(&self.value).ok_or(WrongType)
    }
}
