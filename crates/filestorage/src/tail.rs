//! The end of a data file after a crash: is it unfinished, or damaged?
//!
//! What no transaction can be made of is cut only if it may be what a crash left of the last
//! write. It is not when a whole transaction follows, when the last bytes show that the
//! transaction had been written to its end, or when there are bytes in place of others: then the
//! file is damaged, and cutting would throw away what was committed.
//!
//! A crash leaves the write cut short, or, where the file system had noted the new length before
//! the bytes arrived, zeros from some byte on.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::DiskFile;
use zodium_types::Tid;

use crate::StorageError;
use crate::format::{
    DATA_HEADER_BYTES, POINTER_BYTES, STATUS_CHECKPOINT, STATUS_OFFSET, TRANSACTION_HEADER_BYTES,
    TransactionHeader, u64_at,
};
use crate::scan::{Scan, Step, TransactionEntry};

/// Bytes looked through at once.
const WINDOW_BYTES: usize = 1 << 20;
/// Window for a look at a single place.
const LOOK_BYTES: usize = 4096;
/// The shortest transaction that has a record, of one byte of data, with its last length.
const TRANSACTION_BYTES_MIN: u64 =
    TRANSACTION_HEADER_BYTES as u64 + DATA_HEADER_BYTES as u64 + 1 + POINTER_BYTES;

/// The bytes behind the last whole transaction.
pub(crate) struct Tail<'a> {
    pub(crate) path: &'a Path,
    pub(crate) file: &'a Arc<dyn DiskFile>,
    pub(crate) start: u64,
    /// The end of the file.
    pub(crate) end: u64,
    /// The last whole transaction.
    pub(crate) last_tid: Tid,
}

impl Tail<'_> {
    /// For a tail that is shorter than its first length says, or a transaction that was voted and
    /// not finished. An error if it must not be cut.
    pub(crate) fn check_unfinished(&self) -> Result<(), StorageError> {
        if self.was_written_to_its_end()? {
            let what = "a transaction whose two lengths differ";
            return Err(StorageError::corrupt(self.path, self.start, what));
        }
        let what = "a transaction that reaches past the end of the file, \
                    though whole transactions follow";
        self.check_nothing_follows(StorageError::corrupt(self.path, self.start, what))
    }

    /// For a tail that begins with something else than a transaction: gives `damage` back unless
    /// a crash explains it.
    pub(crate) fn check_zeroed(&self, damage: StorageError) -> Result<(), StorageError> {
        if !self.is_zeroed()? {
            return Err(damage);
        }
        self.check_nothing_follows(damage)
    }

    /// Whether the last bytes of the file are the length of a transaction that begins here, and
    /// its records fit. Then the header is what is wrong.
    fn was_written_to_its_end(&self) -> Result<bool, StorageError> {
        let mut header = [0; TRANSACTION_HEADER_BYTES];
        let Some(records_end) = self.end.checked_sub(POINTER_BYTES) else { return Ok(false) };
        if !self.read(&mut header, self.start)? {
            return Ok(false);
        }
        let mut header = TransactionHeader::parse(&header);
        let mut copy = [0; POINTER_BYTES as usize];
        let written = self.read(&mut copy, records_end)?
            && records_end.checked_sub(self.start) == Some(u64::from_be_bytes(copy));
        if !written || header.status == STATUS_CHECKPOINT {
            return Ok(false);
        }
        header.length = u64::from_be_bytes(copy);
        let entry = TransactionEntry { position: self.start, header };
        Ok(self.look().each_record(&entry, |_| ()).is_ok())
    }

    /// Whether the transaction that begins here is as it was written up to some byte, and zeros
    /// follow up to the end of the file.
    fn is_zeroed(&self) -> Result<bool, StorageError> {
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

    /// Where the zeros at the end of the file begin; the end when there are none.
    fn zeros_start(&self) -> Result<u64, StorageError> {
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

    /// Gives `damage` back when a whole transaction stands anywhere behind the start.
    fn check_nothing_follows(&self, damage: StorageError) -> Result<(), StorageError> {
        let mut window = vec![0; WINDOW_BYTES];
        let mut position = self.start + 1;
        while position.saturating_add(TRANSACTION_BYTES_MIN) <= self.end {
            let count = (self.end - position).min(WINDOW_BYTES as u64) as usize;
            let bytes = &mut window[..count];
            self.read(bytes, position)?;
            let starts = count - TRANSACTION_HEADER_BYTES + 1;
            for at in 0..starts {
                if self.may_begin(position + at as u64, &bytes[at..])
                    && self.begins(position + at as u64)
                {
                    return Err(damage);
                }
            }
            position += starts as u64;
        }
        Ok(())
    }

    /// Whether these bytes can be the header of a transaction at `position`.
    fn may_begin(&self, position: u64, bytes: &[u8]) -> bool {
        let length = u64_at(bytes, TransactionHeader::LENGTH_OFFSET as usize);
        let room = self.end - position;
        (TRANSACTION_BYTES_MIN - POINTER_BYTES..=room - POINTER_BYTES).contains(&length)
            && u64_at(bytes, 0) > self.last_tid.0
    }

    /// Whether a transaction with records begins there. Records name the position they are at, so
    /// that data which happen to hold a transaction are none.
    fn begins(&self, position: u64) -> bool {
        let mut scan = self.look();
        let Ok(Step::Transaction(entry)) = scan.transaction(position) else { return false };
        let mut records = 0;
        scan.each_record(&entry, |_| records += 1).is_ok() && records > 0
    }

    fn look(&self) -> Scan<'_> {
        Scan::with_window(self.path, Arc::clone(self.file), self.end, LOOK_BYTES)
    }

    /// `false` when the file ends before.
    fn read(&self, buffer: &mut [u8], position: u64) -> Result<bool, StorageError> {
        match self.file.read_exact_at(buffer, position) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(StorageError::io(self.path, "read", error)),
        }
    }
}
