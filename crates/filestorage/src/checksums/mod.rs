//! Checksums beside the log: `Data.fs.checksums` holds the CRC-32C of every record and of every
//! transaction's frame, since `Data.fs` itself has no room for any.
//!
//! An entry is written after the bytes it is of were synced. So it says two things: what they
//! are, and that they were durable; what does not fit is damage, and never a write cut short.
//! What has no entry is let through: coverage is a gain, its absence is not an error.
//!
//! Entries ascend by position and reach from the start of the log up to [`SideFile::end`]. What is
//! committed is added where they end; while they end earlier, because the file was found without,
//! or what they would be written to refused, [`Checksums::cover`] brings them up to the end again.
//!
//! Invariants:
//! - a failure here never fails a commit, an opening or a load;
//! - they are trusted only for a file that nobody else has written or replaced since the session
//!   that wrote them (`opening.rs`); else all are thrown away, and taken anew;
//! - an entry never vouches for bytes that were read while an entry of them existed.

mod batch;
mod comparison;
mod coverage;
mod damages;
mod distrust;
mod entry;
mod entry_stream;
mod evidence;
mod header;
mod opening;
mod passage;
mod repair;
mod side_file;
mod storage;
mod sums;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;
use zodium_disk::DiskFile;
use zodium_storage::Access;
use zodium_types::{Oid, Tid};

pub(crate) use batch::{Batch, RecordSum};
pub(crate) use comparison::Comparison;
pub(crate) use coverage::take_all;
pub(crate) use damages::Damages;
pub use distrust::Distrust;
pub(crate) use entry::{Entry, Part};
pub(crate) use evidence::Evidence;
pub(crate) use opening::{Opened, SUFFIX, open};
pub(crate) use passage::Passage;
pub(crate) use side_file::{Found, Page, SideFile};
pub use storage::ScrubPlace;
pub(crate) use writing::Writing;

use crate::FileStorageError;

/// What is done with checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumMode {
    /// They are written with each commit, and whatever is read from the file is held against them.
    Full,
    /// They are written, and the whole file is held against them now and then, but not each load.
    Commit,
    /// There is no side file.
    #[default]
    Off,
}

/// How far the checksums of a storage go, and what they have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumFigures {
    /// Bytes of the file that they cover.
    pub covered_bytes: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes that were read only to be held against them, since the file was opened.
    pub scrubbed_bytes: u64,
    /// Damaged places of the file, be it that they do not fit their checksums or the format; each
    /// counted once.
    pub damaged: u64,
}

/// What the checksums say of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is as it was written.
    Fits,
    /// Nothing: it has none, or loads are not held against them.
    Untold,
    /// Ask again with [`Access::Blocking`].
    Cold,
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

    /// Where the transaction begins that holds the record at `position`; `None` when the checksums
    /// do not tell.
    pub(crate) fn transaction_around(&self, position: u64) -> Option<u64> {
        let is_used = !self.writing.is_void();
        is_used.then(|| self.side().transaction_around(position)).flatten()
    }

    /// Where the record at `position` ends, in a transaction whose records end at `records_end`;
    /// `None` when the checksums do not tell.
    pub(crate) fn end_of_record(&self, position: u64, records_end: u64) -> Option<u64> {
        let is_used = !self.writing.is_void();
        is_used.then(|| self.side().end_of_record(position, records_end)).flatten()
    }

    pub(crate) fn writing(&self) -> &Writing {
        &self.writing
    }

    pub(crate) fn damages(&self) -> &Arc<Damages> {
        &self.damages
    }

    /// Whether what is read is held against them.
    pub(crate) fn verifies_loads(&self) -> bool {
        self.verifies_loads
    }

    /// Holds a record that was read from the log against its entry.
    pub(crate) fn verify_record(
        &self,
        log: Log<'_>,
        position: u64,
        oid: Oid,
        (header, body): (&[u8], &[u8]),
        access: Access,
    ) -> Result<Verdict, FileStorageError> {
        if !self.verifies_loads {
            return Ok(Verdict::Untold);
        }
        let entry = match self.side().find(position, access) {
            Found::Entry(entry) if entry.part == Part::Record => entry,
            Found::Entry(_) | Found::Uncovered => return Ok(Verdict::Untold),
            Found::Cold => return Ok(Verdict::Cold),
        };
        if crc32c::crc32c_append(crc32c::crc32c(header), body) == entry.sum {
            return Ok(Verdict::Fits);
        }
        if access == Access::Resident {
            // Why it does not fit takes reading more.
            return Ok(Verdict::Cold);
        }
        let what = format!("the record of object {oid} does not fit its checksum");
        match self.is_damage(log, position, Some(oid), None, &what) {
            true => Err(FileStorageError::corrupt(&self.path, position, what)),
            false => Ok(Verdict::Untold),
        }
    }

    /// Notes what does not fit at a position of the log, unless it shows that the log is another
    /// one: then the checksums are not used any more.
    pub(crate) fn is_damage(
        &self,
        log: Log<'_>,
        position: u64,
        oid: Option<Oid>,
        tid: Option<Tid>,
        what: &str,
    ) -> bool {
        let Log { file: data, end: length } = log;
        let evidence = Evidence { side: self.side(), path: &self.path, data, length };
        if !self.damages.contain(position) && evidence.is_of_another_log(position) {
            self.throw_away(position);
        }
        if self.writing.is_void() {
            return false;
        }
        self.damages.note(position, oid, tid, what);
        true
    }

    /// Uses them no more: at `position` the log has other transactions, one after the other.
    pub(crate) fn throw_away(&self, position: u64) {
        if !self.writing.is_void() {
            let reason = Distrust::OtherContents { position };
            warn!(file = %self.path.display(), %reason, "the checksums are not used any more");
            self.writing.void();
            self.damages.forget();
        }
    }
}

/// A log, for a second look at what does not fit.
#[derive(Clone, Copy)]
pub(crate) struct Log<'a> {
    pub(crate) file: &'a Arc<dyn DiskFile>,
    pub(crate) end: u64,
}
