//! Restores a header with one wrong bit, by its sum.
//!
//! A CRC-32C distinguishes all single flipped bits, so such a header is recognised. This separates
//! damage from another log. It also lets a damaged log open whose checksums are trusted. Loads of
//! the damaged object are errors then, not an older revision, and the transactions behind a damaged
//! one are found. The damaged bytes are not served, and an index with them is not saved.

use zodium_disk::DiskFile;

use super::entry::Entry;
use super::sums::{frame_sum, sum_of};
use crate::format::{
    DATA_HEADER_BYTES, DataHeader, POINTER_BYTES, TRANSACTION_HEADER_BYTES, TransactionHeader,
};
use crate::scan::Part;

/// Longest metadata whose bits are tried.
const METADATA_BYTES_MAX: u64 = 4096;

/// The original header of a transaction whose frame had this sum.
pub(super) fn transaction_header(
    data: &dyn DiskFile,
    entry: &Entry,
    end: u64,
) -> Option<TransactionHeader> {
    debug_assert_eq!(entry.part, Part::Frame, "the sum of a transaction");
    let mut bytes = [0; TRANSACTION_HEADER_BYTES];
    data.read_exact_at(&mut bytes, entry.position).ok()?;
    let fits = |header: &TransactionHeader| {
        frame_sum(data, entry.position, end, header) == Some(entry.sum)
    };
    let as_is = TransactionHeader::parse(&bytes);
    if fits(&as_is) || trailer_fits(data, entry, end, &as_is) {
        return Some(as_is);
    }
    each_flip(&mut bytes, |bytes| Some(TransactionHeader::parse(bytes)).filter(&fits))
}

/// Whether the frame of a transaction matches its sum, except for one bit.
pub(super) fn is_one_bit_off(data: &dyn DiskFile, entry: &Entry, end: u64) -> bool {
    if transaction_header(data, entry, end).is_some() {
        return true;
    }
    let mut bytes = [0; TRANSACTION_HEADER_BYTES];
    if data.read_exact_at(&mut bytes, entry.position).is_err() {
        return false;
    }
    let header = TransactionHeader::parse(&bytes);
    let mut metadata = vec![0; header.metadata_bytes().min(METADATA_BYTES_MAX) as usize];
    let start = entry.position + TRANSACTION_HEADER_BYTES as u64;
    let is_long = header.metadata_bytes() > METADATA_BYTES_MAX;
    if is_long || data.read_exact_at(&mut metadata, start).is_err() {
        return false;
    }
    let sum = crc32c::crc32c(&bytes);
    (0..metadata.len() * 8).any(|bit| {
        metadata[bit / 8] ^= 1 << (bit % 8);
        let sum = crc32c::crc32c_append(sum, &metadata);
        metadata[bit / 8] ^= 1 << (bit % 8);
        crc32c::crc32c_append(sum, &header.length.to_be_bytes()) == entry.sum
    })
}

/// Whether the frame matches except for the copy of the length.
fn trailer_fits(data: &dyn DiskFile, entry: &Entry, end: u64, header: &TransactionHeader) -> bool {
    let mut bytes = Vec::new();
    header.write(&mut bytes);
    let metadata = entry.position + TRANSACTION_HEADER_BYTES as u64;
    let next = entry.position.checked_add(header.length).and_then(|n| n.checked_add(POINTER_BYTES));
    if next.is_none_or(|next| next > end) {
        return false;
    }
    let stop = metadata + header.metadata_bytes();
    let sum = sum_of(data, crc32c::crc32c(&bytes), metadata, stop);
    sum.map(|sum| crc32c::crc32c_append(sum, &header.length.to_be_bytes())) == Some(entry.sum)
}

/// The original header of a record that had this sum and ended at `end`.
pub(super) fn data_header(data: &dyn DiskFile, entry: &Entry, end: u64) -> Option<DataHeader> {
    debug_assert_eq!(entry.part, Part::Record, "the sum of a record");
    let mut bytes = vec![0; usize::try_from(end.checked_sub(entry.position)?).ok()?];
    data.read_exact_at(&mut bytes, entry.position).ok()?;
    let (header, body) = bytes.split_first_chunk_mut::<DATA_HEADER_BYTES>()?;
    each_flip(header, |header| {
        let sum = crc32c::crc32c_append(crc32c::crc32c(header), body);
        (sum == entry.sum).then(|| DataHeader::parse(header))
    })
}

/// Calls `attempt` with each bit flipped.
fn each_flip<const N: usize, T>(
    bytes: &mut [u8; N],
    attempt: impl Fn(&[u8; N]) -> Option<T>,
) -> Option<T> {
    (0..N * 8).find_map(|bit| {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = attempt(bytes);
        bytes[bit / 8] ^= 1 << (bit % 8);
        found
    })
}
