//! The data of simulated objects: oid, attempt, values, filler.
//!
//! Data identify themselves when they are read, in addition to the comparison with what was stored.

use bytes::{BufMut, Bytes, BytesMut};
use zodium_types::Oid;

/// The number of a commit attempt; 0 is the initial content of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Attempt(pub(crate) u64);

impl Attempt {
    pub(crate) fn place(self) -> usize {
        self.0 as usize
    }
}

/// Encodes a record.
pub(crate) fn record(oid: Oid, attempt: Attempt, values: &[u64], filling: usize) -> Bytes {
    let mut data = BytesMut::with_capacity(18 + 8 * values.len() + filling);
    data.put_u64(oid.0);
    data.put_u64(attempt.0);
    data.put_u16(values.len() as u16);
    values.iter().for_each(|value| data.put_u64(*value));
    // A sector lost in a power cut reads as zeros.
    let byte = if attempt.0.is_multiple_of(3) { 0 } else { attempt.0 as u8 };
    data.put_bytes(byte, filling);
    data.freeze()
}

/// The values in a record of `oid`; `None` if the data belong to another object.
pub(crate) fn values(oid: Oid, data: &[u8]) -> Option<Vec<u64>> {
    let (head, rest) = data.split_first_chunk::<8>()?;
    let (_, rest) = rest.split_first_chunk::<8>()?;
    let (count, rest) = rest.split_first_chunk::<2>()?;
    let count = usize::from(u16::from_be_bytes(*count));
    let values = rest.get(..8 * count)?.chunks_exact(8);
    (u64::from_be_bytes(*head) == oid.0)
        .then(|| values.filter_map(|v| v.try_into().ok().map(u64::from_be_bytes)).collect())
}
