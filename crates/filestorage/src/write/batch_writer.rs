//! Lays out a batch of transactions, and writes it with one sync.

use std::path::Path;
use std::time::Instant;

use zodium_storage::{NewBody, NewRecord};
use zodium_types::{Durations, Tid};

use super::appended::Written;
use super::prepared::{PreparedBatch, PreparedTransaction};
use super::sizes::{data_length, header, records_bytes};
use crate::FileStorageError;
use crate::checksums::{Batch, RecordSum};
use crate::format::{DataHeader, LostSectors, POINTER_BYTES};
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
fn is_written_at_once(batch: &PreparedBatch) -> bool {
    let mut records = batch.iter().flat_map(|(_, prepared)| &prepared.transaction.records);
    records.all(|record| data_length(record) < GATHER_BYTES_MAX as u64)
        && batch.iter().map(|(_, prepared)| prepared.bytes()).sum::<u64>() < WRITE_BYTES as u64
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
        batch: &PreparedBatch,
    ) -> Result<Vec<Written>, FileStorageError> {
        let mut written = Vec::with_capacity(batch.len());
        for (tid, prepared) in batch {
            written.push(self.write_transaction(*tid, prepared)?);
        }
        self.announce_if_lost()?;
        self.flush()?;
        let started = Instant::now();
        self.log.file.sync().map_err(|error| self.failed("sync", error))?;
        self.syncs.record(started.elapsed());
        Ok(written)
    }

    /// Lays out the transactions once without writing them, to see whether they must be announced.
    /// Needed only for those written in pieces; others are complete in the buffer before the write.
    pub(super) fn rehearse(&mut self, batch: &PreparedBatch) -> Result<(), FileStorageError> {
        if self.lost.is_none() || is_written_at_once(batch) {
            return Ok(());
        }
        let start = self.position;
        self.is_rehearsal = true;
        for (tid, prepared) in batch {
            self.write_transaction(*tid, prepared)?;
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

    fn write_transaction(
        &mut self,
        tid: Tid,
        prepared: &PreparedTransaction,
    ) -> Result<Written, FileStorageError> {
        let new = &prepared.transaction;
        let start = self.position;
        let header = header(tid, new.status, &new.metadata, records_bytes(&new.records));
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

        let mut positions = Vec::with_capacity(new.records.len());
        let mut back_positions = prepared.back_positions.iter();
        for record in &new.records {
            // The index does not have this batch yet. That is correct: object locks are held until
            // publication, so no two transactions of a batch write the same object.
            let before = self.log.positions.position(record.oid).unwrap_or(0);
            positions.push((self.position, before));
            let record_header = DataHeader {
                oid: record.oid,
                tid,
                previous: before,
                transaction: start,
                version_length: 0,
                data_length: data_length(record),
            };
            self.write_record(record, &record_header, &mut back_positions)?;
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
        Ok(Written { start, end: self.position, positions })
    }

    fn write_record(
        &mut self,
        record: &NewRecord,
        header: &DataHeader,
        back_positions: &mut std::slice::Iter<'_, u64>,
    ) -> Result<(), FileStorageError> {
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
            NewBody::SameAs(_) => match back_positions.next() {
                Some(back) => write(&back.to_be_bytes())?,
                None => unreachable!("a transaction is prepared with the positions it points to"),
            },
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
