//! Scans the log from one transaction to the next.

use std::io;
use std::path::Path;
use std::sync::Arc;

use zodium_disk::DiskFile;
use zodium_storage::Access;
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::FileStorageError;
use crate::checksums::{Checksums, Damages, Found, Log, Page, Part};
use crate::format::{
    DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES, POINTER_BYTES, STATUS_CHECKPOINT,
    TRANSACTION_HEADER_BYTES, TransactionHeader, u64_at,
};

/// Bytes read at once on a scan forward.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;

/// A transaction found by a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionEntry {
    pub(crate) position: u64,
    pub(crate) header: TransactionHeader,
}

impl TransactionEntry {
    pub(crate) fn records_start(&self) -> u64 {
        self.position + self.header.records_offset()
    }

    /// End of the data records; the copy of the length follows.
    pub(crate) fn records_end(&self) -> u64 {
        self.position + self.header.length
    }

    pub(crate) fn next_position(&self) -> u64 {
        self.records_end() + POINTER_BYTES
    }

    pub(crate) fn status(&self) -> Option<TransactionStatus> {
        TransactionStatus::from_byte(self.header.status)
    }

    pub(crate) fn tid(&self) -> Tid {
        self.header.tid
    }
}

/// A data record found by a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataEntry {
    pub(crate) position: u64,
    pub(crate) header: DataHeader,
}

/// The finding of a scan at a position.
#[derive(Debug)]
pub(crate) enum Step {
    Transaction(TransactionEntry),
    /// The end of the scan.
    End,
    /// The file ends within the transaction that begins here, or it was voted and not finished.
    Unfinished,
}

/// Reads the headers of a file through a window that moves with the scan.
pub(crate) struct Scan<'a> {
    path: &'a Path,
    file: Arc<dyn DiskFile>,
    end: u64,
    window: Vec<u8>,
    window_start: u64,
    window_bytes: usize,
    /// Counter of damage, if everything up to `end` is committed: anything broken there is damage.
    damages: Option<Arc<Damages>>,
    /// The checksums to verify records and transaction frames.
    checksums: Option<(Arc<Checksums>, Box<Page>)>,
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
        let (damages, checksums) = (None, None);
        Scan { path, file, end, window, window_start, window_bytes, damages, checksums }
    }

    /// The same scan through committed transactions only. Each transaction must match its checksum.
    /// Without a checksum, its header must agree with its first record or the transactions around
    /// it. A mismatch is damage, is counted as such, and never ends the scan without an error.
    pub(crate) fn committed(
        mut self,
        checksums: Option<&Arc<Checksums>>,
        damages: &Arc<Damages>,
    ) -> Scan<'a> {
        let checksums = checksums.filter(|checksums| checksums.verifies_loads());
        self.checksums = checksums.map(|checksums| (Arc::clone(checksums), Page::empty()));
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
    fn verify_transaction(&mut self, entry: &TransactionEntry) -> Result<(), FileStorageError> {
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
        let Some((checksums, _)) = &self.checksums else { return Ok(()) };
        let log = Log { file: &self.file, end: self.end };
        match checksums.is_damage(log, position, oid, Some(tid), what) {
            true => Err(self.damaged(position, what)),
            false => Ok(()),
        }
    }

    /// Compares a header without a checksum with its first record, which names its transaction. If
    /// it has no record, its tid must be between those of the transactions around it.
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
        let before = match entry.position.checked_sub(POINTER_BYTES) {
            Some(trailer) if trailer >= MAGIC_BYTES => {
                let length = self.chunk(trailer)?.map_or(0, |copy: [u8; 8]| u64_at(&copy, 0));
                self.tid_at(trailer.saturating_sub(length))?
            }
            _ => None,
        };
        let next = self.tid_at(entry.next_position())?;
        let tid = entry.tid();
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
        let (checksums, page) = self.checksums.as_mut()?;
        match checksums.side().find_with(position, Access::Blocking, page) {
            Found::Entry(entry) if entry.part == part => Some(entry.sum),
            _ => None,
        }
    }

    /// Bytes at a position where a header states that there are some.
    fn expect_bytes(&mut self, position: u64, length: usize) -> Result<&[u8], FileStorageError> {
        if position.checked_add(length as u64).is_none_or(|end| end > self.end) {
            return Err(self.damaged(position, "the file ends inside a record"));
        }
        Ok(self.bytes(position, length)?.unwrap_or_default())
    }

    #[inline]
    fn chunk<const N: usize>(
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

    fn damaged(&self, position: u64, what: impl Into<String>) -> FileStorageError {
        let what = what.into();
        if let Some(damages) = &self.damages {
            damages.note(position, None, None, &what);
        }
        FileStorageError::corrupt(self.path, position, what)
    }
}
