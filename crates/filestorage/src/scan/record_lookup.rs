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
