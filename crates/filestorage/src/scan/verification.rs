//! Verifies what a scan finds: with its checksum, or with the bytes around it.

use zodium_types::{Oid, Tid};

use super::entries::{DataEntry, TransactionEntry};
use super::scanner::{Scan, WINDOW_BYTES};
use super::sums::Part;
use crate::FileStorageError;
use crate::format::{DATA_HEADER_BYTES, DataHeader, POINTER_BYTES, u64_at};

impl Scan<'_> {
    /// The checksum of a transaction's frame as it is in the file. The copy of the length was
    /// compared when the entry was made.
    pub(crate) fn frame_sum(&mut self, entry: &TransactionEntry) -> Result<u32, FileStorageError> {
        let sum = self.sum(0, entry.position, entry.records_start())?;
        Ok(crc32c::crc32c_append(sum, &entry.header.length.to_be_bytes()))
    }

    /// The checksum of a record as it is in the file.
    pub(crate) fn record_sum(&mut self, record: &DataEntry) -> Result<u32, FileStorageError> {
        self.sum(0, record.position, record.position + record.header.record_bytes())
    }

    fn sum(&mut self, mut sum: u32, start: u64, end: u64) -> Result<u32, FileStorageError> {
        let mut position = start;
        while position < end {
            let count = (end - position).min(WINDOW_BYTES as u64) as usize;
            sum = crc32c::crc32c_append(sum, self.expect_bytes(position, count)?);
            position += count as u64;
        }
        Ok(sum)
    }

    /// Verifies the header and metadata of a committed transaction: with its checksum, or with the
    /// bytes around it when it has none.
    pub(super) fn verify_transaction(
        &mut self,
        entry: &TransactionEntry,
    ) -> Result<(), FileStorageError> {
        if self.damages.is_none() {
            return Ok(());
        }
        let Some(sum) = self.sealed_sum(entry.position, Part::Frame) else {
            return self.verify_by_neighbours(entry);
        };
        if self.frame_sum(entry)? == sum {
            return Ok(());
        }
        let what = "a transaction that does not fit its checksum";
        self.refuse(entry.position, None, entry.tid(), what)?;
        self.verify_by_neighbours(entry)
    }

    /// Reports a checksum mismatch, unless the checksums are of another log.
    fn refuse(
        &self,
        position: u64,
        oid: Option<Oid>,
        tid: Tid,
        what: &str,
    ) -> Result<(), FileStorageError> {
        match self.checksums.as_ref().is_some_and(|sums| sums.is_damage(position, oid, tid, what)) {
            true => Err(self.damaged(position, what)),
            false => Ok(()),
        }
    }

    /// Compares a header without a checksum with its first record, which names its transaction. If
    /// it has no record, its tid must be between those of the transactions around it. These say
    /// nothing of it in a log whose tids go back, as other programs may write it.
    fn verify_by_neighbours(&mut self, entry: &TransactionEntry) -> Result<(), FileStorageError> {
        if entry.records_start() < entry.records_end() {
            let bytes = self.chunk::<DATA_HEADER_BYTES>(entry.records_start())?;
            let first = bytes.map(|bytes| DataHeader::parse(&bytes));
            let agrees = first.is_some_and(|first| {
                (first.tid, first.transaction) == (entry.tid(), entry.position)
            });
            let what = "a transaction whose first record names another one";
            return if agrees { Ok(()) } else { Err(self.damaged(entry.position, what)) };
        }
        if self.tids_go_back {
            return Ok(());
        }
        let before = match entry.position.checked_sub(POINTER_BYTES) {
            Some(trailer) => {
                let length = self.chunk(trailer)?.map_or(0, |copy: [u8; 8]| u64_at(&copy, 0));
                self.tid_at(trailer.saturating_sub(length))?
            }
            // The first one in the file.
            None => None,
        };
        let next = self.tid_at(entry.next_position())?;
        let tid = entry.tid();
        if let (Some(before), Some(next)) = (before, next)
            && next <= before
        {
            return Ok(());
        }
        if before.is_none_or(|before| before < tid) && next.is_none_or(|next| tid < next) {
            return Ok(());
        }
        Err(self.damaged(entry.position, "a transaction that is not later than the one before it"))
    }

    fn tid_at(&mut self, position: u64) -> Result<Option<Tid>, FileStorageError> {
        Ok(self.chunk(position)?.map(|bytes: [u8; 8]| Tid(u64_at(&bytes, 0))))
    }

    /// Verifies a record with its checksum.
    pub(crate) fn verify_record(&mut self, record: &DataEntry) -> Result<(), FileStorageError> {
        let Some(sum) = self.sealed_sum(record.position, Part::Record) else { return Ok(()) };
        if self.record_sum(record)? == sum {
            return Ok(());
        }
        let DataHeader { oid, tid, .. } = record.header;
        let what = format!("the record of object {oid} does not fit its checksum");
        self.refuse(record.position, Some(oid), tid, &what)
    }

    /// The stored checksum of the part at a position.
    fn sealed_sum(&mut self, position: u64, part: Part) -> Option<u32> {
        self.checksums.as_mut()?.sum(position, part)
    }
}
