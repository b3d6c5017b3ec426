//! Computes the sums of transactions while their bytes are written or read.

use super::entry::Entry;

/// The entries of consecutive transactions.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    entries: Vec<Entry>,
    /// Index of the frame whose transaction has not ended.
    open_frame: usize,
}

/// The sum of a record so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordSum {
    position: u64,
    sum: u32,
}

impl RecordSum {
    /// The sum of a record that begins with these bytes.
    pub(crate) fn new(position: u64, bytes: &[u8]) -> RecordSum {
        RecordSum { position, sum: crc32c::crc32c(bytes) }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.sum = crc32c::crc32c_append(self.sum, bytes);
    }
}

impl Batch {
    /// Begins a transaction with its header and metadata.
    pub(crate) fn begin(&mut self, position: u64, header: &[u8]) {
        self.open_frame = self.entries.len();
        self.entries.push(Entry::frame(position, crc32c::crc32c(header)));
    }

    /// Replaces the header of the transaction.
    pub(crate) fn change_header(&mut self, header: &[u8]) {
        if let Some(frame) = self.entries.get_mut(self.open_frame) {
            frame.sum = crc32c::crc32c(header);
        }
    }

    /// Adds a complete record.
    pub(crate) fn record(&mut self, record: RecordSum) {
        self.entries.push(Entry::record(record.position, record.sum));
    }

    /// Ends the transaction with the copy of its length.
    pub(crate) fn end(&mut self, length: u64) {
        if let Some(frame) = self.entries.get_mut(self.open_frame) {
            frame.sum = crc32c::crc32c_append(frame.sum, &length.to_be_bytes());
        }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}
