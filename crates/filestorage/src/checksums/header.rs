//! The first page of the side file.
//!
//! ```text
//! header := magic:16 version:4 salt:8 count:8 end:8 nonce:8 before:8 boot:8 inode:8 length:8
//!           modified:8 is_closed:1 sum:4                                       (big-endian)
//! ```
//!
//! The rest of the page is zero. The header lies within one sector, which disks write as a whole or
//! not at all. If it is torn nevertheless, it does not match its sum, and the side file is created
//! anew.

use super::entry::ENTRY_BYTES;
use crate::format::u64_at;

/// Where the entries begin.
pub(crate) const HEADER_BYTES: u64 = 4096;
/// Bytes read of a header, more than it has.
pub(crate) const READ_BYTES: usize = 128;
/// Bytes of the header before its sum.
const SUMMED_BYTES: usize = 93;
/// Offset of the byte that is 1 after an orderly close.
const CLOSED_OFFSET: usize = SUMMED_BYTES - 1;
const MAGIC: &[u8; 16] = b"Zodium checksums";
/// Version 1 did not identify the data file.
const VERSION: u32 = 3;
/// It has neither the start of the system nor the time of the last change, and is read too.
const VERSION_BEFORE: u32 = 2;
/// Bytes of its header before the sum.
const SUMMED_BYTES_BEFORE: usize = 77;

/// The content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Part of the seal of each entry; chosen at random when the side file was created.
    pub(crate) salt: u64,
    /// Entries that were on stable storage when the header was written.
    pub(crate) count: u64,
    /// They cover the log up to here.
    pub(crate) end: u64,
    pub(crate) session: Session,
    pub(crate) log: LogState,
}

/// The data file when the header was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogState {
    /// Its inode number. Its device number may change when the system restarts.
    pub(crate) inode: u64,
    /// Its length, all of it on stable storage.
    pub(crate) length: u64,
    /// When its bytes were last changed, in nanoseconds of Unix time; 0 before an orderly close,
    /// and if that is not known.
    pub(crate) modified: i64,
}

/// The session that has the log open for writing, or had it open last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// Chosen at random at each opening.
    pub(crate) nonce: u64,
    /// The session that the lock file named until it named this one; 0 for none.
    pub(crate) before: u64,
    /// The number of the start of the system in which it runs; 0 if that is not known.
    pub(crate) boot: u64,
    /// Whether it was closed in an orderly way, so that nothing of it was lost.
    pub(crate) is_closed: bool,
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; SUMMED_BYTES + 4] {
        let mut bytes = [0; SUMMED_BYTES + 4];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..20].copy_from_slice(&VERSION.to_be_bytes());
        let Header { salt, count, end, session, log } = self;
        let Session { nonce, before, boot, is_closed } = session;
        let LogState { inode, length, modified } = log;
        let modified = modified.cast_unsigned();
        let numbers = [salt, count, end, nonce, before, boot, inode, length, modified];
        for (place, number) in bytes[20..CLOSED_OFFSET].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes[CLOSED_OFFSET] = u8::from(is_closed);
        let sum = crc32c::crc32c(&bytes[..SUMMED_BYTES]);
        bytes[SUMMED_BYTES..].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Returns `None` for a damaged header, and for other bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Header> {
        Header::parse_current(bytes).or_else(|| Header::parse_before(bytes))
    }

    fn parse_current(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; SUMMED_BYTES + 4] = bytes.first_chunk()?;
        let is_closed = bytes[CLOSED_OFFSET] != 0;
        let [salt, count, end, nonce, before, boot, inode, length, modified] =
            std::array::from_fn(|place| u64_at(bytes, 20 + 8 * place));
        let session = Session { nonce, before, boot, is_closed };
        let log = LogState { inode, length, modified: modified.cast_signed() };
        let header = Header { salt, count, end, session, log };
        // Compared as a whole: magic, version, sum, and no other values.
        (header.to_bytes() == *bytes).then_some(header)
    }

    /// Parses a header of the version before.
    fn parse_before(bytes: &[u8]) -> Option<Header> {
        let (summed, rest) = bytes.split_at_checked(SUMMED_BYTES_BEFORE)?;
        let (numbers, closed) = summed.split_at(SUMMED_BYTES_BEFORE - 1);
        let is_sound = version(summed) == Some(VERSION_BEFORE)
            && rest.starts_with(&crc32c::crc32c(summed).to_be_bytes());
        let is_closed = match closed {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let [salt, count, end, nonce, before, inode, length] =
            std::array::from_fn(|place| u64_at(numbers, 20 + 8 * place));
        let session = Session { nonce, before, boot: 0, is_closed };
        let log = LogState { inode, length, modified: 0 };
        is_sound.then_some(Header { salt, count, end, session, log })
    }

    /// The offset of an entry.
    pub(crate) fn entry_offset(number: u64) -> u64 {
        HEADER_BYTES + number * ENTRY_BYTES as u64
    }
}

/// The version of the header, if it is one of a later program.
pub(crate) fn later_version(bytes: &[u8]) -> Option<u32> {
    version(bytes).filter(|version| *version > VERSION)
}

fn version(bytes: &[u8]) -> Option<u32> {
    let version = bytes.strip_prefix(MAGIC)?.first_chunk()?;
    Some(u32::from_be_bytes(*version))
}

/// A random number.
pub(crate) fn random() -> u64 {
    use std::hash::BuildHasher;
    // The system's randomness, as every map of the standard library is seeded with.
    std::hash::RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_no_flipped_bit_makes_one() {
        let session = Session { nonce: random(), before: random(), boot: 7, is_closed: true };
        let log = LogState { inode: random(), length: 900, modified: -8 };
        let header = Header { salt: random(), count: 3, end: 700, session, log };
        let bytes = header.to_bytes();
        assert_eq!(Header::parse(&bytes), Some(header));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::parse(&flipped), None, "bit {bit}");
        }
        assert_eq!(Header::parse(&bytes[..40]), None);
    }

    /// As the program before wrote it, with all but `boot` and `modified`.
    fn bytes_before(header: Header) -> Vec<u8> {
        let bytes = header.to_bytes();
        let mut before = [&MAGIC[..], &[0, 0, 0, 2], &bytes[20..60], &bytes[68..84]].concat();
        before.push(bytes[CLOSED_OFFSET]);
        before.extend(crc32c::crc32c(&before).to_be_bytes());
        before
    }

    #[test]
    fn headers_of_the_version_before_are_read() {
        let session = Session { nonce: random(), before: random(), boot: 0, is_closed: true };
        let log = LogState { inode: random(), length: 900, modified: 0 };
        let header = Header { salt: random(), count: 3, end: 700, session, log };
        let bytes = bytes_before(header);
        assert_eq!(bytes.len(), 81);
        assert_eq!(Header::parse(&bytes), Some(header));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::parse(&flipped), None, "bit {bit}");
        }
        assert_eq!(Header::parse(&bytes[..80]), None);
    }

    #[test]
    fn a_version_is_a_later_one_from_the_next_number_on() {
        for (version, later) in [(2, None), (VERSION, None), (VERSION + 1, Some(VERSION + 1))] {
            let bytes = [&MAGIC[..], &version.to_be_bytes()].concat();
            assert_eq!(later_version(&bytes), later);
            assert_eq!(later_version(&bytes[..19]), None);
            assert_eq!(later_version(&bytes[1..]), None);
        }
    }

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random(), random());
    }
}
