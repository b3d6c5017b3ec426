//! How much memory values take, by estimate.

use crate::key::{Key, SHORT_BYTES_MAX};
use crate::{Entry, Table, Value, Word};

/// What the allocator adds to an allocation, on average.
const ALLOCATION_BYTES: usize = 8;

impl Entry {
    /// Bytes of the entry with its key, by the sizes of `samples` elements; 0 for all.
    #[must_use]
    pub fn estimated_bytes(&self, key: &[u8], samples: usize) -> usize {
        let value = match &self.value {
            Value::String(bytes) => allocated(bytes.len()),
            Value::List(list) => {
                let own = list.0.capacity() * size_of::<Word>();
                own + sampled(list.0.len(), samples, list.0.iter().map(|word| word.len()))
            }
            Value::Hash(hash) => {
                of_table(hash.table(), samples, |key, value| allocated(key.len()) + value.len())
            }
            Value::Set(set) => of_table(set.table(), samples, |key, ()| key.len()),
            Value::SortedSet(set) => {
                let members = set.upwards(0).map(|(member, _)| member.len() + 16);
                set.own_bytes() + sampled(set.len(), samples, members)
            }
            Value::Stream(stream) => stream.estimated_bytes(samples),
        };
        size_of::<Entry>() + size_of::<Key>() + 8 + of_key(key) + value
    }
}

impl Entry {
    /// The same in constant time: by a few elements, and by what a table takes on average.
    pub(crate) fn quickly_estimated_bytes(&self, key: &[u8]) -> usize {
        /// Elements that are looked at.
        const SAMPLES: usize = 5;
        /// What a table or an ordered sequence adds to an element.
        const PLACE_BYTES: usize = 40;
        let value = match &self.value {
            Value::Hash(hash) => {
                let sizes = hash.iter().map(|(field, value)| allocated(field.len()) + value.len());
                hash.len() * PLACE_BYTES + sampled(hash.len(), SAMPLES, sizes)
            }
            Value::Set(set) => {
                set.len() * PLACE_BYTES + sampled(set.len(), SAMPLES, set.iter().map(|m| m.len()))
            }
            Value::SortedSet(set) => {
                let sizes = set.upwards(0).map(|(member, _)| member.len() + 16);
                set.len() * 2 * PLACE_BYTES + sampled(set.len(), SAMPLES, sizes)
            }
            Value::String(_) | Value::List(_) | Value::Stream(_) => {
                return self.estimated_bytes(key, SAMPLES);
            }
        };
        size_of::<Entry>() + size_of::<Key>() + 8 + of_key(key) + value
    }
}

fn of_table<K, V>(table: &Table<K, V>, samples: usize, size: impl Fn(&K, &V) -> usize) -> usize {
    let sizes = table.iter().map(|(key, value)| size(key, value));
    table.own_bytes() + sampled(table.len(), samples, sizes)
}

/// The sum of the sizes of `count` allocations, by the first `samples` of them.
fn sampled(count: usize, samples: usize, sizes: impl Iterator<Item = usize>) -> usize {
    let taken = if samples == 0 { count } else { samples.min(count) };
    let sum: usize = sizes.take(taken).map(allocated).sum();
    match taken {
        0 => 0,
        taken => (sum as u128 * count as u128 / taken as u128) as usize,
    }
}

/// Bytes of a key beside its place.
fn of_key(key: &[u8]) -> usize {
    if key.len() <= SHORT_BYTES_MAX { 0 } else { allocated(key.len()) }
}

fn allocated(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        bytes => bytes.next_multiple_of(8) + ALLOCATION_BYTES,
    }
}
