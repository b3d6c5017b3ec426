//! Checks the current records: whether they are pickles, and whether the objects that they refer to
//! exist.
//!
//! The file is read once more in its own order, without seeks.

use zodium_pickle::{
    PickleError, Reference, class_of_record, is_whole_pickle, references_of_record,
};
use zodium_types::Oid;

use super::CheckOptions;
use super::deleted::Deleted;
use super::paced::Paced;
use crate::format::{DATA_HEADER_BYTES, Damage, DamageKind};
use crate::read::Positions;
use crate::scan::{RecordLookup, SeenRecord, TransactionEntry, Walk};

/// The finding of the first record with compressed data.
const COMPRESSED: &str = "data that zc.zlibstorage has compressed. That is no damage, but \
    references in such data are not checked, and packs need `pack-gc off`";

/// The current records.
pub(crate) struct Objects<'a> {
    pub(crate) options: &'a CheckOptions<'a>,
    pub(crate) current: &'a Positions,
    pub(crate) deleted: &'a Deleted,
    pub(crate) lookup: RecordLookup,
    /// Whether a record with compressed data was reported; one tells of them all.
    pub(crate) has_compressed: bool,
}

impl Objects<'_> {
    /// Looks into each.
    pub(crate) fn check(&mut self, mut walk: Walk, report: &mut dyn FnMut(Damage)) {
        let mut paced = Paced::new(self.options.progress, walk.window.end());
        while let Some(piece) = walk.step() {
            paced.reach(piece.end);
            if let Some(transaction) = piece.transaction.filter(|_| self.options.pickles) {
                check_extension(&mut walk, &transaction, report);
            }
            for record in &piece.records {
                let entry = &record.entry;
                if self.current.position(entry.header.oid) == Some(entry.position) {
                    self.check_record(&mut walk, record, report);
                }
            }
        }
    }

    fn check_record(
        &mut self,
        walk: &mut Walk,
        record: &SeenRecord,
        report: &mut dyn FnMut(Damage),
    ) {
        let entry = record.entry;
        let behind;
        let data = match record.back {
            None => {
                let start = entry.position + DATA_HEADER_BYTES as u64;
                usize::try_from(entry.header.data_length)
                    .ok()
                    .and_then(|length| walk.window.bytes(start, length))
            }
            // A pointer that leads nowhere was reported already.
            Some(0) => None,
            Some(back) => {
                let source = self.lookup.source(back, entry.header.oid).flatten();
                behind = source.and_then(|source| self.lookup.data(&source));
                behind.as_deref()
            }
        };
        let Some(data) = data else { return };
        let (position, oid, tid) = (entry.position, Some(entry.header.oid), Some(entry.header.tid));
        let mut note = |kind, what| report(Damage { kind, position, what, oid, tid });
        let mut missing = Vec::new();
        let read = references_of_record(data, &mut |reference| {
            if let Reference::Strong(to) = reference
                && self.options.references
                && (self.current.position(to).is_none() || self.deleted.has(to))
                && !missing.contains(&to)
            {
                missing.push(to);
            }
        });
        if read == Err(PickleError::Compressed) {
            if !std::mem::replace(&mut self.has_compressed, true) {
                note(DamageKind::Compressed, COMPRESSED.to_owned());
            }
        } else if let Err(error) = read {
            note(DamageKind::Pickle, format!("data that cannot be read: {error}"));
        } else if self.options.pickles && class_of_record(data).is_none() {
            note(DamageKind::Pickle, "data that begin with no class".to_owned());
        }
        let class = class_of_record(data).filter(|_| !missing.is_empty());
        let class = class.map_or("unknown class".to_owned(), |class| class.to_string());
        for to in missing {
            note(DamageKind::Reference, self.describe(to, &class));
        }
    }

    fn describe(&self, to: Oid, class: &str) -> String {
        let why = if self.deleted.has(to) { "is deleted" } else { "does not exist" };
        format!("a reference from a {class} to object {to}, which {why}")
    }
}

/// Where the extension is no pickle, the log of what can be undone cannot be read.
fn check_extension(
    walk: &mut Walk,
    transaction: &TransactionEntry,
    report: &mut dyn FnMut(Damage),
) {
    let length = usize::from(transaction.header.extension_length);
    let start = transaction.records_start().saturating_sub(length as u64);
    let extension = walk.window.bytes(start, length).unwrap_or_default();
    if length > 0 && !is_whole_pickle(extension) {
        let what = "an extension that is no pickle".to_owned();
        let (kind, position) = (DamageKind::Pickle, transaction.position);
        report(Damage { kind, position, what, oid: None, tid: Some(transaction.tid()) });
    }
}
