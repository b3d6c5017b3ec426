//! Follows the end of a data file that another program writes.
//!
//! Key decision: the file itself is read, without an index. So a program that only waits for
//! commits costs two system calls a look, however large the file is.

use std::sync::Arc;

use zodium_disk::{DiskFile, FileIdentity, OpenMode};
use zodium_types::{Oid, Tid, TransactionStatus};

use super::tids::Tids;
use crate::FileStorageError;
use crate::format::{DataFile, MAGIC_BYTES};
use crate::scan::{Scan, Step};

/// Bytes read at once.
const WINDOW_BYTES: usize = 64 << 10;

/// The transactions that are appended to a data file.
pub struct LogTail {
    file: Arc<DataFile>,
    log: Arc<dyn DiskFile>,
    identity: FileIdentity,
    /// Where the next transaction begins.
    position: u64,
    /// The transaction that ends there.
    tid_before: Tid,
    last_tid: Tid,
}

impl LogTail {
    /// Those behind `position`, up to which the tids are `tids`.
    pub(crate) fn new(
        file: Arc<DataFile>,
        log: Arc<dyn DiskFile>,
        position: u64,
        tids: Tids,
    ) -> Result<LogTail, FileStorageError> {
        let identity = identity_of(&file, log.as_ref())?;
        let Tids { last: tid_before, latest: last_tid, .. } = tids;
        Ok(LogTail { file, log, identity, position, tid_before, last_tid })
    }

    /// The latest transaction that was returned, or was there at the start.
    pub fn last_tid(&self) -> Tid {
        self.last_tid
    }

    /// The next transaction with its objects; `None` while there is none, or it is unfinished.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no transaction. A writer may be in the middle of them, so a
    /// caller may look once more.
    pub fn step(&mut self) -> Result<Option<(Tid, Vec<Oid>)>, FileStorageError> {
        if let Some(found) = self.read()? {
            return Ok(Some(found));
        }
        // A pack puts another file into its place.
        let path = &self.file.path;
        let status = self.file.disk.status(path);
        let status = status.map_err(|error| FileStorageError::io(path, "look at", error))?;
        if status.is_none_or(|status| status.identity == self.identity) {
            return Ok(None);
        }
        let log = self.file.disk.open(path, OpenMode::Read);
        self.log = log.map_err(|error| FileStorageError::io(path, "open", error))?;
        self.identity = identity_of(&self.file, self.log.as_ref())?;
        self.position = MAGIC_BYTES;
        self.read()
    }

    fn read(&mut self) -> Result<Option<(Tid, Vec<Oid>)>, FileStorageError> {
        let path = &self.file.path;
        let length = self.log.length();
        let length = length.map_err(|error| FileStorageError::io(path, "look at", error))?;
        if length == self.position {
            return Ok(None);
        }
        let mut scan = Scan::with_window(path, Arc::clone(&self.log), length, WINDOW_BYTES);
        if length < self.position || !self.is_continued(&mut scan)? {
            self.position = MAGIC_BYTES;
        }
        while let Step::Transaction(entry) = scan.transaction(self.position)? {
            let is_new = entry.tid() > self.last_tid;
            let counts = entry.status() != Some(TransactionStatus::Undone);
            let mut oids = Vec::new();
            if is_new && counts {
                scan.each_record(&entry, |record| oids.push(record.header.oid))?;
            }
            self.position = entry.next_position();
            self.tid_before = entry.tid();
            if is_new {
                self.last_tid = entry.tid();
                return Ok(Some((entry.tid(), oids)));
            }
        }
        Ok(None)
    }

    /// Whether what was read is still there. A copy may have been written over the file.
    fn is_continued(&self, scan: &mut Scan<'_>) -> Result<bool, FileStorageError> {
        match scan.transaction_before(self.position) {
            Ok(before) => Ok(before.is_none_or(|before| before.tid() == self.tid_before)),
            Err(FileStorageError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn identity_of(file: &DataFile, log: &dyn DiskFile) -> Result<FileIdentity, FileStorageError> {
    let status = log.status();
    let status = status.map_err(|error| FileStorageError::io(&file.path, "look at", error))?;
    Ok(status.identity)
}
