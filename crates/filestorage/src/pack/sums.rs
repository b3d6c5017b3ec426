//! Computes the checksums of the file that a pack writes, while it writes.

use std::sync::Arc;

use tracing::warn;

use crate::checksums::{Batch, ChecksumMode, Checksums, RecordSum, Writing};
use crate::format::{MAGIC_BYTES, TransactionHeader};
use crate::read::LogFile;

/// Entries written at once.
const WRITE_ENTRIES: usize = 16 << 10;

/// Entries on their way to the new side file.
pub(super) struct Sums {
    mode: ChecksumMode,
    writing: Writing,
    batch: Batch,
    /// Header and metadata of the transaction that is being copied.
    header: Vec<u8>,
    record: Option<RecordSum>,
    /// Up to here of the copy they are written.
    written: u64,
}

impl Sums {
    pub(super) fn new(mode: ChecksumMode, writing: Writing) -> Sums {
        let (batch, header, record) = (Batch::default(), Vec::new(), None);
        Sums { mode, writing, batch, header, record, written: MAGIC_BYTES }
    }

    /// A transaction begins with this header, but for its length.
    pub(super) fn begin(&mut self, position: u64, header: &TransactionHeader, metadata: &[u8]) {
        self.header.clear();
        header.write(&mut self.header);
        self.header.extend_from_slice(metadata);
        self.batch.begin(position, &[]);
    }

    /// It ends before `end`.
    pub(super) fn end(&mut self, length: [u8; 8], end: u64) {
        self.take_record();
        let start = TransactionHeader::LENGTH_OFFSET as usize;
        if let Some(place) = self.header.get_mut(start..start + length.len()) {
            place.copy_from_slice(&length);
        }
        self.batch.change_header(&self.header);
        self.batch.end(u64::from_be_bytes(length));
        if self.batch.entries().len() >= WRITE_ENTRIES {
            self.write(end);
        }
    }

    /// A record begins.
    pub(super) fn record(&mut self, position: u64) {
        self.take_record();
        self.record = Some(RecordSum::new(position, &[]));
    }

    /// Bytes of the record.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        if let Some(record) = &mut self.record {
            record.add(bytes);
        }
    }

    fn take_record(&mut self) {
        if let Some(record) = self.record.take() {
            self.batch.record(record);
        }
    }

    /// Writes what there is. The copy ends at `end`.
    pub(super) fn write(&mut self, end: u64) {
        self.writing.append(self.written, end, &self.batch);
        self.batch.clear();
        self.written = end;
    }

    /// Makes those of what was copied so far durable, which is durable itself.
    pub(super) fn sync(&mut self, end: u64) {
        self.write(end);
        if let Err(error) = self.writing.sync() {
            let file = self.writing.side().path().display();
            warn!(%file, %error, "the checksums of the packed file could not be synced");
        }
    }

    /// Those of the new log.
    pub(super) fn into_checksums(self, log: &LogFile) -> Arc<Checksums> {
        Arc::new(Checksums::new(&log.path, self.mode, self.writing))
    }
}
