//! The blob directory: large data of `ZODB.blob.Blob` objects, one file for each revision, laid
//! out as ZODB's `blob.py` does.
//!
//! Key decision: a blob's file stands in its final folder, synced, before its transaction counts
//! as voted; committing it is one rename within that folder. A durable list of what a transaction
//! brings (`intent.rs`) lets the next opening take back what was renamed for a transaction that
//! never came into the log.
//!
//! This crate knows files and the oids and tids in their names. It asks the storage whether a
//! transaction is committed ([`CommittedRecords`]), and does not know where records are kept.

#![forbid(unsafe_code)]

mod blob_record;
mod cleaner;
mod complaints;
mod damaged;
mod directory;
mod error;
mod fingerprint;
mod folders;
mod intent;
mod layout;
mod packed;
mod presence;
mod reading;
mod staged;
mod sums;
mod survey;
mod temporary;

pub use blob_record::is_blob_record;
pub use directory::BlobDirectory;
pub use error::BlobError;
pub use fingerprint::Fingerprint;
pub use intent::CommittedRecords;
pub use layout::BlobLayout;
pub use packed::PackedBlobs;
pub use reading::{BlobReading, CommittedBlob};
pub use staged::{NewBlob, StagedBlobs};
pub use temporary::TemporaryBlob;
