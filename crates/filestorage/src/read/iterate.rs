//! Iterates over transactions and their records in the order of the log.

use std::sync::Arc;

use zodium_storage::{Transaction, TransactionRecord};
use zodium_types::{Oid, Tid, TransactionStatus};

use super::log_bytes::{Body, LogBytes};
use super::old_logs::PinnedLog;
use super::reader::Reader;
use crate::FileStorageError;
use crate::format::{DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES, POINTER_BYTES};
use crate::reading::Reading;
use crate::scan::{Scan, Step, TransactionEntry};

/// Bytes read at once while stepping. A client asks for each step separately.
const STEP_WINDOW_BYTES: usize = 16 << 10;

/// An iterator over the log as it was when the iterator was made. Commits do not affect it, nor do
/// up to [`OLD_LOGS_MAX`](crate::OLD_LOGS_MAX) packs.
pub struct TransactionIterator {
    pub(crate) log: Arc<PinnedLog>,
    pub(crate) next: u64,
    /// End of the log when the iterator was made: the iterator does not see later commits.
    pub(crate) end: u64,
    stop: Tid,
    /// The transaction of the last step.
    pub(super) last: Option<TransactionEntry>,
    /// The transaction whose records are being [read](TransactionIterator::read), and the position
    /// of its next record.
    pub(crate) reading: Option<(TransactionEntry, u64)>,
}

/// An iterator over the records of one transaction.
pub struct RecordIterator {
    log: Arc<PinnedLog>,
    entry: TransactionEntry,
    next: u64,
}

impl Reader {
    /// Transactions with `start <= tid <= stop`, oldest first.
    pub fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<TransactionIterator, FileStorageError> {
        let log = self.log();
        let (next, end) = match start {
            Some(tid) if stop == start => match log.find_transaction(tid)? {
                Some(entry) => (entry.position, entry.next_position()),
                None => (MAGIC_BYTES, MAGIC_BYTES),
            },
            Some(start) => (log.first_at_or_after(start)?, log.end()),
            None => (MAGIC_BYTES, log.end()),
        };
        // A broken clock can have made tids beyond `Tid::MAX`.
        let stop = stop.unwrap_or(Tid(u64::MAX));
        let log = Arc::clone(log.pinned());
        Ok(TransactionIterator { log, next, end, stop, last: None, reading: None })
    }

    /// The newest `count` transactions, oldest first, each with the objects that it wrote. An
    /// object is listed once.
    pub fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, FileStorageError> {
        let log = self.log();
        let mut scan = step_scan(&log);
        let mut recent = Vec::new();
        let mut end = scan.end();
        while recent.len() < count {
            let Some(entry) = scan.transaction_before(end)? else { break };
            let (mut oids, mut seen) = (Vec::new(), rustc_hash::FxHashSet::default());
            let counts = entry.status() != Some(TransactionStatus::Undone);
            scan.each_record(&entry, |record| {
                if counts && seen.insert(record.header.oid) {
                    oids.push(record.header.oid);
                }
            })?;
            recent.push((entry.tid(), oids));
            end = entry.position;
        }
        recent.reverse();
        Ok(recent)
    }
}

impl TransactionIterator {
    /// The next transaction; `None` at the end.
    pub fn step(&mut self) -> Result<Option<Transaction>, FileStorageError> {
        let log = self.log.bytes()?;
        self.reading = None;
        let mut scan = log.scan_to(self.end, STEP_WINDOW_BYTES);
        self.last = None;
        self.last = self.next_entry(&mut scan)?;
        self.last.map(|entry| transaction(&mut scan, &entry)).transpose()
    }

    /// Moves to the next transaction that counts.
    pub(crate) fn next_entry(
        &mut self,
        scan: &mut Scan<'_>,
    ) -> Result<Option<TransactionEntry>, FileStorageError> {
        loop {
            let Step::Transaction(entry) = scan.transaction(self.next)? else { return Ok(None) };
            if entry.tid() > self.stop {
                return Ok(None);
            }
            self.next = entry.next_position();
            if entry.status() != Some(TransactionStatus::Undone) {
                return Ok(Some(entry));
            }
        }
    }

    /// The records of the transaction that the last step returned.
    pub fn records(&self) -> Option<RecordIterator> {
        let (log, entry) = (Arc::clone(&self.log), self.last?);
        Some(RecordIterator { log, entry, next: entry.records_start() })
    }
}

impl RecordIterator {
    /// The next record of the transaction; `None` after the last.
    pub fn step(&mut self) -> Result<Option<TransactionRecord>, FileStorageError> {
        if self.next >= self.entry.records_end() {
            return Ok(None);
        }
        let (log, position) = (self.log.bytes()?, self.next);
        let window = DATA_HEADER_BYTES + POINTER_BYTES as usize;
        let header = log.scan_to(log.end(), window).record(position, &self.entry)?.header;
        let oid = header.oid;
        let gone = || log.damaged(position, "a record that cannot be read");
        let stored = log.read_stored(position, oid, Reading::Blocking)?.ok_or_else(gone)?;
        let (data, data_tid) = match stored.body {
            Body::Data(data) => (Some(data), None),
            Body::Back(0) => (None, None),
            Body::Back(back) => {
                let (_, data) = log.data_behind(back, oid, Reading::Blocking)?.ok_or_else(gone)?;
                (data, Some(tid_of(&log, back, oid)?))
            }
        };
        // Advance only after the record was read: an unreadable record is never skipped.
        self.next += header.record_bytes();
        Ok(Some(TransactionRecord { oid, tid: header.tid, data, data_tid }))
    }
}

/// A scan for single steps, up to the present end of the log.
pub(crate) fn step_scan(log: &LogBytes) -> Scan<'_> {
    log.scan_to(log.end(), STEP_WINDOW_BYTES)
}

/// The transaction that the record at `position` names as its own.
pub(crate) fn transaction_of(
    scan: &mut Scan<'_>,
    log: &LogBytes,
    position: u64,
    record: &DataHeader,
) -> Result<Transaction, FileStorageError> {
    if let Step::Transaction(entry) = scan.transaction(record.transaction)?
        && entry.tid() == record.tid
        && (entry.records_start()..entry.records_end()).contains(&position)
    {
        return transaction(scan, &entry);
    }
    let what = "a record that does not stand in the transaction it names";
    Err(log.damaged(position, what))
}

/// The tid of the record of `oid` at `position`, confirmed by its transaction.
pub(crate) fn tid_of(log: &LogBytes, position: u64, oid: Oid) -> Result<Tid, FileStorageError> {
    let stored = log.read_stored(position, oid, Reading::Blocking)?;
    let gone = || log.damaged(position, "a record that cannot be read");
    let header = stored.ok_or_else(gone)?.header;
    Ok(transaction_of(&mut step_scan(log), log, position, &header)?.tid)
}

pub(super) fn transaction(
    scan: &mut Scan<'_>,
    entry: &TransactionEntry,
) -> Result<Transaction, FileStorageError> {
    let (tid, status) = (entry.tid(), entry.status().unwrap_or_default());
    Ok(Transaction { tid, status, metadata: scan.metadata(entry)?, length: entry.header.length })
}
