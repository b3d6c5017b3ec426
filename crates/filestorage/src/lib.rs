//! FileStorage: ZODB's `Data.fs`, its index and its companions, byte for byte.
//!
//! Invariants:
//! - committed bytes are never changed in place: the log only grows, or is replaced by a rename;
//! - readers see only the published part of the log, and the published part is durable;
//! - everything beside `Data.fs` can be deleted: it is rebuilt from the log.
//!
//! [`FileStorage`] owns the parts. Their rooms, in the order of their imports: `sync`, `format`,
//! `scan`, `checksums`, `read`, `open`, `write`, `upkeep`, `pack`, `check`, `recover`. Each is used
//! through its `mod.rs` only. `storage` and `seam` come last.
//!
//! This crate deals with positions and bytes. The engine decides which transaction may commit, and
//! the protocol crates speak to the clients.

#![forbid(unsafe_code)]

mod check;
mod checksums;
mod error;
mod format;
mod open;
mod pack;
mod read;
mod reading;
mod recover;
mod scan;
mod seam;
mod storage;
mod sync;
#[cfg(test)]
#[cfg(not(loom))]
mod testing;
mod upkeep;
mod write;

pub use check::{
    BlobsToCheck, CheckOptions, Checked, CheckedBlobs, IndexVerdict, check, check_with_blobs,
};
pub use checksums::{ChecksumMetrics, ChecksumMode, Distrust};
pub use error::{FileChange, FileStorageError};
pub use format::{Damage, DamageKind, Magic};
pub use open::OpenOptions;
pub use pack::{DroppedRecord, Pack, Packer};
pub use read::{
    BlobSample, LogTail, NewestTransactions, OLD_LOGS_MAX, Place, PlacedTransaction, Reader,
    RecordCacheStatistics, RecordIterator, TransactionIterator,
};
pub use recover::{RecoverOptions, RecoveryKind, RecoveryNote, RecoverySummary, recover};
pub use storage::FileStorage;
pub use upkeep::ScrubPlace;
pub use write::{Appended, PreparedTransaction};
