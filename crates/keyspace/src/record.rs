//! A key with what a database has for it.
//!
//! Key decision: a short string is one allocation with its key, since most keys have one. It takes
//! less memory than two allocations, and a lookup that has compared the key finds the value in the
//! same lines of the processor's caches. Everything else is behind one pointer.

use std::num::NonZeroU64;

use bytes::Bytes;

use crate::{Entry, Text, Value, ValueRef, Word, WrongType};

/// Longest string that is kept with its key. A longer one is worth being sent without a copy, so it
/// has bytes that answers can share.
pub const PACKED_BYTES_MAX: usize = 5 << 10;
/// Bytes of the time in a packed string that expires.
const TIME_BYTES: usize = 8;
/// Values from so many bytes on take so long to free that clients should not wait for it:
/// collections, which are many allocations, and strings.
const LARGE_COLLECTION_BYTES: u64 = 64 << 10;
const LARGE_STRING_BYTES: u64 = 1 << 20;
/// Elements of a collection whose sizes stand for those of all.
const SAMPLES: usize = 5;
/// Bytes that sizes are counted in, so that four bytes suffice.
const SIZE_UNIT: usize = 16;

/// A key with its value, and when it expires.
#[derive(Clone, Debug)]
pub struct Record {
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    /// A string: the time in milliseconds since 1970 (8 bytes, little-endian) if it expires, the
    /// key, the value.
    Packed {
        key_bytes: u16,
        expires: bool,
        bytes: Box<[u8]>,
    },
    Whole(Box<Whole>),
}

#[derive(Clone, Debug)]
struct Whole {
    key: Word,
    value: Value,
    /// In milliseconds since 1970.
    expires_at: Option<NonZeroU64>,
    /// Its bytes with those of the key, as they were counted last: in units of [`SIZE_UNIT`].
    size: u32,
}

/// What a key is to have.
pub(crate) enum New<'a> {
    /// A string, and when it expires.
    String(&'a [u8], Option<u64>),
    Entry(Entry),
}

impl New<'_> {
    pub(crate) fn expires_at(&self) -> Option<u64> {
        match self {
            New::String(_, expires_at) => *expires_at,
            New::Entry(entry) => entry.expires_at(),
        }
    }

    pub(crate) fn record(self, key: &[u8]) -> Record {
        let entry = match self {
            New::String(value, expires_at) => {
                let packed = Record::packed(key, value, expires_at);
                return packed.unwrap_or_else(|| {
                    let value = Value::String(Bytes::copy_from_slice(value));
                    Record::whole(key, Entry::new(value).expiring(expires_at))
                });
            }
            New::Entry(entry) => entry,
        };
        let packed = match &entry.value {
            Value::String(bytes) => Record::packed(key, bytes, entry.expires_at()),
            _ => None,
        };
        packed.unwrap_or_else(|| Record::whole(key, entry))
    }
}

impl Record {
    fn whole(key: &[u8], entry: Entry) -> Record {
        let expires_at = time(entry.expires_at());
        let whole = Whole { key: key.into(), value: entry.value, expires_at, size: 0 };
        let mut record = Record { form: Form::Whole(Box::new(whole)) };
        record.count_bytes();
        record
    }

    /// A string with its key; `None` if one of them is too long.
    fn packed(key: &[u8], value: &[u8], expires_at: Option<u64>) -> Option<Record> {
        let key_bytes = u16::try_from(key.len()).ok()?;
        if value.len() > PACKED_BYTES_MAX {
            return None;
        }
        let expires_at = time(expires_at);
        let time_bytes = if expires_at.is_some() { TIME_BYTES } else { 0 };
        let mut bytes = Vec::with_capacity(time_bytes + key.len() + value.len());
        if let Some(at) = expires_at {
            bytes.extend_from_slice(&at.get().to_le_bytes());
        }
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        let bytes = bytes.into_boxed_slice();
        Some(Record { form: Form::Packed { key_bytes, expires: expires_at.is_some(), bytes } })
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> ValueRef<'_> {
        match &self.form {
            Form::Packed { key_bytes, expires, bytes } => {
                let start = value_start(*key_bytes, *expires);
                ValueRef::String(Text::Packed(bytes.get(start..).unwrap_or_default()))
            }
            Form::Whole(whole) => whole.value.as_ref(),
        }
    }

    /// The value, to change it; `None` for a string.
    pub(crate) fn collection_mut(&mut self) -> Option<&mut Value> {
        match &mut self.form {
            Form::Packed { .. } => None,
            Form::Whole(whole) => match whole.value {
                Value::String(_) => None,
                _ => Some(&mut whole.value),
            },
        }
    }

    /// When the key expires, in milliseconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        match &self.form {
            Form::Packed { expires: false, .. } => None,
            Form::Packed { bytes, .. } => {
                bytes.first_chunk::<TIME_BYTES>().map(|at| u64::from_le_bytes(*at))
            }
            Form::Whole(whole) => whole.expires_at.map(NonZeroU64::get),
        }
    }

    pub(crate) fn set_expires_at(&mut self, at: Option<u64>) {
        let at = time(at);
        match &mut self.form {
            Form::Packed { expires: false, .. } if at.is_none() => {}
            Form::Packed { key_bytes, expires, bytes } => {
                if let (true, Some(at)) = (*expires, at) {
                    bytes[..TIME_BYTES].copy_from_slice(&at.get().to_le_bytes());
                    return;
                }
                let rest = &bytes[value_start(0, *expires)..];
                let (key, value) = rest.split_at(usize::from(*key_bytes));
                if let Some(packed) = Record::packed(key, value, at.map(NonZeroU64::get)) {
                    *self = packed;
                }
            }
            Form::Whole(whole) => whole.expires_at = at,
        }
    }

    /// Sets what its key has. The allocation stays if the new string has the same length.
    pub(crate) fn set(&mut self, new: New) {
        if let (Form::Packed { key_bytes, expires, bytes }, New::String(value, expires_at)) =
            (&mut self.form, &new)
        {
            let start = value_start(*key_bytes, *expires);
            let expires_at = time(*expires_at);
            if *expires == expires_at.is_some() && bytes.len() == start + value.len() {
                if let Some(at) = expires_at {
                    bytes[..TIME_BYTES].copy_from_slice(&at.get().to_le_bytes());
                }
                bytes[start..].copy_from_slice(value);
                return;
            }
        }
        *self = new.record(self.as_ref());
    }

    /// Sets the string, whose time stays.
    ///
    /// # Errors
    /// It is no string.
    pub(crate) fn replace_string(&mut self, value: &[u8]) -> Result<(), WrongType> {
        match self.value() {
            ValueRef::String(_) => self.set(New::String(value, self.expires_at())),
            _ => return Err(WrongType),
        }
        Ok(())
    }

    /// Changes the string; returns its length. The time stays.
    ///
    /// # Errors
    /// It is no string.
    pub(crate) fn change_string(
        &mut self,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize, WrongType> {
        let expires_at = self.expires_at();
        let mut owned = match &mut self.form {
            // No copy, unless an answer that is being sent shares the bytes.
            Form::Whole(whole) => match &mut whole.value {
                Value::String(bytes) => Vec::from(std::mem::take(bytes)),
                _ => return Err(WrongType),
            },
            Form::Packed { key_bytes, expires, bytes } => {
                bytes[value_start(*key_bytes, *expires)..].to_vec()
            }
        };
        change(&mut owned);
        let length = owned.len();
        match length > PACKED_BYTES_MAX {
            true => {
                self.set(New::Entry(Entry::new(Value::String(owned.into())).expiring(expires_at)))
            }
            false => self.set(New::String(&owned, expires_at)),
        }
        Ok(length)
    }

    /// The bytes of a string that is packed with its key.
    pub(crate) fn packed_bytes(&self) -> Option<&[u8]> {
        match &self.form {
            Form::Packed { bytes, .. } => Some(bytes),
            Form::Whole(_) => None,
        }
    }

    /// Its value and time, without the key.
    #[must_use]
    pub fn into_entry(self) -> Entry {
        let expires_at = self.expires_at();
        let value = match self.form {
            Form::Whole(whole) => whole.value,
            Form::Packed { .. } => self.value().to_value(),
        };
        Entry::new(value).expiring(expires_at)
    }

    /// Bytes of the record, as they were counted last.
    #[must_use]
    pub fn counted_bytes(&self) -> u64 {
        match &self.form {
            Form::Packed { .. } => self.estimated_bytes(0) as u64,
            Form::Whole(whole) => u64::from(whole.size) * SIZE_UNIT as u64,
        }
    }

    /// Whether it takes long to free, as a collection of thousands of elements does.
    #[must_use]
    pub fn is_large(&self) -> bool {
        let least = match self.value() {
            ValueRef::String(_) => LARGE_STRING_BYTES,
            _ => LARGE_COLLECTION_BYTES,
        };
        self.counted_bytes() >= least
    }

    /// Counts the bytes of a value anew that can change in place.
    pub(crate) fn count_bytes(&mut self) {
        if matches!(self.form, Form::Whole(_)) {
            let bytes = self.estimated_bytes(SAMPLES).div_ceil(SIZE_UNIT);
            if let Form::Whole(whole) = &mut self.form {
                whole.size = u32::try_from(bytes).unwrap_or(u32::MAX);
            }
        }
    }

    /// Bytes of the allocation that its place leads to.
    pub(crate) fn allocated_bytes(&self) -> usize {
        match &self.form {
            Form::Packed { bytes, .. } => bytes.len(),
            Form::Whole(_) => size_of::<Whole>(),
        }
    }

    /// Bytes of the key, if they have an allocation of their own.
    pub(crate) fn apart_key_bytes(&self) -> usize {
        match &self.form {
            Form::Packed { .. } => 0,
            Form::Whole(whole) => whole.key.len(),
        }
    }
}

/// The key.
impl AsRef<[u8]> for Record {
    fn as_ref(&self) -> &[u8] {
        match &self.form {
            Form::Packed { key_bytes, expires, bytes } => {
                let key = value_start(0, *expires)..value_start(*key_bytes, *expires);
                bytes.get(key).unwrap_or_default()
            }
            Form::Whole(whole) => &whole.key,
        }
    }
}

/// Where the value of a packed string begins.
fn value_start(key_bytes: u16, expires: bool) -> usize {
    usize::from(key_bytes) + if expires { TIME_BYTES } else { 0 }
}

/// A time that is there is never 0.
fn time(at: Option<u64>) -> Option<NonZeroU64> {
    at.map(|at| NonZeroU64::new(at).unwrap_or(NonZeroU64::MIN))
}
