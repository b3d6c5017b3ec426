//! Checksums beside the log: `Data.fs.checksums` holds the CRC-32C of every record and of every
//! transaction's frame, since `Data.fs` itself has no room for any.
//!
//! An entry is written after the bytes that it covers were synced. So it says two things: what
//! they are, and that they were durable. A mismatch is damage, and never an unfinished write.
//! Bytes without an entry are accepted: coverage is a gain, its absence is not an error.
//!
//! Entries ascend by position and cover the log from its start up to [`SideFile::end`]. Commits add
//! theirs if the log was covered up to its end. If it was not, because the file had no checksums or
//! entries could not be written, [`Checksums::cover`] computes the missing ones.
//! docs/format.md defines the file.
//!
//! Invariants:
//! - a failure here never fails a commit, an opening or a load;
//! - entries are trusted only if no other program has written or replaced the file since the
//!   session that wrote them (`opening.rs`); otherwise all are discarded and computed again;
//! - an entry is never computed from bytes that have one already.

mod batch;
mod checksummed_log;
mod comparison;
mod coverage;
mod distrust;
mod entry;
mod entry_stream;
mod header;
mod last_writer;
mod opening;
mod passage;
mod repair;
mod scan_sums;
mod session_name;
mod side_file;
mod sums;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;
use zodium_disk::DiskFile;
use zodium_types::{Oid, Tid};

pub(crate) use batch::{Batch, RecordSum};
pub(crate) use checksummed_log::ChecksummedLog;
pub(crate) use comparison::Comparison;
pub(crate) use coverage::take_all;
pub use distrust::Distrust;
pub(crate) use entry::Entry;
pub(crate) use opening::{Opened, SUFFIX, are_of_transactions, keep_later_version, open};
pub(crate) use passage::Passage;
pub(crate) use session_name::SessionName;
pub(crate) use side_file::{Found, SideFile};
pub(crate) use writing::Writing;

use crate::FileStorageError;
use crate::format::Damage;
use crate::reading::Reading;
use crate::scan::{Damages, Part};

/// How checksums are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumMode {
    /// They are written with each commit, and all bytes read from the file are compared with them.
    Full,
    /// They are written, and the whole file is compared with them at intervals, but not each load.
    Commit,
    /// There is no side file.
    #[default]
    Off,
}

/// Metrics of the checksums of a storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumMetrics {
    /// Bytes of the file that they cover.
    pub covered_bytes: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes read only for the comparison, since the file was opened.
    pub scrubbed_bytes: u64,
    /// Damaged places of the file, by their checksums or by the format; each is counted once.
    pub damaged: u64,
}

/// The result of comparing a record with its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It matches.
    Fits,
    /// It has no checksum, or loads are not compared.
    Untold,
    /// The entry must be read from the disk: ask again with [`Reading::Blocking`].
    WouldBlock,
}

/// The checksums of one generation of the log.
#[derive(Debug)]
pub(crate) struct Checksums {
    /// The data file.
    path: PathBuf,
    verifies_loads: bool,
    writing: Writing,
    damages: Arc<Damages>,
}

impl Checksums {
    pub(crate) fn new(path: &Path, mode: ChecksumMode, writing: Writing) -> Checksums {
        let damages = Arc::new(Damages::new(path));
        let verifies_loads = mode == ChecksumMode::Full;
        Checksums { path: path.to_owned(), verifies_loads, writing, damages }
    }

    pub(crate) fn side(&self) -> &SideFile {
        self.writing.side()
    }

    /// The position of the transaction that contains the record at `position`; `None` if the
    /// checksums do not show it.
    pub(crate) fn transaction_around(&self, position: u64) -> Option<u64> {
        let is_used = !self.writing.is_void();
        is_used.then(|| self.side().transaction_around(position)).flatten()
    }

    /// The end of the record at `position`, in a transaction whose records end at `records_end`;
    /// `None` if the checksums do not show it.
    pub(crate) fn end_of_record(&self, position: u64, records_end: u64) -> Option<u64> {
        let is_used = !self.writing.is_void();
        is_used.then(|| self.side().end_of_record(position, records_end)).flatten()
    }

    pub(crate) fn note(&self, damage: &Damage) {
        self.damages.note(damage.position, damage.oid, damage.tid, &damage.what);
    }

    pub(crate) fn writing(&self) -> &Writing {
        &self.writing
    }

    pub(crate) fn damages(&self) -> &Arc<Damages> {
        &self.damages
    }

    /// Whether loads are compared with them.
    pub(crate) fn verifies_loads(&self) -> bool {
        self.verifies_loads
    }

    /// Compares a record that was read from the log with its entry.
    pub(crate) fn verify_record(
        &self,
        log: Log<'_>,
        position: u64,
        oid: Oid,
        (header, body): (&[u8], &[u8]),
        access: Reading<'_>,
    ) -> Result<Verdict, FileStorageError> {
        if !self.verifies_loads {
            return Ok(Verdict::Untold);
        }
        let entry = match self.side().find(position, access) {
            Found::Entry(entry) if entry.part == Part::Record => entry,
            Found::Entry(_) | Found::Uncovered => return Ok(Verdict::Untold),
            Found::WouldBlock => return Ok(Verdict::WouldBlock),
        };
        if crc32c::crc32c_append(crc32c::crc32c(header), body) == entry.sum {
            return Ok(Verdict::Fits);
        }
        if !access.may_wait() {
            // Finding the reason takes more reads.
            return Ok(Verdict::WouldBlock);
        }
        let what = format!("the record of object {oid} does not fit its checksum");
        match self.is_damage(log, position, Some(oid), None, &what) {
            true => Err(FileStorageError::corrupt(&self.path, position, what)),
            false => Ok(Verdict::Untold),
        }
    }

    /// Notes a mismatch at a position of the log. If it shows that the checksums belong to another
    /// log, they are not used any more, and the result is false.
    pub(crate) fn is_damage(
        &self,
        log: Log<'_>,
        position: u64,
        oid: Option<Oid>,
        tid: Option<Tid>,
        what: &str,
    ) -> bool {
        let Log { file: data, end: length } = log;
        let checksummed = ChecksummedLog { side: self.side(), path: &self.path, data, length };
        if !self.damages.contain(position) && checksummed.is_of_another_log(position) {
            self.throw_away(position);
        }
        if self.writing.is_void() {
            return false;
        }
        self.damages.note(position, oid, tid, what);
        true
    }

    /// Discards all checksums: at `position` the log has other transactions than they were
    /// computed from.
    pub(crate) fn throw_away(&self, position: u64) {
        if !self.writing.is_void() {
            let reason = Distrust::OtherContents { position };
            warn!(file = %self.path.display(), %reason, "the checksums are not used any more");
            self.writing.void();
            self.damages.forget();
        }
    }
}

/// A log, for a second look at a mismatch.
#[derive(Clone, Copy)]
pub(crate) struct Log<'a> {
    pub(crate) file: &'a Arc<dyn DiskFile>,
    pub(crate) end: u64,
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use zodium_disk::MemoryDisk;

    use super::*;
    use crate::testing::{bytes_of, commit, open, stores};

    #[test]
    fn a_record_is_compared_with_the_entry_of_its_position_if_that_is_of_a_record() {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        commit(&storage, 1, stores("about", &["first", "second"]));
        let (bytes, log) = (bytes_of(&disk), storage.reader().log());
        let checksums = log.checksums.as_ref().unwrap();
        let [frame, record, _] = [0, 1, 2].map(|number| checksums.side().entry(number).unwrap());
        let all = &bytes[record.position as usize..][..42 + 5];
        let verify = |position, bytes: &[u8], access| {
            let at = Log { file: &log.file, end: log.end() };
            checksums.verify_record(at, position, Oid(1), bytes.split_at(42), access)
        };
        let accesses = [Reading::Blocking, Reading::NonBlocking(None)];
        for access in accesses {
            assert_eq!(verify(record.position, all, access).unwrap(), Verdict::Fits);
            // There is no entry of a record.
            for position in [frame.position, record.position + 1, log.end(), log.end() + 50] {
                assert_eq!(verify(position, all, access).unwrap(), Verdict::Untold);
            }
        }
        for at in [0, 41, 42, 46] {
            let mut wrong = all.to_vec();
            wrong[at] ^= 1;
            let found = verify(record.position, &wrong, Reading::NonBlocking(None)).unwrap();
            assert_eq!(found, Verdict::WouldBlock, "the reason takes more reads");
            verify(record.position, &wrong, Reading::Blocking).unwrap_err();
        }
        assert_eq!(checksums.damages().count(), 1);
    }
}
