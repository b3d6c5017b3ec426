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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Arc;

    use zodium_disk::{Disk, MemoryDisk, OpenMode};

    use super::*;
    use crate::testing::{PATH, bytes_of, commit, open, overwrite, stores};

    /// A file of two transactions, and the entries of the first one: its frame, and its record.
    struct Log {
        disk: MemoryDisk,
        bytes: Vec<u8>,
        frame: Entry,
        record: Entry,
    }

    const DATA: &str = "some data";

    impl Log {
        fn new(description: &str) -> Log {
            let disk = MemoryDisk::new();
            let storage = open(disk.clone());
            commit(&storage, 1, stores(description, &[DATA]));
            commit(&storage, 2, stores("", &["others"]));
            let log = storage.reader().log();
            let side = log.checksums.as_ref().unwrap().side();
            let [frame, record] = [0, 1].map(|number| side.entry(number).unwrap());
            assert_eq!((frame.part, record.part), (Part::Frame, Part::Record));
            let bytes = bytes_of(&disk);
            Log { disk, bytes, frame, record }
        }

        fn start(&self) -> usize {
            self.frame.position as usize
        }

        /// Where the record begins, and where it ends.
        fn record(&self) -> (usize, usize) {
            let start = self.record.position as usize;
            (start, start + DATA_HEADER_BYTES + DATA.len())
        }

        /// The file with these bytes changed.
        fn with(&self, flips: &[(usize, u8)]) -> Arc<dyn DiskFile> {
            let mut bytes = self.bytes.clone();
            flips.iter().for_each(|(at, bits)| bytes[*at] ^= bits);
            overwrite(&self.disk, &bytes);
            self.disk.open(PATH.as_ref(), OpenMode::Read).unwrap()
        }

        fn end(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn header(&self, flips: &[(usize, u8)]) -> Option<TransactionHeader> {
            transaction_header(self.with(flips).as_ref(), &self.frame, self.end())
        }

        fn is_one_bit_off(&self, flips: &[(usize, u8)]) -> bool {
            is_one_bit_off(self.with(flips).as_ref(), &self.frame, self.end())
        }
    }

    #[test]
    fn the_header_of_a_transaction_with_one_wrong_bit_comes_back() {
        for description in ["", "d", "a description"] {
            let log = Log::new(description);
            let sound = log.header(&[]);
            assert_eq!(sound.unwrap().tid.0, 1);
            for bit in 0..TRANSACTION_HEADER_BYTES * 8 {
                let flip = (log.start() + bit / 8, 1 << (bit % 8));
                assert_eq!(log.header(&[flip]), sound, "bit {bit}");
                assert!(log.is_one_bit_off(&[flip]), "bit {bit}");
                let more = [flip, (log.start() + (bit / 8 + 3) % 23, 2)];
                assert_eq!(log.header(&more), None, "bit {bit}");
            }
        }
    }

    /// The header has it too.
    #[test]
    fn a_wrong_copy_of_the_length_is_left_out_of_account() {
        for description in ["", "a description"] {
            let log = Log::new(description);
            let (sound, (_, end)) = (log.header(&[]), log.record());
            for flips in [&[(end, 1)][..], &[(end + 7, 0xff)], &[(end, 0xff), (end + 7, 0xff)]] {
                assert_eq!(log.header(flips), sound, "{flips:?}");
                assert!(log.is_one_bit_off(flips), "{flips:?}");
            }
            let data = log.with(&[(end, 0xff)]);
            // The copy must be within the file, as far as that goes.
            for (file_end, is_known) in [(end + 8, true), (end + 7, false), (end, false)] {
                let found = transaction_header(data.as_ref(), &log.frame, file_end as u64);
                assert_eq!(found.is_some(), is_known, "{file_end}");
            }
        }
    }

    #[test]
    fn what_the_records_hold_does_not_matter_for_the_header() {
        let log = Log::new("a description");
        let (start, end) = log.record();
        for at in start..end {
            assert_eq!(log.header(&[(at, 0xff)]), log.header(&[]));
        }
    }

    #[test]
    fn one_wrong_bit_of_the_metadata_is_seen_and_two_are_not() {
        for length in [1, 2, 300] {
            let log = Log::new(&"d".repeat(length));
            let first = log.start() + TRANSACTION_HEADER_BYTES;
            for at in [first, first + length / 2, first + length - 1] {
                for bit in 0..8 {
                    assert!(log.is_one_bit_off(&[(at, 1 << bit)]), "{bit} of {at}");
                    assert_eq!(log.header(&[(at, 1 << bit)]), None);
                    assert!(!log.is_one_bit_off(&[(at, 1 << bit | 1 << ((bit + 3) % 8))]));
                }
            }
        }
    }

    #[test]
    fn metadata_are_looked_into_up_to_4096_bytes() {
        for (length, is_seen) in [(4095, true), (4096, true), (4097, false)] {
            let log = Log::new(&"d".repeat(length));
            let last = log.start() + TRANSACTION_HEADER_BYTES + length - 1;
            assert_eq!(log.is_one_bit_off(&[(last, 1)]), is_seen, "{length} bytes");
            assert!(log.is_one_bit_off(&[(log.start(), 1)]), "{length} bytes");
        }
    }

    #[test]
    fn a_file_that_ends_within_a_header_tells_nothing() {
        let log = Log::new("");
        let data = log.with(&[]);
        data.set_length(log.frame.position + 22).unwrap();
        assert_eq!(transaction_header(data.as_ref(), &log.frame, log.end()), None);
        assert!(!is_one_bit_off(data.as_ref(), &log.frame, log.end()));
    }

    #[test]
    fn the_header_of_a_record_with_one_wrong_bit_comes_back() {
        let log = Log::new("");
        let (start, end) = log.record();
        let header = |flips: &[(usize, u8)], end: usize| {
            data_header(log.with(flips).as_ref(), &log.record, end as u64)
        };
        let sound = DataHeader::parse(log.bytes[start..].first_chunk().unwrap());
        for bit in 0..DATA_HEADER_BYTES * 8 {
            let flip = (start + bit / 8, 1 << (bit % 8));
            assert_eq!(header(&[flip], end), Some(sound), "bit {bit}");
            assert_eq!(header(&[flip], end - 1), None, "bit {bit}");
            assert_eq!(header(&[flip, (end - 1, 1)], end), None, "bit {bit}, and the data");
        }
        // One that is sound is not repaired.
        assert_eq!(header(&[], end), None);
        assert_eq!((header(&[], start - 1), header(&[], start + 41)), (None, None));
    }
}
