//! Findings of a check, as text and as data.

use std::fmt;

use zodium_types::{Oid, Tid};

/// A place in a data file, or between it and its index, that no FileStorage writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The part of the format that is wrong.
    pub kind: DamageKind,
    /// Byte position of the affected transaction or record in the data file.
    pub position: u64,
    /// Description of the finding.
    pub what: String,
    /// The affected object, if there is one.
    pub oid: Option<Oid>,
    /// The affected transaction, if it is known.
    pub tid: Option<Tid>,
}

/// The part of the format that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DamageKind {
    /// The file's first four bytes.
    Magic,
    /// A transaction: its lengths, its status, or bytes that cannot be a transaction.
    Transaction,
    /// A tid that is not later than the one before, or differs from the tid of its records.
    Tid,
    /// A record whose length or identity is in doubt.
    Record,
    /// A field of a record that contradicts its transaction: tid or position.
    RecordField,
    /// The pointer to the object's previous record.
    Previous,
    /// The pointer from a record without data to the record that holds the data.
    BackPointer,
    /// The unfinished end of the file after a crash; the next opening cuts it.
    Tail,
    /// The index file disagrees with the data.
    Index,
    /// Bytes that do not match the checksum taken when they were written.
    Checksum,
    /// A reference to a missing object.
    Reference,
    /// A blob's record without a file in the blob directory.
    BlobMissing,
    /// A file in the blob directory without a record. It takes space, and does no harm.
    BlobOrphaned,
    /// A blob whose length differs from the committed length.
    BlobLength,
    /// A blob that is unreadable, or whose bytes differ from the committed bytes.
    BlobSum,
    /// Data that are not the two pickles of a record, or an extension that is not a pickle.
    Pickle,
    /// Data that zc.zlibstorage has compressed. They are sound, and cannot be looked into.
    Compressed,
}

impl DamageKind {
    /// Name of the kind in JSON.
    pub fn name(self) -> &'static str {
        match self {
            DamageKind::Magic => "magic",
            DamageKind::Transaction => "transaction",
            DamageKind::Tid => "tid",
            DamageKind::Record => "record",
            DamageKind::RecordField => "record-field",
            DamageKind::Previous => "previous",
            DamageKind::BackPointer => "back-pointer",
            DamageKind::Tail => "tail",
            DamageKind::Index => "index",
            DamageKind::Checksum => "checksum",
            DamageKind::Reference => "reference",
            DamageKind::Pickle => "pickle",
            DamageKind::Compressed => "compressed",
            DamageKind::BlobMissing => "blob-missing",
            DamageKind::BlobOrphaned => "blob-orphaned",
            DamageKind::BlobLength => "blob-length",
            DamageKind::BlobSum => "blob-sum",
        }
    }

    /// Whether the kind means that data are lost or wrong.
    pub fn is_damage(self) -> bool {
        !matches!(self, DamageKind::BlobOrphaned | DamageKind::Compressed)
    }

    /// Whether all committed data can still be recovered: the format states the damaged value
    /// twice, or it follows from the rest.
    pub(crate) fn is_mendable(self) -> bool {
        matches!(
            self,
            DamageKind::Tid
                | DamageKind::RecordField
                | DamageKind::Previous
                // Handled record by record.
                | DamageKind::BackPointer
        )
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            // The file has no position in the data file.
            DamageKind::BlobOrphaned => write!(f, "{}", self.what)?,
            _ => write!(f, "{}: {}", self.position, self.what)?,
        }
        if let Some(oid) = self.oid {
            write!(f, ", object {oid}")?;
        }
        if let Some(tid) = self.tid {
            write!(f, ", transaction {tid}")?;
        }
        Ok(())
    }
}
