//! One entry of the blob sums: oid, tid, length and CRC-32C of a blob.
//!
//! ```text
//! entry := oid:8 tid:8 length:8 crc32c:4 seal:4          (big-endian)
//! ```
//!
//! The highest bit of the length means that the CRC-32C is unknown. The seal is the CRC-32C of
//! the bytes before it, so that torn entries, flipped bits and zeros are recognised.

use zodium_types::{Oid, Tid};

use crate::fingerprint::Fingerprint;

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 32;

const SEALED_BYTES: usize = ENTRY_BYTES - size_of::<u32>();
/// Set in the length when the CRC-32C is unknown.
const LENGTH_ONLY: u64 = 1 << 63;

/// The fingerprint of one blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) oid: Oid,
    pub(super) tid: Tid,
    pub(super) fingerprint: Fingerprint,
}

impl Entry {
    /// The order of entries.
    pub(super) fn key(&self) -> (Tid, Oid) {
        (self.tid, self.oid)
    }

    pub(super) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let Fingerprint { length, crc32c } = self.fingerprint;
        let flag = if crc32c.is_none() { LENGTH_ONLY } else { 0 };
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.oid.to_bytes());
        bytes[8..16].copy_from_slice(&self.tid.to_bytes());
        bytes[16..24].copy_from_slice(&(length | flag).to_be_bytes());
        bytes[24..SEALED_BYTES].copy_from_slice(&crc32c.unwrap_or(0).to_be_bytes());
        let seal = crc32c::crc32c(&bytes[..SEALED_BYTES]);
        bytes[SEALED_BYTES..].copy_from_slice(&seal.to_be_bytes());
        bytes
    }

    /// The entry in these bytes; `None` when the seal does not match.
    pub(super) fn parse(bytes: &[u8; ENTRY_BYTES]) -> Option<Entry> {
        let (sealed, seal) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(sealed) != u32::from_be_bytes(*seal) {
            return None;
        }
        let number = |at: usize| Some(u64::from_be_bytes(*bytes[at..].first_chunk()?));
        let (oid, tid, length) = (Oid(number(0)?), Tid(number(8)?), number(16)?);
        let sum = u32::from_be_bytes(*bytes[24..].first_chunk()?);
        let crc32c = (length & LENGTH_ONLY == 0).then_some(sum);
        let fingerprint = Fingerprint { length: length & !LENGTH_ONLY, crc32c };
        Some(Entry { oid, tid, fingerprint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_no_flipped_bit_makes_one() {
        for crc32c in [Some(0), Some(0xdead_beef), None] {
            let fingerprint = Fingerprint { length: 4711, crc32c };
            let entry = Entry { oid: Oid(300), tid: Tid(0x03f5_9458_1777_7777), fingerprint };
            let bytes = entry.to_bytes();
            assert_eq!(Entry::parse(&bytes), Some(entry));
            for bit in 0..ENTRY_BYTES * 8 {
                let mut flipped = bytes;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Entry::parse(&flipped), None, "bit {bit}");
            }
        }
        assert_eq!(Entry::parse(&[0; ENTRY_BYTES]), None);
        assert_eq!(Entry::parse(&[0xff; ENTRY_BYTES]), None);
    }
}
