//! What a check finds, in words and as data.

use std::fmt;

use zodium_types::{Oid, Tid};

/// Something in a data file, or between it and its index, that no FileStorage writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Which part of the format does not fit.
    pub kind: DamageKind,
    /// Byte position in the data file of the transaction or record concerned.
    pub position: u64,
    /// What was found there.
    pub what: String,
    /// The object, where one is concerned.
    pub oid: Option<Oid>,
    /// The transaction, where it is known.
    pub tid: Option<Tid>,
}

/// The part of the format that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DamageKind {
    /// The file's first four bytes.
    Magic,
    /// A transaction: lengths, status, or bytes that no transaction can be made of.
    Transaction,
    /// A tid that is not later than the one before, or not that of its records.
    Tid,
    /// A record whose extent or identity is in doubt.
    Record,
    /// A field of a record that its transaction tells as well: tid or position.
    RecordField,
    /// The pointer to the object's previous record.
    Previous,
    /// The pointer of a record without data to the one that holds them.
    BackPointer,
    /// The end of the file, as a crash leaves it; cut at the next opening.
    Tail,
    /// The index file does not agree with the data.
    Index,
    /// Bytes that do not fit the checksum that was taken when they were written.
    Checksum,
    /// A reference to an object that is not there.
    Reference,
    /// A record of a blob that has no file in the blob directory.
    BlobMissing,
    /// A file in the blob directory that no record is of. It takes space, and does no harm.
    BlobOrphaned,
    /// A blob that is not as long as it was committed.
    BlobLength,
    /// A blob that does not hold the bytes that were committed, or that cannot be read.
    BlobSum,
    /// Data that are not the two pickles of a record, or an extension that is none.
    Pickle,
}

impl DamageKind {
    /// The name in JSON.
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
            DamageKind::BlobMissing => "blob-missing",
            DamageKind::BlobOrphaned => "blob-orphaned",
            DamageKind::BlobLength => "blob-length",
            DamageKind::BlobSum => "blob-sum",
        }
    }

    /// Whether something is lost or wrong.
    pub fn is_damage(self) -> bool {
        self != DamageKind::BlobOrphaned
    }

    /// Whether everything that was committed can be told in spite of it, since the format says
    /// it twice or it can be found out from the rest.
    pub(crate) fn is_mendable(self) -> bool {
        matches!(
            self,
            DamageKind::Tid
                | DamageKind::RecordField
                | DamageKind::Previous
                // Dealt with record by record.
                | DamageKind::BackPointer
        )
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            // It is nowhere in the data file.
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
