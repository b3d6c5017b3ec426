//! Lays out a batch of transactions, and writes it with one sync.

use std::path::Path;
use std::time::Instant;

use zodium_types::{Durations, Tid, TransactionStatus};

use super::appended::Appended;
use super::new_transaction::{NewBody, NewRecord, NewTransaction, header, total_bytes};
use crate::FileStorageError;
use crate::checksums::{Batch, RecordSum};
use crate::format::{DataHeader, LostSectors, POINTER_BYTES, record_bytes};
use crate::read::LogFile;

/// Bodies of at least this size are written from their own memory. Smaller ones are gathered into
/// one buffer, which is cheaper than a longer vector of pieces.
const GATHER_BYTES_MAX: usize = 64 << 10;
/// Size of the buffer at which it is written to the file.
const WRITE_BYTES: usize = 1 << 20;

/// Lays out transactions as bytes and writes them to the file.
pub(super) struct BatchWriter<'a> {
    log: &'a LogFile,
    /// Position of the next byte.
    pub(super) position: u64,
    /// The bytes before this position are in the file; the rest is in the buffer.
    written: u64,
    /// CRC-32C of the bytes in the file.
    pub(super) crc32c: u32,
    pub(super) buffer: Vec<u8>,
    /// Checksums of the laid out bytes, taken while they are in memory.
    pub(super) sums: Option<Batch>,
    /// Finds out whether the bytes look as if sectors were lost. Only used with checksums.
    lost: Option<LostSectors>,
    /// Announces a batch: makes its checksums durable before its bytes are written.
    announce: &'a dyn Fn(&Batch) -> Result<bool, FileStorageError>,
    /// Whether the batch should have been announced, but could not be.
    pub(super) is_unannounced: bool,
    /// Whether nothing is written to the file.
    is_rehearsal: bool,
    syncs: &'a Durations,
}

/// Whether the buffer holds all bytes of the transactions before the first write.
fn is_written_at_once(transactions: &[NewTransaction]) -> bool {
    let mut records = transactions.iter().flat_map(|new| &new.records);
    records.all(|record| record.data_length() < GATHER_BYTES_MAX as u64)
        && total_bytes(transactions) < WRITE_BYTES as u64
}

impl<'a> BatchWriter<'a> {
    /// For a batch that begins at `start`, the end of the log.
    pub(super) fn new(
        log: &'a LogFile,
        start: u64,
        buffer: Vec<u8>,
        syncs: &'a Durations,
        announce: &'a dyn Fn(&Batch) -> Result<bool, FileStorageError>,
    ) -> BatchWriter<'a> {
        let has_checksums = log.checksums.is_some();
        BatchWriter {
            log,
            position: start,
            written: start,
            crc32c: 0,
            buffer,
            sums: has_checksums.then(Batch::default),
            lost: has_checksums.then(LostSectors::default),
            announce,
            is_unannounced: false,
            is_rehearsal: false,
            syncs,
        }
    }

    pub(super) fn write_all(
        &mut self,
        transactions: &[NewTransaction],
    ) -> Result<Vec<Appended>, FileStorageError> {
        let mut appended = Vec::with_capacity(transactions.len());
        for transaction in transactions {
            appended.push(self.write_transaction(transaction)?);
        }
        self.announce_if_lost()?;
        self.flush()?;
        let started = Instant::now();
        self.log.file.sync().map_err(|error| self.failed("sync", error))?;
        self.syncs.record(started.elapsed());
        Ok(appended)
    }

    /// Lays out the transactions once without writing them, to see whether they must be announced.
    /// Needed only for those written in pieces; others are complete in the buffer before the write.
    pub(super) fn rehearse(
        &mut self,
        transactions: &[NewTransaction],
    ) -> Result<(), FileStorageError> {
        if self.lost.is_none() || is_written_at_once(transactions) {
            return Ok(());
        }
        let start = self.position;
        self.is_rehearsal = true;
        for transaction in transactions {
            self.write_transaction(transaction)?;
        }
        self.is_rehearsal = false;
        self.announce_if_lost()?;
        self.buffer.clear();
        self.position = start;
        (self.sums, self.lost) = (Some(Batch::default()), None);
        Ok(())
    }

    fn announce_if_lost(&mut self) -> Result<(), FileStorageError> {
        if let (Some(sums), Some(lost)) = (&self.sums, &self.lost)
            && lost.seen()
        {
            self.is_unannounced = !(self.announce)(sums)?;
        }
        Ok(())
    }

    fn write_transaction(&mut self, new: &NewTransaction) -> Result<Appended, FileStorageError> {
        let start = self.position;
        let bytes = new.records.iter().map(|record| record_bytes(record.data_length())).sum();
        let header = header(new.tid, new.status, &new.metadata, bytes);
        let header_start = self.buffer.len();
        header.write(&mut self.buffer);
        self.buffer.extend_from_slice(&new.metadata.user);
        self.buffer.extend_from_slice(&new.metadata.description);
        self.buffer.extend_from_slice(&new.metadata.extension);
        if let Some(sums) = &mut self.sums {
            sums.begin(start, &self.buffer[header_start..]);
        }
        if let Some(lost) = &mut self.lost {
            lost.begin(start);
            lost.add(&self.buffer[header_start..]);
        }
        self.position += header.records_offset();

        let mut records = Vec::with_capacity(new.records.len());
        let mut previous = Vec::with_capacity(new.records.len());
        for record in &new.records {
            // The index does not have this batch yet. That is correct: object locks are held until
            // publication, so no two transactions of a batch write the same object.
            let before = self.log.positions.position(record.oid).unwrap_or(0);
            records.push((record.oid, self.position, record.body.clone()));
            previous.push(before);
            self.write_record(record, new.tid, before, start)?;
        }
        assert_eq!(self.position - start, header.length, "a transaction as long as announced");
        self.buffer.extend_from_slice(&header.length.to_be_bytes());
        if let Some(sums) = &mut self.sums {
            sums.end(header.length);
        }
        if let Some(lost) = &mut self.lost {
            lost.add(&header.length.to_be_bytes());
            lost.end();
        }
        self.position += POINTER_BYTES;
        if new.status == TransactionStatus::Undone {
            // The records of an undone transaction do not count, now as after the next opening.
            records.clear();
        }
        Ok(Appended { start, end: self.position, records, previous, tid: new.tid })
    }

    fn write_record(
        &mut self,
        record: &NewRecord,
        tid: Tid,
        previous: u64,
        transaction: u64,
    ) -> Result<(), FileStorageError> {
        let data_length = record.data_length();
        let header = DataHeader {
            oid: record.oid,
            tid,
            previous,
            transaction,
            version_length: 0,
            data_length,
        };
        let header_start = self.buffer.len();
        header.write(&mut self.buffer);
        let mut sum = RecordSum::new(self.position, &self.buffer[header_start..]);
        if let Some(lost) = &mut self.lost {
            lost.add(&self.buffer[header_start..]);
        }
        let mut write = |bytes: &[u8]| {
            sum.add(bytes);
            self.write_data(bytes)
        };
        match &record.body {
            NewBody::Data(data) => write(data)?,
            NewBody::Spooled(data) => data.each_chunk(write)?,
            NewBody::SameAs(back) => write(&back.to_be_bytes())?,
            NewBody::Deleted => write(&0_u64.to_be_bytes())?,
        }
        if let Some(sums) = &mut self.sums {
            sums.record(sum);
        }
        self.position += header.record_bytes();
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn write_data(&mut self, data: &[u8]) -> Result<(), FileStorageError> {
        if let Some(lost) = &mut self.lost {
            lost.add(data);
        }
        if data.len() < GATHER_BYTES_MAX {
            self.buffer.extend_from_slice(data);
            return Ok(());
        }
        self.flush()?;
        self.write(data)
    }

    fn flush(&mut self) -> Result<(), FileStorageError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), FileStorageError> {
        if self.is_rehearsal {
            return Ok(());
        }
        let written = self.log.file.write_all_at(bytes, self.written);
        written.map_err(|error| self.failed("write", error))?;
        self.written += bytes.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        Ok(())
    }

    fn failed(&self, operation: &'static str, error: std::io::Error) -> FileStorageError {
        FileStorageError::io(self.path(), operation, error)
    }

    fn path(&self) -> &Path {
        &self.log.path
    }
}
