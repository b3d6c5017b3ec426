//! FileStorage: ZODB's `Data.fs`, its index and its companions, byte for byte.
//!
//! Invariants:
//! - committed bytes are never changed in place: the log only grows, or is replaced by a rename;
//! - readers see only the published part of the log, and the published part is durable;
//! - everything beside `Data.fs` can be deleted: it is rebuilt from the log.
//!
//! This crate deals with positions and bytes. The engine decides which transaction may commit, and
//! the protocol crates speak to the clients.

#![forbid(unsafe_code)]

mod append;
mod back_pointers;
mod blob_sample;
mod cached;
mod check;
mod checksums;
mod damage;
mod error;
mod foreign_change;
mod format;
mod index_file;
mod index_snapshot;
mod iterate;
mod last_writer;
mod load;
mod locking;
mod log;
mod log_bytes;
mod lost_sectors;
mod new_file;
mod old_logs;
mod open_options;
mod pack;
mod positions;
mod read_log;
mod recent;
mod record;
mod record_cache;
mod recover;
mod recovery;
mod reopening;
mod scan;
mod seam;
mod session_name;
mod set_aside;
mod sparse_tid_index;
mod storage;
mod sync;
mod tail;
mod tid_search;
mod torn;
mod undo;
mod upkeep;

pub use append::{Appended, NewBody, NewRecord, NewTransaction, Reservation};
pub use blob_sample::BlobSample;
pub use cached::{BorrowedRevision, BorrowedRevisions, CachedRevisions};
pub use check::{
    BlobsToCheck, CheckOptions, Checked, CheckedBlobs, IndexVerdict, check, check_with_blobs,
};
pub use checksums::{ChecksumFigures, ChecksumMode, Distrust, ScrubPlace};
pub use damage::{Damage, DamageKind};
pub use error::{FileChange, FileStorageError};
pub use format::Magic;
pub use iterate::{RecordIterator, Transaction, TransactionIterator};
pub use load::HistoryEntry;
pub use old_logs::OLD_LOGS_MAX;
pub use open_options::OpenOptions;
pub use pack::{DroppedRecord, Pack};
pub use record_cache::RecordCacheStatistics;
pub use recover::{RecoverOptions, RecoveryKind, RecoveryNote, RecoverySummary, recover};
pub use storage::FileStorage;
