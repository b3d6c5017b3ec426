//! One entry of the side file: the position of a part of the log, and its CRC-32C.
//!
//! ```text
//! entry := position:8 sum:4 seal:4          (big-endian)
//! ```
//!
//! The seal is the CRC-32C of the file's salt, position and sum, XOR a mark for the kind of entry.
//! So torn entries, those of another side file, and zeros are recognised.

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 16;

use crate::scan::Part;

/// The sum of one part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Where the transaction or record begins.
    pub(crate) position: u64,
    pub(crate) sum: u32,
    pub(crate) part: Part,
    /// Written before the bytes that it covers, which may never have reached the disk.
    pub(crate) is_promise: bool,
}

impl Entry {
    pub(crate) fn frame(position: u64, sum: u32) -> Entry {
        Entry { position, sum, part: Part::Frame, is_promise: false }
    }

    pub(crate) fn record(position: u64, sum: u32) -> Entry {
        Entry { position, sum, part: Part::Record, is_promise: false }
    }

    pub(crate) fn to_bytes(self, salt: u64) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.position.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.sum.to_be_bytes());
        let seal = seal(self.position, self.sum, salt) ^ mark(self.part, self.is_promise);
        bytes[12..].copy_from_slice(&seal.to_be_bytes());
        bytes
    }

    /// The entry in the first bytes of `bytes`; `None` if they are not an entry with this salt.
    pub(crate) fn parse(bytes: &[u8], salt: u64) -> Option<Entry> {
        let (bytes, _) = bytes.split_first_chunk::<ENTRY_BYTES>()?;
        let [position @ .., s0, s1, s2, s3, m0, m1, m2, m3] = *bytes;
        let position = u64::from_be_bytes(position);
        let sum = u32::from_be_bytes([s0, s1, s2, s3]);
        let found = seal(position, sum, salt) ^ u32::from_be_bytes([m0, m1, m2, m3]);
        let kinds = [Part::Frame, Part::Record].map(|part| [(part, false), (part, true)]);
        let mut kinds = kinds.into_iter().flatten();
        let (part, is_promise) = kinds.find(|(part, promise)| mark(*part, *promise) == found)?;
        Some(Entry { position, sum, part, is_promise })
    }
}

/// The position in the bytes of an entry, whether or not its seal is right.
pub(crate) fn position_of(bytes: &[u8; ENTRY_BYTES]) -> u64 {
    bytes.first_chunk().map_or(0, |position| u64::from_be_bytes(*position))
}

fn seal(position: u64, sum: u32, salt: u64) -> u32 {
    let mut sealed = [0; 20];
    sealed[..8].copy_from_slice(&salt.to_be_bytes());
    sealed[8..16].copy_from_slice(&position.to_be_bytes());
    sealed[16..].copy_from_slice(&sum.to_be_bytes());
    crc32c::crc32c(&sealed)
}

/// Any two marks differ in half of their bits, so a few flipped bits turn none into another.
fn mark(part: Part, is_promise: bool) -> u32 {
    match (part, is_promise) {
        (Part::Frame, false) => 0x0000_ffff,
        (Part::Record, false) => 0x00ff_00ff,
        (Part::Frame, true) => 0x0f0f_0f0f,
        (Part::Record, true) => 0x3333_3333,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_no_flipped_bit_or_other_salt_makes_one() {
        for part in [Part::Frame, Part::Record] {
            for is_promise in [false, true] {
                let entry = Entry { position: 4711, sum: 0xdead_beef, part, is_promise };
                let bytes = entry.to_bytes(7);
                assert_eq!(Entry::parse(&bytes, 7), Some(entry));
                assert_eq!(Entry::parse(&bytes, 8), None);
                for bit in 0..ENTRY_BYTES * 8 {
                    let mut flipped = bytes;
                    flipped[bit / 8] ^= 1 << (bit % 8);
                    assert_eq!(Entry::parse(&flipped, 7), None, "bit {bit}");
                }
            }
        }
        assert_eq!(Entry::parse(&[0; ENTRY_BYTES], 0), None);
        assert_eq!(Entry::parse(&[0; 15], 0), None);
    }
}
