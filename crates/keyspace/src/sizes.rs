//! How much memory values take, by estimate.

use crate::{Record, Table, Text, ValueRef, Word};

/// What the system's allocator adds to an allocation, to what it rounds that, and its least.
const ALLOCATION_BYTES: usize = 8;
const ALLOCATION_STEP: usize = 16;
const ALLOCATION_MIN: usize = 32;

/// Bytes of a place of a database: a record, four bytes of its hash, and its uses.
const PLACE_BYTES: usize = size_of::<Record>() + 8;

impl Record {
    /// Bytes of the record, by the sizes of `samples` elements; 0 for all.
    pub(crate) fn estimated_bytes(&self, samples: usize) -> usize {
        let value = match self.value() {
            ValueRef::String(Text::Packed(_)) => 0,
            ValueRef::String(Text::Shared(bytes)) => allocated(bytes.len()),
            ValueRef::List(list) => {
                let own = list.0.capacity() * size_of::<Word>();
                own + sampled(list.0.len(), samples, list.0.iter().map(|word| word.len()))
            }
            ValueRef::Hash(hash) => {
                of_table(hash.table(), samples, |key, value| allocated(key.len()) + value.len())
            }
            ValueRef::Set(set) => of_table(set.table(), samples, |key, ()| key.len()),
            ValueRef::SortedSet(set) => {
                let members = set.upwards(0).map(|(member, _)| member.len() + 16);
                set.own_bytes() + sampled(set.len(), samples, members)
            }
            ValueRef::Stream(stream) => stream.estimated_bytes(samples),
        };
        self.own_bytes() + value
    }

    /// The same in constant time: by a few elements, and by what a table takes on average.
    pub(crate) fn quickly_estimated_bytes(&self) -> usize {
        /// Elements that are looked at.
        const SAMPLES: usize = 5;
        /// What a table or an ordered sequence adds to an element.
        const ELEMENT_BYTES: usize = 40;
        let value = match self.value() {
            ValueRef::Hash(hash) => {
                let sizes = hash.iter().map(|(field, value)| allocated(field.len()) + value.len());
                hash.len() * ELEMENT_BYTES + sampled(hash.len(), SAMPLES, sizes)
            }
            ValueRef::Set(set) => {
                set.len() * ELEMENT_BYTES + sampled(set.len(), SAMPLES, set.iter().map(|m| m.len()))
            }
            ValueRef::SortedSet(set) => {
                let sizes = set.upwards(0).map(|(member, _)| member.len() + 16);
                set.len() * 2 * ELEMENT_BYTES + sampled(set.len(), SAMPLES, sizes)
            }
            ValueRef::String(_) | ValueRef::List(_) | ValueRef::Stream(_) => {
                return self.estimated_bytes(SAMPLES);
            }
        };
        self.own_bytes() + value
    }

    /// Bytes of its place and its key.
    fn own_bytes(&self) -> usize {
        PLACE_BYTES + allocated(self.allocated_bytes()) + allocated(self.apart_key_bytes())
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

fn allocated(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        bytes => (bytes + ALLOCATION_BYTES).next_multiple_of(ALLOCATION_STEP).max(ALLOCATION_MIN),
    }
}
