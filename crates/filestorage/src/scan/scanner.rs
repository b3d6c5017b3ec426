//! Scans the log from one transaction to the next.

use std::io;
use std::path::Path;
use std::sync::Arc;

use zodium_disk::DiskFile;
use zodium_types::TransactionMetadata;

use super::damages::Damages;
use super::entries::{DataEntry, Step, TransactionEntry};
use super::sums::Sums;
use crate::FileStorageError;
use crate::format::{
    DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES, POINTER_BYTES, STATUS_CHECKPOINT,
    TRANSACTION_HEADER_BYTES, TransactionHeader, u64_at,
};

/// Bytes read at once on a scan forward.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;

/// Reads the headers of a file through a window that moves with the scan.
pub(crate) struct Scan<'a> {
    path: &'a Path,
    file: Arc<dyn DiskFile>,
    end: u64,
    window: Vec<u8>,
    window_start: u64,
    window_bytes: usize,
    /// Counter of damage, if everything up to `end` is committed: anything broken there is damage.
    pub(super) damages: Option<Arc<Damages>>,
    /// The checksums to verify records and transaction frames.
    pub(super) checksums: Option<Box<dyn Sums + 'a>>,
    /// Whether transactions are known to stand behind later ones.
    pub(super) tids_go_back: bool,
}

impl<'a> Scan<'a> {
    /// A scan that never reads past `end`.
    pub(crate) fn new(path: &'a Path, file: Arc<dyn DiskFile>, end: u64) -> Scan<'a> {
        Scan::with_window(path, file, end, WINDOW_BYTES)
    }

    /// A scan that reads `window_bytes` at once; use few for a single place.
    pub(crate) fn with_window(
        path: &'a Path,
        file: Arc<dyn DiskFile>,
        end: u64,
        window_bytes: usize,
    ) -> Scan<'a> {
        let (window, window_start) = (Vec::new(), 0);
        let (damages, checksums, tids_go_back) = (None, None, false);
        Scan {
            path,
            file,
            end,
            window,
            window_start,
            window_bytes,
            damages,
            checksums,
            tids_go_back,
        }
    }

    /// The same scan through committed transactions only. Each transaction must match its checksum.
    /// Without a checksum, its header must agree with its first record or the transactions around
    /// it. A mismatch is damage, is counted as such, and never ends the scan without an error.
    pub(crate) fn committed(
        mut self,
        checksums: Option<impl Sums + 'a>,
        damages: &Arc<Damages>,
        tids_go_back: bool,
    ) -> Scan<'a> {
        self.tids_go_back = tids_go_back;
        self.checksums = checksums.map(|checksums| Box::new(checksums) as Box<dyn Sums>);
        self.damages = Some(Arc::clone(damages));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.path
    }

    /// End of the scan. Later commits are behind it.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The transaction at `position`, with its framing checked.
    pub(crate) fn transaction(&mut self, position: u64) -> Result<Step, FileStorageError> {
        let entry = match self.header(position)? {
            Step::Transaction(entry) => entry,
            Step::Unfinished if self.damages.is_some() => {
                let what = "a committed transaction that is marked as unfinished, or reaches past \
                    the end of the log";
                return Err(self.damaged(position, what));
            }
            other => return Ok(other),
        };
        if self.length_copy(&entry)? != entry.header.length {
            return Err(self.damaged(position, "a transaction whose two lengths differ"));
        }
        self.verify_transaction(&entry)?;
        Ok(Step::Transaction(entry))
    }

    /// Reads the copy of the length at the end of a transaction. The scan reads the records next,
    /// so the window is moved to their start or left where it is.
    pub(crate) fn length_copy(
        &mut self,
        entry: &TransactionEntry,
    ) -> Result<u64, FileStorageError> {
        let (start, end) = (entry.position, entry.next_position());
        if !self.has(start, end) && end - start <= self.window_bytes as u64 {
            self.fill_from(start, 0)?;
        }
        if self.has(start, end) {
            return Ok(u64_at(self.expect_bytes(entry.records_end(), POINTER_BYTES as usize)?, 0));
        }
        let mut copy = [0; POINTER_BYTES as usize];
        let read = self.file.read_exact_at(&mut copy, entry.records_end());
        read.map_err(|error| self.unread(entry.position, error))?;
        Ok(u64::from_be_bytes(copy))
    }

    /// The transaction at `position`, without a check of the copy of its length.
    fn header(&mut self, position: u64) -> Result<Step, FileStorageError> {
        if position == self.end {
            return Ok(Step::End);
        }
        let Some(header) = self.chunk::<TRANSACTION_HEADER_BYTES>(position)? else {
            return Ok(Step::Unfinished);
        };
        let entry = TransactionEntry { position, header: TransactionHeader::parse(&header) };
        let length = entry.header.length;
        let beyond = position
            .checked_add(length)
            .and_then(|end| end.checked_add(POINTER_BYTES))
            .is_none_or(|next| next > self.end);
        if beyond || entry.header.status == STATUS_CHECKPOINT {
            return Ok(Step::Unfinished);
        }
        if length < entry.header.records_offset() {
            return Err(self.damaged(position, format!("a transaction of {length} bytes")));
        }
        if entry.status().is_none() {
            let status = char::from(entry.header.status);
            return Err(self.damaged(position, format!("transaction status {status:?}")));
        }
        Ok(Step::Transaction(entry))
    }

    /// The transaction that ends at `end`; `None` at the start of the file.
    pub(crate) fn transaction_before(
        &mut self,
        end: u64,
    ) -> Result<Option<TransactionEntry>, FileStorageError> {
        if end <= MAGIC_BYTES {
            return Ok(None);
        }
        let trailer = end.saturating_sub(POINTER_BYTES);
        if !self.has(trailer, end) {
            // A backward scan continues before this position.
            let start = end.saturating_sub(self.window_bytes as u64);
            self.fill(start, end)?;
        }
        let copy = self.chunk::<{ POINTER_BYTES as usize }>(trailer)?;
        let start = copy.and_then(|copy| trailer.checked_sub(u64_at(&copy, 0)));
        let Some(start) = start.filter(|start| *start >= MAGIC_BYTES) else {
            return Err(self.damaged(trailer, "a transaction length that reaches before the file"));
        };
        match self.header(start)? {
            // Its length need not be compared with the copy: the copy led to it.
            Step::Transaction(entry) if entry.next_position() == end => {
                self.verify_transaction(&entry)?;
                Ok(Some(entry))
            }
            _ => Err(self.damaged(start, "a transaction that does not end where the next begins")),
        }
    }

    /// The data record at `position` of a transaction.
    pub(crate) fn record(
        &mut self,
        position: u64,
        transaction: &TransactionEntry,
    ) -> Result<DataEntry, FileStorageError> {
        let Some(bytes) = self.chunk::<DATA_HEADER_BYTES>(position)? else {
            return Err(self.damaged(position, "the file ends inside a record"));
        };
        let header = DataHeader::parse(&bytes);
        let end = position.checked_add(header.record_bytes());
        let what = if end.is_none_or(|end| end > transaction.records_end()) {
            "a record that reaches past its transaction"
        } else if header.transaction != transaction.position {
            "a record that says it stands in another transaction"
        } else if header.tid != transaction.tid() {
            "a record whose tid is not its transaction's"
        } else if header.previous >= position {
            "a record that points forward"
        } else if header.version_length != 0 {
            "a record with a version (written by ZODB 3.8 or older)"
        } else {
            return Ok(DataEntry { position, header });
        };
        Err(self.damaged(position, what))
    }

    /// Calls `visit` with every record of a transaction in file order.
    pub(crate) fn each_record(
        &mut self,
        transaction: &TransactionEntry,
        mut visit: impl FnMut(&DataEntry),
    ) -> Result<(), FileStorageError> {
        self.try_each_record(transaction, |_, record| {
            visit(record);
            Ok(())
        })
    }

    /// As [`Scan::each_record`], for a `visit` that reads more and can fail.
    pub(crate) fn try_each_record(
        &mut self,
        transaction: &TransactionEntry,
        mut visit: impl FnMut(&mut Self, &DataEntry) -> Result<(), FileStorageError>,
    ) -> Result<(), FileStorageError> {
        let mut position = transaction.records_start();
        while position < transaction.records_end() {
            let record = self.record(position, transaction)?;
            self.verify_record(&record)?;
            visit(self, &record)?;
            position += record.header.record_bytes();
        }
        Ok(())
    }

    /// Reads `length` bytes of a record's data from `offset` on.
    pub(crate) fn data(
        &mut self,
        record: &DataEntry,
        offset: u64,
        length: usize,
    ) -> Result<&[u8], FileStorageError> {
        let within = offset.saturating_add(length as u64) <= record.header.data_length;
        assert!(within, "bytes of the record itself");
        self.expect_bytes(record.position + DATA_HEADER_BYTES as u64 + offset, length)
    }

    /// The back pointer of a record without data; 0 for a deletion.
    pub(crate) fn back_pointer(&mut self, record: &DataEntry) -> Result<u64, FileStorageError> {
        assert_eq!(record.header.data_length, 0, "a record without data");
        let position = record.position + DATA_HEADER_BYTES as u64;
        let back = u64_at(self.expect_bytes(position, POINTER_BYTES as usize)?, 0);
        if back >= record.position {
            return Err(self.damaged(record.position, format!("back pointer to {back}")));
        }
        Ok(back)
    }

    /// User, description and extension of a transaction as raw bytes.
    pub(crate) fn metadata_bytes(
        &mut self,
        entry: &TransactionEntry,
    ) -> Result<&[u8], FileStorageError> {
        let start = entry.position + TRANSACTION_HEADER_BYTES as u64;
        self.expect_bytes(start, entry.header.metadata_bytes() as usize)
    }

    /// User, description and extension of a transaction.
    pub(crate) fn metadata(
        &mut self,
        entry: &TransactionEntry,
    ) -> Result<TransactionMetadata, FileStorageError> {
        let start = entry.position + TRANSACTION_HEADER_BYTES as u64;
        let length = entry.header.metadata_bytes() as usize;
        let header = entry.header;
        let metadata = self.bytes(start, length)?.and_then(|bytes| header.metadata(bytes));
        metadata.ok_or_else(|| self.damaged(start, "the file ends inside a transaction header"))
    }

    /// Bytes at a position where a header states that there are some.
    pub(super) fn expect_bytes(
        &mut self,
        position: u64,
        length: usize,
    ) -> Result<&[u8], FileStorageError> {
        if position.checked_add(length as u64).is_none_or(|end| end > self.end) {
            return Err(self.damaged(position, "the file ends inside a record"));
        }
        Ok(self.bytes(position, length)?.unwrap_or_default())
    }

    #[inline]
    pub(super) fn chunk<const N: usize>(
        &mut self,
        position: u64,
    ) -> Result<Option<[u8; N]>, FileStorageError> {
        Ok(self.bytes(position, N)?.and_then(|bytes| bytes.try_into().ok()))
    }

    /// Bytes at a position; `None` when they reach past `end`.
    #[inline]
    fn bytes(&mut self, position: u64, length: usize) -> Result<Option<&[u8]>, FileStorageError> {
        let Some(end) = position.checked_add(length as u64).filter(|end| *end <= self.end) else {
            return Ok(None);
        };
        if !self.has(position, end) {
            self.fill_from(position, length)?;
        }
        let start = (position - self.window_start) as usize;
        Ok(self.window.get(start..start + length))
    }

    /// Whether the window holds the bytes from `start` to `end`.
    #[inline]
    fn has(&self, start: u64, end: u64) -> bool {
        let window_end = self.window_start + self.window.len() as u64;
        self.window_start <= start && end <= window_end
    }

    /// Moves the window forward, to at least `length` bytes if there are so many.
    fn fill_from(&mut self, start: u64, length: usize) -> Result<(), FileStorageError> {
        let wanted = self.window_bytes.max(length) as u64;
        self.fill(start, start.saturating_add(wanted).min(self.end))
    }

    /// Moves the window.
    fn fill(&mut self, start: u64, end: u64) -> Result<(), FileStorageError> {
        self.window.resize((end - start) as usize, 0);
        self.window_start = start;
        let read = self.file.read_exact_at(&mut self.window, start);
        if read.is_err() {
            self.window.clear();
        }
        read.map_err(|error| self.unread(start, error))
    }

    /// The error of a failed read: missing committed bytes are damage.
    fn unread(&self, position: u64, error: io::Error) -> FileStorageError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof if self.damages.is_some() => {
                self.damaged(position, "the file ends before what was committed")
            }
            _ => FileStorageError::io(self.path, "read", error),
        }
    }

    pub(super) fn damaged(&self, position: u64, what: impl Into<String>) -> FileStorageError {
        let what = what.into();
        if let Some(damages) = &self.damages {
            damages.note(position, None, None, &what);
        }
        FileStorageError::corrupt(self.path, position, what)
    }
}

#[cfg(test)]
mod tests;
