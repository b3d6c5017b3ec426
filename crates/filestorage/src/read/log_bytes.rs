//! Reads the committed bytes of one generation of the data file, and verifies their checksums.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use zodium_disk::DiskFile;
use zodium_types::{Oid, Tid};

use super::tids::Tids;
use crate::FileStorageError;
use crate::checksums::{Checksums, Log, Verdict};
use crate::format::{DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES, POINTER_BYTES, u64_at};
use crate::reading::Reading;
use crate::scan::{Damages, Scan};

/// Bytes read first for a record whose length is unknown: most records fit.
const FIRST_READ_BYTES: usize = 4096 + DATA_HEADER_BYTES;

/// Longest record that is read to verify its checksum although its end is in doubt.
const DOUBTFUL_BYTES_MAX: usize = 16 << 20;
/// Bytes read behind a record: the next record's header up to its transaction field.
const FOLLOWING_BYTES: usize = DataHeader::TRANSACTION_OFFSET + POINTER_BYTES as usize;

/// Longest chain of back pointers that is followed. Only damaged files have longer ones.
const BACK_POINTERS_MAX: usize = 10_000;

/// The bytes of a generation, and the checksums to verify them.
pub(crate) struct LogBytes {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) checksums: Option<Arc<Checksums>>,
    pub(crate) damages: Arc<Damages>,
    /// Noted between the end and the end of the index, so that [`LogFile::settled`] can tell those
    /// of an end. Locked for a copy only.
    ///
    /// [`LogFile::settled`]: super::log::LogFile::settled
    tids: Mutex<Tids>,
    /// End of the committed bytes. The log writer stores it with Release once they are durable;
    /// readers load it with Acquire and never read past it.
    end: AtomicU64,
}

impl LogBytes {
    /// For a file whose committed bytes end at `end`.
    pub(crate) fn new(
        path: PathBuf,
        file: Arc<dyn DiskFile>,
        checksums: Option<Arc<Checksums>>,
        damages: Arc<Damages>,
        (end, tids): (u64, Tids),
    ) -> LogBytes {
        let (tids, end) = (Mutex::new(tids), AtomicU64::new(end));
        LogBytes { path, file, checksums, damages, tids, end }
    }

    /// Lets readers see the bytes up to `end`, which are durable.
    pub(crate) fn extend_to(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// What is known of the tids. A transaction that is just being published may be missing.
    pub(crate) fn tids(&self) -> Tids {
        *self.tids.lock()
    }

    /// Notes a transaction, to which the log was extended.
    pub(crate) fn note_tid(&self, tid: Tid) {
        self.tids.lock().note(tid);
    }

    /// Notes what a walk over the whole log has found.
    pub(crate) fn learn_tids(&self, all: Tids) {
        self.tids.lock().learn(all);
    }

    /// A scan of committed transactions up to `end`, whose headers must match their checksums.
    pub(crate) fn scan_to(&self, end: u64, window_bytes: usize) -> Scan<'_> {
        let sums = self.checksums.as_ref().and_then(|sums| sums.for_scan(&self.file, end));
        Scan::with_window(&self.path, Arc::clone(&self.file), end, window_bytes).committed(
            sums,
            &self.damages,
            self.tids().go_back,
        )
    }

    /// Follows back pointers from the record at `position` to the record that holds the data.
    ///
    /// Returns that record's position and data, or `(0, None)` for a deletion. The outer `None`
    /// means cold.
    pub(crate) fn data_behind(
        &self,
        mut position: u64,
        oid: Oid,
        access: Reading<'_>,
    ) -> Result<Option<(u64, Option<Bytes>)>, FileStorageError> {
        for _ in 0..BACK_POINTERS_MAX {
            if position == 0 {
                return Ok(Some((0, None)));
            }
            let Some(stored) = self.read_stored(position, oid, access)? else { return Ok(None) };
            match stored.body {
                Body::Data(data) => return Ok(Some((position, Some(data)))),
                Body::Back(back) => position = back,
            }
        }
        Err(self.damaged(position, "back pointers without end"))
    }

    /// The data of the record of `oid` at `position`, with back pointers followed; `None` for a
    /// deletion. May wait for the device.
    pub(crate) fn data_at(
        &self,
        position: u64,
        oid: Oid,
    ) -> Result<Option<Bytes>, FileStorageError> {
        let found = self.data_behind(position, oid, Reading::Blocking)?;
        Ok(found.and_then(|(_, data)| data))
    }

    /// The record as it is in the file.
    pub(crate) fn read_stored(
        &self,
        position: u64,
        oid: Oid,
        access: Reading<'_>,
    ) -> Result<Option<Stored>, FileStorageError> {
        let mut first = [0; FIRST_READ_BYTES];
        let count = self.read_some(&mut first, position, access)?.unwrap_or(0);
        let Some((start, rest)) = first[..count].split_first_chunk() else {
            return self.short_read(position, access);
        };
        let header = self.check_header(DataHeader::parse(start), position, oid)?;
        // `check_header` has verified that the record fits into the file.
        let body_bytes = (header.record_bytes() - DATA_HEADER_BYTES as u64) as usize;
        let end = position + header.record_bytes();
        let following_bytes = (self.end() - end).min(FOLLOWING_BYTES as u64) as usize;
        if let Some(bytes) = rest.get(..body_bytes + following_bytes) {
            let (body, following) = bytes.split_at(body_bytes);
            let ended = is_ended(&header, position, following);
            if !self.verify(position, oid, (start, body), ended, access)? {
                return Ok(None);
            }
            return self.stored(header, position, Bytes::copy_from_slice(body)).map(Some);
        }
        // Check this first: a wrong length must not make us allocate half the file.
        let mut following = [0; FOLLOWING_BYTES];
        let following = &mut following[..following_bytes];
        if !self.read(following, end, access)? {
            // What lies before it will be wanted next.
            let (unread, end) = (position + count as u64, end + following_bytes as u64);
            access.note(&*self.file, unread, usize::try_from(end - unread).unwrap_or(usize::MAX));
            return Ok(None);
        }
        let ended = is_ended(&header, position, following);
        if !ended && body_bytes > DOUBTFUL_BYTES_MAX {
            return Err(self.not_ended(position));
        }
        let mut body = vec![0; body_bytes];
        let (read, unread) = body.split_at_mut(rest.len().min(body_bytes));
        read.copy_from_slice(&rest[..read.len()]);
        if !self.read(unread, end - unread.len() as u64, access)? {
            return Ok(None);
        }
        if !self.verify(position, oid, (start, &body), ended, access)? {
            return Ok(None);
        }
        self.stored(header, position, body.into()).map(Some)
    }

    pub(crate) fn verifies(&self) -> bool {
        self.checksums.as_ref().is_some_and(|checksums| checksums.verifies_loads())
    }

    /// Verifies header and body of a record with its checksum; `false` when the checksum is cold.
    /// `ended` is used only without a checksum: a record that matches its checksum is whole,
    /// whatever the bytes behind it are.
    fn verify(
        &self,
        position: u64,
        oid: Oid,
        record: (&[u8], &[u8]),
        ended: bool,
        access: Reading<'_>,
    ) -> Result<bool, FileStorageError> {
        let log = Log { file: &self.file, end: self.end() };
        let checksums = self.checksums.as_ref();
        let verdict = checksums.map(|sums| sums.verify_record(log, position, oid, record, access));
        match verdict.unwrap_or(Ok(Verdict::Untold))? {
            Verdict::Fits => Ok(true),
            Verdict::WouldBlock => Ok(false),
            Verdict::Untold if ended => Ok(true),
            Verdict::Untold => Err(self.not_ended(position)),
        }
    }

    fn stored(
        &self,
        header: DataHeader,
        position: u64,
        body: Bytes,
    ) -> Result<Stored, FileStorageError> {
        if header.data_length > 0 {
            return Ok(Stored { header, body: Body::Data(body) });
        }
        let back = u64_at(&body, 0);
        if back >= position {
            return Err(self.damaged(position, format!("back pointer to {back}")));
        }
        Ok(Stored { header, body: Body::Back(back) })
    }

    fn not_ended(&self, position: u64) -> FileStorageError {
        self.damaged(position, "a record that does not end where another or none begins")
    }

    /// Fills the buffer; `false` when that would wait and access is non-blocking.
    pub(crate) fn read(
        &self,
        buffer: &mut [u8],
        position: u64,
        access: Reading<'_>,
    ) -> Result<bool, FileStorageError> {
        match access {
            Reading::Blocking => match self.file.read_exact_at(buffer, position) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(self.damaged(position, "the file ends inside a record"))
                }
                Err(error) => Err(FileStorageError::io(&self.path, "read", error)),
            },
            Reading::NonBlocking(_) => {
                let count = self.read_some(buffer, position, access)?.unwrap_or(0);
                let is_short = count < buffer.len();
                if is_short {
                    access.note(&*self.file, position + count as u64, buffer.len() - count);
                }
                Ok(!is_short)
            }
        }
    }

    fn read_some(
        &self,
        buffer: &mut [u8],
        position: u64,
        access: Reading<'_>,
    ) -> Result<Option<usize>, FileStorageError> {
        let result = match access {
            Reading::NonBlocking(_) => self.file.read_resident_at(buffer, position),
            Reading::Blocking => self.file.read_up_to(buffer, position).map(Some),
        };
        result.map_err(|error| FileStorageError::io(&self.path, "read", error))
    }

    /// A read ended early: cold if the rest may still be read, otherwise the file was cut.
    fn short_read(
        &self,
        position: u64,
        access: Reading<'_>,
    ) -> Result<Option<Stored>, FileStorageError> {
        match access {
            Reading::NonBlocking(_) => {
                access.note(&*self.file, position, FIRST_READ_BYTES);
                Ok(None)
            }
            Reading::Blocking => Err(self.damaged(position, "the file ends inside a record")),
        }
    }

    pub(crate) fn check_header(
        &self,
        header: DataHeader,
        position: u64,
        oid: Oid,
    ) -> Result<DataHeader, FileStorageError> {
        let fits = position.checked_add(header.record_bytes()).is_some_and(|end| end <= self.end());
        let what = if header.oid != oid {
            format!("a record of object {} was expected, found object {}", oid, header.oid)
        } else if position < MAGIC_BYTES || !fits {
            format!("a record of {} bytes reaches past the end", header.data_length)
        } else if header.previous >= position || header.transaction >= position {
            // A history that pointed forward could send its readers in a circle.
            "a record that points forward".to_owned()
        } else if header.version_length != 0 {
            "a record with a version (written by ZODB 3.8 or older)".to_owned()
        } else {
            return Ok(header);
        };
        Err(self.damaged(position, what))
    }

    /// Makes the error for damage in the log, and counts the damage. All errors about damage in
    /// committed bytes are made here or by the scans of `scan_to`.
    pub(crate) fn damaged(&self, position: u64, what: impl Into<String>) -> FileStorageError {
        let what = what.into();
        self.damages.note(position, None, None, &what);
        FileStorageError::corrupt(&self.path, position, what)
    }
}

/// Whether a record is followed by the next record of its transaction, or by the transaction's
/// length. Otherwise its length, its tid or its position in the transaction is wrong.
fn is_ended(header: &DataHeader, position: u64, following: &[u8]) -> bool {
    let end = position + header.record_bytes();
    let is_last = following.len() >= POINTER_BYTES as usize
        && u64_at(following, 0) == end - header.transaction;
    is_last
        || following.len() == FOLLOWING_BYTES
            && u64_at(following, DataHeader::TID_OFFSET) == header.tid.0
            && u64_at(following, DataHeader::TRANSACTION_OFFSET) == header.transaction
}

/// A record as written, with its back pointer not followed.
pub(crate) struct Stored {
    pub(crate) header: DataHeader,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Data(Bytes),
    /// Position of the record that holds the data; 0 for a deletion.
    Back(u64),
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use zodium_disk::MemoryDisk;

    use super::*;
    use crate::testing::{commit, open, stores};

    #[test]
    fn a_header_that_no_record_has_is_damaged() {
        let storage = open(MemoryDisk::new());
        commit(&storage, 1, stores("", &["data"]));
        let (log, oid) = (storage.reader().log(), Oid(1));
        let position = MAGIC_BYTES + 23;
        let sound = DataHeader {
            oid,
            tid: Tid(1),
            previous: 0,
            transaction: MAGIC_BYTES,
            version_length: 0,
            data_length: 4,
        };
        let told = |header, position| match log.check_header(header, position, oid) {
            Ok(found) => {
                assert_eq!(found, header);
                String::new()
            }
            Err(error) => error.to_string(),
        };
        let is_told = |header, position, what: &str| {
            let told = told(header, position);
            assert!(told.contains(what), "{told:?}, not {what:?}");
        };
        assert_eq!(told(sound, position), "");
        assert_eq!(log.damages.count(), 0);
        is_told(DataHeader { oid: Oid(2), ..sound }, position, "was expected, found object");
        // Up to the end, and one byte further.
        let rest = log.end() - position - DATA_HEADER_BYTES as u64;
        assert_eq!(told(DataHeader { data_length: rest, ..sound }, position), "");
        let longer = DataHeader { data_length: rest + 1, ..sound };
        is_told(longer, position, "reaches past the end");
        is_told(DataHeader { data_length: u64::MAX, ..sound }, position, "reaches past the end");
        is_told(sound, u64::MAX - 10, "reaches past the end");
        let first = DataHeader { transaction: 0, ..sound };
        assert_eq!(told(first, MAGIC_BYTES), "");
        is_told(first, MAGIC_BYTES - 1, "reaches past the end");
        for at in [position - 1, position, position + 1] {
            let what = if at < position { "" } else { "points forward" };
            is_told(DataHeader { previous: at, ..sound }, position, what);
            is_told(DataHeader { transaction: at, ..sound }, position, what);
        }
        let before = DataHeader { previous: position - 1, transaction: position - 1, ..sound };
        assert_eq!(told(before, position), "");
        is_told(DataHeader { version_length: 1, ..sound }, position, "a record with a version");
        assert!(log.damages.count() > 0, "each is counted");
    }

    #[test]
    fn a_record_is_ended_by_the_next_one_or_by_the_length_of_its_transaction() {
        let header = DataHeader {
            oid: Oid(1),
            tid: Tid(0x1122_3344_5566_7788),
            previous: 0,
            transaction: 1000,
            version_length: 0,
            data_length: 10,
        };
        let position = 1023;
        let length = (position + header.record_bytes() - 1000).to_be_bytes();
        assert!(is_ended(&header, position, &length));
        assert!(is_ended(&header, position, &[&length[..], &[7; 24]].concat()));
        assert!(!is_ended(&header, position, &length[..7]));
        assert!(!is_ended(&header, position + 1, &length));
        assert!(!is_ended(&header, position, &[]));
        let mut next = Vec::new();
        DataHeader { oid: Oid(2), data_length: 99, ..header }.write(&mut next);
        let next = &next[..FOLLOWING_BYTES];
        assert!(is_ended(&header, position, next));
        assert!(!is_ended(&header, position, &next[..FOLLOWING_BYTES - 1]));
        for at in 0..FOLLOWING_BYTES {
            let mut other = next.to_vec();
            other[at] ^= 1;
            // Its tid, and the position of its transaction.
            let is_told = (8..16).contains(&at) || (24..32).contains(&at);
            assert_eq!(is_ended(&header, position, &other), !is_told, "byte {at}");
        }
    }
}
