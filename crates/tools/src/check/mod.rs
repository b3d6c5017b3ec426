//! Checks a storage of any kind by what it says: its log, its current objects, and their
//! references.
//!
//! Key decision: two passes. The first reads the log, and keeps of each object the transaction that
//! wrote it last. The second loads each object as a client does. What the two say has to agree.
//!
//! A storage may be packed meanwhile. So an object that is missing counts only if the log still has
//! its record.

mod log;
mod objects;
#[cfg(test)]
mod tests;

use zodium_pickle::is_compressed;
use zodium_storage::{Read, StorageError};
use zodium_types::{Oid, Tid};

use crate::ToolError;
use log::read_log;
use objects::load_objects;

/// What to check beside tids, serials and sizes.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogCheck {
    /// References of current objects to objects that do not exist.
    pub references: bool,
    /// Data of objects, and extensions, that are no pickles.
    pub pickles: bool,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// Which part.
    pub kind: LogDamageKind,
    /// The object, if it is one.
    pub oid: Option<Oid>,
    /// The transaction, if it is known.
    pub tid: Option<Tid>,
    /// Description of the finding.
    pub what: String,
}

/// The part of a storage that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDamageKind {
    /// The log cannot be read further.
    Log,
    /// A tid that is not later than the one before, or later than the last of the storage.
    Tid,
    /// A back pointer that does not lead to an earlier transaction.
    Record,
    /// A current object that cannot be loaded.
    Load,
    /// A current object with another serial, or other data, than the log has.
    Serial,
    /// A reference that leads nowhere.
    Reference,
    /// Data or an extension that is no pickle.
    Pickle,
    /// Data that zc.zlibstorage has compressed. They are sound, and cannot be looked into.
    Compressed,
}

impl LogDamageKind {
    /// A word for scripts.
    pub fn name(self) -> &'static str {
        match self {
            LogDamageKind::Log => "log",
            LogDamageKind::Tid => "tid",
            LogDamageKind::Record => "record",
            LogDamageKind::Load => "load",
            LogDamageKind::Serial => "serial",
            LogDamageKind::Reference => "reference",
            LogDamageKind::Pickle => "pickle",
            LogDamageKind::Compressed => "compressed",
        }
    }
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogChecked {
    /// Bytes of data.
    pub bytes: u64,
    /// Transactions.
    pub transactions: u64,
    /// Records.
    pub records: u64,
    /// Objects, deleted ones included.
    pub objects: u64,
    /// Places that are wrong.
    pub damages: u64,
}

/// The finding of the first record with compressed data.
const COMPRESSED: &str = "the data are compressed by zc.zlibstorage. That is no damage, but \
    references in such data are not checked, and packs need `pack-gc off`";

/// Hands damage on, and counts it.
struct Findings<'f> {
    found: &'f mut dyn FnMut(&LogDamage),
    damages: u64,
    /// Whether a record with compressed data was found; one tells of them all.
    has_compressed: bool,
}

impl Findings<'_> {
    /// Tells of data that are no pickles, or of the first that are compressed, which is no damage.
    fn no_pickles(&mut self, oid: Oid, tid: Tid, data: &[u8], what: &str) {
        if !is_compressed(data) {
            self.add(LogDamageKind::Pickle, Some(oid), Some(tid), what.to_owned());
        } else if !std::mem::replace(&mut self.has_compressed, true) {
            let (kind, what) = (LogDamageKind::Compressed, COMPRESSED.to_owned());
            (self.found)(&LogDamage { kind, oid: Some(oid), tid: Some(tid), what });
        }
    }

    fn add(&mut self, kind: LogDamageKind, oid: Option<Oid>, tid: Option<Tid>, what: String) {
        self.damages += 1;
        (self.found)(&LogDamage { kind, oid, tid, what });
    }

    /// Counts damage that a storage reports; other errors end the check.
    fn damage_or(
        &mut self,
        error: ToolError,
        kind: LogDamageKind,
        oid: Option<Oid>,
        tid: Option<Tid>,
    ) -> Result<(), ToolError> {
        match error {
            ToolError::Storage(StorageError::Corrupt(cause)) => {
                self.add(kind, oid, tid, cause.to_string());
                Ok(())
            }
            error => Err(error),
        }
    }
}

/// Checks a storage up to its last transaction. `advance` hears of bytes of data, `found` of each
/// place that is wrong.
///
/// # Errors
/// The storage cannot be read, for another reason than damage.
pub fn check_log(
    storage: &dyn Read,
    check: LogCheck,
    advance: &mut dyn FnMut(usize),
    found: &mut dyn FnMut(&LogDamage),
) -> Result<LogChecked, ToolError> {
    let mut findings = Findings { found, damages: 0, has_compressed: false };
    let last = storage.last_tid();
    let log = read_log(storage, last, check, advance, &mut findings)?;
    load_objects(storage, last, &log, check, advance, &mut findings)?;
    Ok(LogChecked { damages: findings.damages, ..log.checked })
}
