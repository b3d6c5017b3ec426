//! Looks up single records of a file that may be damaged.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use zodium_disk::DiskFile;
use zodium_pickle::is_whole_record;
use zodium_types::Oid;

use super::entries::{DataEntry, TransactionEntry};
use super::window::{LOOK_BYTES, Window};
use crate::format::{
    DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES, TRANSACTION_HEADER_BYTES, TransactionHeader,
};

/// Finds records by their positions.
pub(crate) struct RecordLookup {
    window: Window,
}

impl RecordLookup {
    pub(crate) fn new(path: &Path, file: &Arc<dyn DiskFile>, end: u64) -> RecordLookup {
        RecordLookup { window: Window::new(path, file, end, LOOK_BYTES) }
    }

    /// The record of an object at a position. Its transaction must stand where it says, be of the
    /// tid it says, and have room for it.
    pub(crate) fn record(&mut self, position: u64, oid: Oid) -> Option<DataEntry> {
        let record = self.lone_record(position, oid)?;
        let at = record.header.transaction;
        let bytes = self.window.chunk::<TRANSACTION_HEADER_BYTES>(at)?;
        let entry = TransactionEntry { position: at, header: TransactionHeader::parse(&bytes) };
        let start = at.checked_add(entry.header.records_offset())?;
        let end = at.checked_add(entry.header.length)?;
        let is_within = start <= position && position + record.header.record_bytes() <= end;
        (is_within && entry.tid() == record.header.tid).then_some(record)
    }

    /// As [`RecordLookup::record`], whatever has become of its transaction.
    pub(crate) fn lone_record(&mut self, position: u64, oid: Oid) -> Option<DataEntry> {
        let header = DataHeader::parse(&self.window.chunk::<DATA_HEADER_BYTES>(position)?);
        let end = position.checked_add(header.record_bytes())?;
        let is_record = header.oid == oid
            && header.tid.0 > 0
            && header.version_length == 0
            && (MAGIC_BYTES..position).contains(&header.transaction)
            && header.previous < position
            && end <= self.window.end()
            && !self.window.is_unreadable(position..position + DATA_HEADER_BYTES as u64);
        is_record.then_some(DataEntry { position, header })
    }

    /// Whether a record ends where another of its transaction begins, or its transaction ends, or
    /// its data end of themselves: then they are most likely all there.
    ///
    /// Of a damaged record after it, its transaction's position or its tid is enough.
    pub(crate) fn is_bounded(&mut self, record: &DataEntry) -> bool {
        let end = record.position + record.header.record_bytes();
        let start = record.header.transaction;
        let is_last =
            self.window.number(end).is_some_and(|copy| Some(copy) == end.checked_sub(start));
        let next =
            self.window.chunk::<DATA_HEADER_BYTES>(end).map(|bytes| DataHeader::parse(&bytes));
        let continues =
            |next: DataHeader| next.transaction == start || next.tid == record.header.tid;
        let is_readable = |window: &mut Window| {
            window.probe(record.position..end);
            !window.is_unreadable(record.position..end)
        };
        (is_last || next.is_some_and(continues) || self.ends_of_itself(record))
            && is_readable(&mut self.window)
    }

    /// Whether the data of a record are two whole pickles and no more, or a pointer to other data
    /// of the object.
    fn ends_of_itself(&mut self, record: &DataEntry) -> bool {
        match self.back_pointer(record) {
            // A block of zeros says as much.
            Some(0) => false,
            Some(back) => back < record.position && self.source(back, record.header.oid).is_some(),
            None => self.data(record).is_some_and(|data| is_whole_record(&data)),
        }
    }

    /// The back pointer of a record without data.
    pub(crate) fn back_pointer(&mut self, record: &DataEntry) -> Option<u64> {
        let position = record.position + DATA_HEADER_BYTES as u64;
        (record.header.data_length == 0).then(|| self.window.number(position)).flatten()
    }

    /// The record with the data of an object that a back pointer leads to, over others;
    /// `Some(None)` when it leads to a deletion, `None` when it leads to no record of the object.
    pub(crate) fn source(&mut self, position: u64, oid: Oid) -> Option<Option<DataEntry>> {
        let mut record = self.lone_record(position, oid)?;
        // Ends: each step leads to an earlier position.
        while record.header.data_length == 0 {
            let back = self.back_pointer(&record)?;
            if back == 0 {
                return Some(None);
            }
            if back >= record.position {
                return None;
            }
            record = self.lone_record(back, oid)?;
        }
        Some(Some(record))
    }

    /// The data of a record that has some; `None` when they cannot be read.
    pub(crate) fn data(&mut self, record: &DataEntry) -> Option<Bytes> {
        let start = record.position + DATA_HEADER_BYTES as u64;
        let length = usize::try_from(record.header.data_length).ok()?;
        let data = Bytes::copy_from_slice(self.window.bytes(start, length)?);
        let end = start + record.header.data_length;
        (!self.window.is_unreadable(start..end)).then_some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::POINTER_BYTES;
    use crate::format::{Crafted, Holds, Watched};

    const HEADER: u64 = TRANSACTION_HEADER_BYTES as u64;
    const RECORD: u64 = DATA_HEADER_BYTES as u64;
    /// Two pickles.
    const WHOLE: &[u8] = b"\x80\x03cm\nC\n.\x80\x03}.";

    fn lookup(data: &Crafted) -> RecordLookup {
        RecordLookup::new(Crafted::path(), &data.file(), data.end())
    }

    /// Three transactions; the positions of the two records of the second, and of its end.
    fn three() -> (Crafted, u64, u64, u64) {
        let mut data = Crafted::new();
        data.add(1, &[(9, b"before")]);
        let start = data.add(2, &[(1, b"one"), (2, b"second")]);
        let end = data.end();
        data.add(3, &[(9, b"behind")]);
        (data, start + HEADER, start + HEADER + RECORD + 3, end)
    }

    #[test]
    fn a_record_is_found_at_its_position_alone() {
        let (data, first, second, _) = three();
        for position in 0..data.end() + 50 {
            for oid in [1, 2] {
                let expected = position == if oid == 1 { first } else { second };
                let found = lookup(&data).record(position, Oid(oid));
                assert_eq!(found.is_some(), expected, "{oid} at {position}");
                assert!(found.is_none_or(|found| found.position == position));
                assert_eq!(lookup(&data).lone_record(position, Oid(oid)).is_some(), expected);
            }
        }
    }

    #[test]
    fn each_field_of_a_lone_record_must_be_possible() {
        let (data, first, _, _) = three();
        let room = data.end() - first - RECORD;
        for (offset, number, found) in [
            (0, 1, true),
            (0, 2, false),
            (8, 1, true),
            (8, 0, false),
            (16, first - 1, true),
            (16, first, false),
            (16, first + 1, false),
            (24, MAGIC_BYTES, true),
            (24, MAGIC_BYTES - 1, false),
            (24, first - 1, true),
            (24, first, false),
            (34, room, true),
            (34, room + 1, false),
            (34, u64::MAX, false),
        ] {
            let changed = data.with_number(first + offset, number);
            let record = lookup(&changed).lone_record(first, Oid(1));
            assert_eq!(record.is_some(), found, "{number} at {offset}");
        }
        let mut changed = data;
        changed.put(first + 33, &[1]);
        assert!(lookup(&changed).lone_record(first, Oid(1)).is_none(), "a version");
    }

    #[test]
    fn a_record_stands_within_the_transaction_that_it_names() {
        let (data, first, second, end) = three();
        let start = first - HEADER;
        let length = end - start - POINTER_BYTES;
        for (at, number, finds_first, finds_second) in [
            (start, 3, false, false),
            (start + 8, length + 1, true, true),
            (start + 8, length - 1, true, false),
            (start + 8, second - start, true, false),
            (start + 8, second - start - 1, false, false),
            (start + 8, u64::MAX, false, false),
            (first + 24, start + 1, false, true),
            (second + 24, start - 1, true, false),
        ] {
            let changed = data.with_number(at, number);
            let found = [(first, 1), (second, 2)]
                .map(|(position, oid)| lookup(&changed).record(position, Oid(oid)).is_some());
            assert_eq!(found, [finds_first, finds_second], "{number} at {at}");
        }
        // A description of one byte more than there is room before the first record, or of none.
        for (length, found) in [(0, true), (1, false)] {
            let mut changed = data.clone();
            changed.put(start + 20, &[length]);
            assert_eq!(lookup(&changed).record(first, Oid(1)).is_some(), found);
            assert!(lookup(&changed).record(second, Oid(2)).is_some());
        }
    }

    #[test]
    fn a_record_whose_header_cannot_be_read_is_not_found() {
        // A block of 4,096 bytes counts as zeros. Here those of the header are zeros anyway.
        for (position, bad, found) in [
            (4096 - RECORD, 4096, true),
            (4097 - RECORD, 4096, false),
            (4096, 4095, true),
            (4095, 4095, false),
        ] {
            let mut data = Crafted { bytes: vec![0; (position - HEADER) as usize] };
            data.add_holding(1, &[(1, Holds::Back(0))]);
            let file: Arc<dyn DiskFile> = Watched::of(&data.bytes, Some(bad));
            let mut lookup = RecordLookup::new(Crafted::path(), &file, data.end());
            let record = lookup.lone_record(position, Oid(1));
            assert_eq!(record.is_some(), found, "{position}, {bad} is bad");
        }
    }

    fn is_bounded(data: &Crafted, position: u64, oid: u64) -> bool {
        let mut lookup = lookup(data);
        let record = lookup.lone_record(position, Oid(oid)).unwrap();
        lookup.is_bounded(&record)
    }

    #[test]
    fn a_record_is_bounded_by_the_next_or_by_the_end_of_its_transaction() {
        let (data, first, second, end) = three();
        assert!(is_bounded(&data, first, 1) && is_bounded(&data, second, 2));
        // One of both is enough.
        let tid = data.with_number(second + 8, 77);
        assert!(is_bounded(&tid, first, 1));
        let transaction = data.with_number(second + 24, 77);
        assert!(is_bounded(&transaction, first, 1));
        assert!(!is_bounded(&transaction.with_number(second + 8, 77), first, 1));
        let length = end - POINTER_BYTES - (first - HEADER);
        for copy in [length - 1, length + 1, 0, u64::MAX] {
            let changed = data.with_number(end - POINTER_BYTES, copy);
            assert!(!is_bounded(&changed, second, 2), "{copy}");
        }
        // Its own length is wrong.
        assert!(!is_bounded(&data.with_number(first + 34, 2), first, 1));
        assert!(!is_bounded(&data.with_number(first + 34, 4), first, 1));
    }

    #[test]
    fn data_that_are_two_pickles_bound_their_record() {
        let mut data = Crafted::new();
        let start = data.add(2, &[(1, WHOLE)]);
        let (record, copy) = (start + HEADER, data.end() - POINTER_BYTES);
        data.put_number(copy, 0);
        assert!(is_bounded(&data, record, 1));
        for length in [WHOLE.len() as u64 - 1, WHOLE.len() as u64 + 1] {
            assert!(!is_bounded(&data.with_number(record + 34, length), record, 1), "{length}");
        }
    }

    #[test]
    fn a_pointer_to_data_of_the_object_bounds_its_record() {
        let mut data = Crafted::new();
        let source = data.add(1, &[(1, b"data"), (2, b"of another")]) + HEADER;
        let start = data.add_holding(2, &[(1, Holds::Back(source))]);
        let (record, copy) = (start + HEADER, data.end() - POINTER_BYTES);
        data.put_number(copy, 0);
        let of_another = source + RECORD + 4;
        let later = data.add(3, &[(1, b"later")]) + HEADER;
        for (back, expected) in [
            (source, true),
            (source + 1, false),
            (of_another, false),
            (0, false),
            (record, false),
            (later, false),
        ] {
            let changed = data.with_number(record + RECORD, back);
            assert_eq!(is_bounded(&changed, record, 1), expected, "{back}");
        }
    }

    #[test]
    fn a_record_of_which_a_part_cannot_be_read_is_not_bounded() {
        let mut data = Crafted::new();
        let start = data.add(1, &[(1, &[b'x'; 10_000]), (2, b"next")]);
        let record = start + HEADER;
        for (bad, expected) in [(9_000, false), (4_096, false), (13_000, true)] {
            let mut longer = data.clone();
            longer.append(&[b'x'; 5_000]);
            let file: Arc<dyn DiskFile> = Watched::of(&longer.bytes, Some(bad));
            let mut lookup = RecordLookup::new(Crafted::path(), &file, longer.end());
            let entry = lookup.lone_record(record, Oid(1)).unwrap();
            assert_eq!(lookup.is_bounded(&entry), expected, "{bad}");
        }
    }

    #[test]
    fn pointers_lead_over_others_to_data_or_to_a_deletion() {
        let mut data = Crafted::new();
        let first = data.add(1, &[(1, b"data")]) + HEADER;
        let second = data.add_holding(2, &[(1, Holds::Back(first))]) + HEADER;
        let third = data.add_holding(3, &[(1, Holds::Back(second))]) + HEADER;
        let deleted = data.add_holding(4, &[(1, Holds::Back(0))]) + HEADER;
        let again = data.add_holding(5, &[(1, Holds::Back(deleted))]) + HEADER;
        let itself = data.end() + HEADER;
        data.add_holding(6, &[(1, Holds::Back(itself))]);
        let mut lookup = lookup(&data);
        let mut source = |position| {
            let found = lookup.source(position, Oid(1))?;
            Some(found.map(|record| record.position))
        };
        for (position, expected) in [
            (first, Some(Some(first))),
            (second, Some(Some(first))),
            (third, Some(Some(first))),
            (deleted, Some(None)),
            (again, Some(None)),
            (itself, None),
            (first + 1, None),
        ] {
            assert_eq!(source(position), expected, "{position}");
        }
        let record = lookup.lone_record(third, Oid(1)).unwrap();
        assert_eq!(lookup.back_pointer(&record), Some(second));
        let record = lookup.lone_record(first, Oid(1)).unwrap();
        assert_eq!(lookup.back_pointer(&record), None);
        assert_eq!(lookup.data(&record).unwrap(), "data");
    }

    #[test]
    fn data_are_given_if_all_of_them_can_be_read() {
        let mut data = Crafted::new();
        data.add(1, &[(1, &[b'x'; 10_000])]);
        data.append(&[b'x'; 5_000]);
        for (bad, expected) in [(5_000, false), (10_069, false), (12_288, true)] {
            let file: Arc<dyn DiskFile> = Watched::of(&data.bytes, Some(bad));
            let mut lookup = RecordLookup::new(Crafted::path(), &file, data.end());
            let record = lookup.lone_record(4 + HEADER, Oid(1)).unwrap();
            // What is unreadable is known once it was asked for.
            lookup.window.probe(0..data.end());
            assert_eq!(lookup.data(&record).is_some(), expected, "{bad}");
        }
    }
}
