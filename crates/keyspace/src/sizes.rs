//! How much memory values take, by estimate.

use crate::{Hash, Record, SortedSet, Text, ValueRef};

/// What the system's allocator adds to an allocation, to what it rounds that, and its least.
const ALLOCATION_BYTES: usize = 8;
const ALLOCATION_STEP: usize = 16;
const ALLOCATION_MIN: usize = 32;

/// Bytes of a place of a database: a record, four bytes of its hash, and its uses.
const PLACE_BYTES: usize = size_of::<Record>() + 8;

impl Record {
    /// Bytes of the record, by the sizes of `samples` elements; 0 for all. With samples it takes
    /// constant time.
    pub(crate) fn estimated_bytes(&self, samples: usize) -> usize {
        let value = match self.value() {
            ValueRef::String(Text::Packed(_)) => 0,
            ValueRef::String(Text::Shared(bytes)) => allocated(bytes.len()),
            ValueRef::List(list) => match list.packed_bytes() {
                Some(bytes) => allocated(bytes),
                None => {
                    let lengths = list.iter().map(<[u8]>::len);
                    list.own_bytes() + sampled(list.len(), samples, lengths)
                }
            },
            ValueRef::Hash(hash) => match hash.packed_bytes() {
                Some(bytes) => allocated(bytes),
                None => hash.own_bytes() + sampled(hash.len(), samples, pairs(hash)),
            },
            ValueRef::Set(set) => match set.packed_bytes() {
                Some(bytes) => allocated(bytes),
                None => set.own_bytes() + sampled(set.len(), samples, set.iter().map(<[u8]>::len)),
            },
            ValueRef::SortedSet(set) => match set.packed_bytes() {
                Some(bytes) => allocated(bytes),
                None => set.own_bytes() + sampled(set.len(), samples, members(set)),
            },
            ValueRef::Stream(stream) => stream.estimated_bytes(samples),
        };
        self.own_bytes() + value
    }

    /// Bytes of its place and its key.
    fn own_bytes(&self) -> usize {
        PLACE_BYTES + allocated(self.allocated_bytes()) + allocated(self.apart_key_bytes())
    }
}

/// The sizes of fields with their values.
fn pairs(hash: &Hash) -> impl Iterator<Item = usize> {
    hash.iter().map(|(field, value)| allocated(field.len()) + value.len())
}

/// The sizes of members with what counts their references.
fn members(set: &SortedSet) -> impl Iterator<Item = usize> {
    set.upwards(0).map(|(member, _)| member.len() + 16)
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
