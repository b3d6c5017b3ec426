//! Reads many transactions and records of the log at once, as they are in the file.
//!
//! Key decision: the bytes are not converted but lent from the window of the scan. So a caller that
//! forwards them copies them once, and the file is read in large pieces.

use std::ops::ControlFlow;

use zodium_storage::LogItem;

use super::iterate::{TransactionIterator, tid_of};
use super::log_bytes::LogBytes;
use crate::FileStorageError;
use crate::reading::Reading;
use crate::scan::{DataEntry, Scan, TransactionEntry};

/// Bytes read at once.
const WINDOW_BYTES: usize = 256 << 10;

/// Where an item of the log is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its position, in bytes from the start of the file.
    pub position: u64,
    /// Its length; of a transaction as its header has it, without the copy of it at the end.
    pub bytes: u64,
}

impl TransactionIterator {
    /// Continues from the current place and passes each item to `visit` until `visit` stops it.
    /// Returns whether the end is reached. Without `with_records` it passes no more records. After
    /// an error the place is still before the unreadable item.
    pub fn read(
        &mut self,
        with_records: bool,
        mut visit: impl FnMut(LogItem<'_>) -> ControlFlow<()>,
    ) -> Result<bool, FileStorageError> {
        self.read_placed(with_records, |item, _| visit(item))
    }

    /// As [`TransactionIterator::read`], with the place of each item in the file.
    pub fn read_placed(
        &mut self,
        with_records: bool,
        mut visit: impl FnMut(LogItem<'_>, Place) -> ControlFlow<()>,
    ) -> Result<bool, FileStorageError> {
        let log = self.log.bytes()?;
        self.last = None;
        let mut scan = log.scan_to(self.end, WINDOW_BYTES);
        loop {
            if let Some((entry, position)) = self.reading {
                if position >= entry.records_end() {
                    self.reading = None;
                } else if !with_records {
                    self.reading = None;
                    let place = Place { position, bytes: entry.records_end() - position };
                    if visit(LogItem::Skipped, place).is_break() {
                        return Ok(false);
                    }
                } else {
                    let record = scan.record(position, &entry)?;
                    let flow = show_record(&log, &mut scan, &record, &mut visit)?;
                    self.reading = Some((entry, position + record.header.record_bytes()));
                    if flow.is_break() {
                        return Ok(false);
                    }
                }
                continue;
            }
            let before = self.next;
            let Some(entry) = self.next_entry(&mut scan)? else { return Ok(true) };
            let flow = show_transaction(&mut scan, &entry, &mut visit)
                .inspect_err(|_| self.next = before)?;
            self.reading = Some((entry, entry.records_start()));
            if flow.is_break() {
                return Ok(false);
            }
        }
    }
}

fn show_transaction(
    scan: &mut Scan<'_>,
    entry: &TransactionEntry,
    visit: &mut impl FnMut(LogItem<'_>, Place) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, FileStorageError> {
    let place = Place { position: entry.position, bytes: entry.header.length };
    let lengths = entry.header;
    let bytes = scan.metadata_bytes(entry)?;
    let (user, rest) = bytes.split_at_checked(lengths.user_length.into()).unwrap_or_default();
    let (description, extension) =
        rest.split_at_checked(lengths.description_length.into()).unwrap_or_default();
    let status = entry.status().unwrap_or_default();
    let item = LogItem::Transaction { tid: entry.tid(), status, user, description, extension };
    Ok(visit(item, place))
}

fn show_record(
    log: &LogBytes,
    scan: &mut Scan<'_>,
    record: &DataEntry,
    visit: &mut impl FnMut(LogItem<'_>, Place) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, FileStorageError> {
    let place = Place { position: record.position, bytes: record.header.record_bytes() };
    scan.verify_record(record)?;
    let oid = record.header.oid;
    if record.header.data_length > 0 {
        let length = usize::try_from(record.header.data_length).unwrap_or(usize::MAX);
        let data = Some(scan.data(record, 0, length)?);
        return Ok(visit(LogItem::Record { oid, data, data_tid: None }, place));
    }
    let back = scan.back_pointer(record)?;
    if back == 0 {
        return Ok(visit(LogItem::Record { oid, data: None, data_tid: None }, place));
    }
    let gone = || log.damaged(record.position, "a record that cannot be read");
    let (_, data) = log.data_behind(back, oid, Reading::Blocking)?.ok_or_else(gone)?;
    let data_tid = Some(tid_of(log, back, oid)?);
    Ok(visit(LogItem::Record { oid, data: data.as_deref(), data_tid }, place))
}
