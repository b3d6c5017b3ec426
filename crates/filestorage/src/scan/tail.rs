//! Decides whether the end of a data file is unfinished or damaged.
//!
//! Bytes that are no whole transaction are cut only if a crash may have left them of the last
//! write. They are damage in two cases: a whole transaction follows, be it at another place than it
//! was written to, or the two lengths show that the transaction was written to its end. Cutting
//! would then destroy committed data.
//!
//! A crash leaves one of these:
//! - a write that is cut short;
//! - zeros up to the end, if the file system noted the new length before the bytes arrived;
//! - zeros in place of a sector that the disk had not written yet;
//! - the previous content of the blocks.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::DiskFile;
use zodium_types::Tid;

use super::entries::{Step, TransactionEntry};
use super::scanner::Scan;
use crate::FileStorageError;
use crate::format::{
    DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES, POINTER_BYTES, STATUS_CHECKPOINT, STATUS_OFFSET,
    TRANSACTION_HEADER_BYTES, TransactionHeader, u64_at,
};

/// Transactions in a row that show that bytes before them are missing, or too many.
const SHIFTED_MIN: usize = 8;
/// Bytes read at once in a search.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes read at once for a single place.
const LOOK_BYTES: usize = 4096;
/// Length of the shortest transaction with a record: one byte of data, and both lengths.
const TRANSACTION_BYTES_MIN: u64 =
    TRANSACTION_HEADER_BYTES as u64 + DATA_HEADER_BYTES as u64 + 1 + POINTER_BYTES;

/// The bytes behind the last whole transaction.
pub(crate) struct Tail<'a> {
    pub(crate) path: &'a Path,
    pub(crate) file: &'a Arc<dyn DiskFile>,
    pub(crate) start: u64,
    /// The end of the file.
    pub(crate) end: u64,
    /// Tid of the last whole transaction.
    pub(crate) last_tid: Tid,
}

/// Smallest unit that disks write as a whole.
const SECTOR_BYTES: u64 = 512;
/// Part of a record header that is never all zeros, however sectors divide it: it begins with the
/// tid and ends with the position of the transaction.
const NEVER_ZERO: std::ops::Range<u64> = 8..32;

impl Tail<'_> {
    /// Returns `Ok` if a crash explains the tail, otherwise the error for the damaged file.
    /// `damage` describes what is wrong. `None`: the tail is shorter than its first length, or its
    /// transaction was voted and not finished.
    pub(crate) fn check(&self, damage: Option<FileStorageError>) -> Result<(), FileStorageError> {
        if self.is_followed()? {
            return Err(damage.unwrap_or_else(|| {
                self.damaged(
                    "a transaction that reaches past the end of the file, \
                     though whole transactions follow",
                )
            }));
        }
        if self.is_zeroed()? || self.shows_a_lost_sector()? || self.is_left_over()? {
            return Ok(());
        }
        if self.was_written_to_its_end()? {
            let what = "a transaction whose two lengths differ";
            return Err(damage.unwrap_or_else(|| self.damaged(what)));
        }
        Ok(())
    }

    /// Whether the transaction that begins here has both its lengths. A length with a single wrong
    /// bit counts, because no crash causes that.
    fn was_written_to_its_end(&self) -> Result<bool, FileStorageError> {
        let Some(header) = self.header()? else { return Ok(false) };
        let mut copy = [0; POINTER_BYTES as usize];
        let mut is_written = false;
        if let Some(records_end) = self.end.checked_sub(POINTER_BYTES)
            && header.status != STATUS_CHECKPOINT
            && self.read(&mut copy, records_end)?
        {
            let (length, copy) = (records_end.checked_sub(self.start), u64::from_be_bytes(copy));
            is_written |= length == Some(copy);
            is_written |= length == Some(header.length) && (header.length ^ copy).is_power_of_two();
        }
        let records_end = self.start.saturating_add(header.length);
        is_written |= header.length > 0
            && self.read(&mut copy, records_end)?
            && u64::from_be_bytes(copy) == header.length
            && header.status != STATUS_CHECKPOINT;
        Ok(is_written)
    }

    /// Whether a sector that held the header of the transaction or of one of its records is all
    /// zeros.
    fn shows_a_lost_sector(&self) -> Result<bool, FileStorageError> {
        let Some(mut header) = self.header()? else { return Ok(false) };
        if self.is_zero_sector(self.start)? {
            return Ok(true);
        }
        // Against overflow.
        header.length = header.length.min(self.end);
        let entry = TransactionEntry { position: self.start, header };
        let mut look = self.look();
        let mut position = entry.records_start();
        while position < entry.records_end().min(self.end) {
            for offset in [NEVER_ZERO.start, NEVER_ZERO.end - 1] {
                if self.is_zero_sector(position.saturating_add(offset))? {
                    return Ok(true);
                }
            }
            let Ok(record) = look.record(position, &entry) else { break };
            position += record.header.record_bytes();
        }
        Ok(false)
    }

    /// Whether the tail's part of the sector around a position is all zeros.
    fn is_zero_sector(&self, position: u64) -> Result<bool, FileStorageError> {
        let start = (position / SECTOR_BYTES * SECTOR_BYTES).max(self.start);
        let end = (position / SECTOR_BYTES * SECTOR_BYTES).saturating_add(SECTOR_BYTES);
        let Some(count) = end.min(self.end).checked_sub(start) else { return Ok(false) };
        let mut sector = [0; SECTOR_BYTES as usize];
        let sector = &mut sector[..count as usize];
        Ok(self.read(sector, start)? && sector.iter().all(|byte| *byte == 0))
    }

    /// Whether the tail begins with a transaction that the file already has before the tail: the
    /// previous content of the blocks.
    pub(crate) fn is_left_over(&self) -> Result<bool, FileStorageError> {
        let Some(header) = self.header()? else { return Ok(false) };
        Ok(header.tid <= self.last_tid && self.has_before(header.tid)?)
    }

    /// Whether there is a transaction with this tid before the tail.
    fn has_before(&self, tid: Tid) -> Result<bool, FileStorageError> {
        let mut scan = Scan::new(self.path, Arc::clone(self.file), self.start);
        let mut position = MAGIC_BYTES;
        while let Step::Transaction(entry) = scan.transaction(position)? {
            if entry.tid() == tid {
                return Ok(true);
            }
            position = entry.next_position();
        }
        Ok(false)
    }

    /// Whether the transaction that begins here is intact up to some byte, and followed by zeros up
    /// to the end of the file.
    pub(crate) fn is_zeroed(&self) -> Result<bool, FileStorageError> {
        let zeros = self.zeros_start()?;
        if zeros == self.end || zeros < self.start + STATUS_OFFSET as u64 {
            return Ok(zeros < self.end);
        }
        let mut length = [0; POINTER_BYTES as usize];
        self.read(&mut length, self.start + TransactionHeader::LENGTH_OFFSET)?;
        let records_end = self.start.saturating_add(u64::from_be_bytes(length));
        if zeros < records_end {
            return Ok(true);
        }
        let mut copy = [0; POINTER_BYTES as usize];
        if zeros > records_end + POINTER_BYTES || !self.read(&mut copy, records_end)? {
            return Ok(false);
        }
        let arrived = copy.iter().zip(length).take_while(|(copy, byte)| *copy == byte).count();
        Ok(arrived < copy.len() && copy.iter().skip(arrived).all(|byte| *byte == 0))
    }

    /// Position of the zeros at the end of the file; the end when there are none.
    fn zeros_start(&self) -> Result<u64, FileStorageError> {
        let mut window = vec![0; WINDOW_BYTES];
        let mut end = self.end;
        while end > self.start {
            let count = (end - self.start).min(WINDOW_BYTES as u64) as usize;
            let (bytes, from) = (&mut window[..count], end - count as u64);
            self.read(bytes, from)?;
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                return Ok(from + last as u64 + 1);
            }
            end = from;
        }
        Ok(end)
    }

    /// Whether a whole transaction follows anywhere behind the start.
    pub(crate) fn is_followed(&self) -> Result<bool, FileStorageError> {
        let mut window = vec![0; WINDOW_BYTES];
        let mut position = self.start + 1;
        while position.saturating_add(TRANSACTION_BYTES_MIN) <= self.end {
            let count = (self.end - position).min(WINDOW_BYTES as u64) as usize;
            let bytes = &mut window[..count];
            self.read(bytes, position)?;
            let starts = count - TRANSACTION_HEADER_BYTES;
            for at in 0..starts {
                let start = position + at as u64;
                if self.may_begin(start, &bytes[at..])
                    && (self.begins(start) || self.begins_shifted(start))
                {
                    return Ok(true);
                }
            }
            position += starts as u64;
        }
        Ok(false)
    }

    /// Whether these bytes can be the header of a transaction at `position`.
    fn may_begin(&self, position: u64, bytes: &[u8]) -> bool {
        let length = u64_at(bytes, TransactionHeader::LENGTH_OFFSET as usize);
        let room = self.end - position;
        (TRANSACTION_BYTES_MIN - POINTER_BYTES..=room - POINTER_BYTES).contains(&length)
            && u64_at(bytes, 0) > self.last_tid.0
    }

    /// Whether a transaction with records begins at a position. Records name their own position, so
    /// a transaction inside the data of a record does not count.
    fn begins(&self, position: u64) -> bool {
        let mut scan = self.look();
        let Ok(Step::Transaction(entry)) = scan.transaction(position) else { return false };
        let mut records = 0;
        scan.each_record(&entry, |_| records += 1).is_ok() && records > 0
    }

    /// Whether transactions whose records all name positions at the same distance begin here, as
    /// where bytes before them are missing, or were inserted. They are several, or go on up to the
    /// end of the file: what is inside the data of a record of a torn write does not count.
    fn begins_shifted(&self, mut position: u64) -> bool {
        let (mut scan, mut shift) = (self.look(), None);
        for _ in 0..SHIFTED_MIN {
            let Ok(Step::Transaction(entry)) = scan.transaction(position) else { return false };
            let found = self.shift_of(&entry);
            if found.is_none() || found != *shift.get_or_insert(found) {
                return false;
            }
            position = entry.next_position();
            if position == self.end {
                return true;
            }
        }
        true
    }

    /// How far the position that all records of a transaction name is from its own; `None` if they
    /// disagree, or there are none.
    fn shift_of(&self, entry: &TransactionEntry) -> Option<u64> {
        let (mut position, mut shift) = (entry.records_start(), None);
        while position < entry.records_end() {
            let mut bytes = [0; DATA_HEADER_BYTES];
            let is_there = self.read(&mut bytes, position).ok()?;
            let header = DataHeader::parse(&bytes);
            let found = header.transaction.wrapping_sub(entry.position);
            position = position.checked_add(header.record_bytes())?;
            let is_sound = is_there && header.tid == entry.tid() && position <= entry.records_end();
            if !is_sound || found != *shift.get_or_insert(found) {
                return None;
            }
        }
        shift
    }

    /// The header at the start of the tail; `None` when the tail is shorter than a header.
    fn header(&self) -> Result<Option<TransactionHeader>, FileStorageError> {
        let mut header = [0; TRANSACTION_HEADER_BYTES];
        Ok(self.read(&mut header, self.start)?.then(|| TransactionHeader::parse(&header)))
    }

    fn damaged(&self, what: &str) -> FileStorageError {
        FileStorageError::corrupt(self.path, self.start, what)
    }

    fn look(&self) -> Scan<'_> {
        Scan::with_window(self.path, Arc::clone(self.file), self.end, LOOK_BYTES)
    }

    /// Fills the buffer; `false` when the file ends before.
    fn read(&self, buffer: &mut [u8], position: u64) -> Result<bool, FileStorageError> {
        // A garbage length leads to positions that no disk accepts.
        if position.checked_add(buffer.len() as u64).is_none_or(|end| end > self.end) {
            return Ok(false);
        }
        match self.file.read_exact_at(buffer, position) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(FileStorageError::io(self.path, "read", error)),
        }
    }
}

#[cfg(test)]
mod tests;
