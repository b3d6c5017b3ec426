//! The seam between the engine and the kinds of storage: the traits that a storage implements, and
//! the data that pass between the two.
//!
//! The engine decides which client may commit, and in which order. A storage keeps what was
//! committed. This crate knows oids, tids, records and revisions. It does not know files, positions
//! in files, sockets or sessions.
//!
//! Key decision: few object-safe traits, whose calls stand for a whole transaction or a batch of
//! them. A virtual call costs little beside a load, and one server can open several kinds of
//! storage.

#![forbid(unsafe_code)]

mod access;
mod apply;
mod cursor;
mod error;
mod follow;
mod freshness;
mod history;
mod load;
mod new_transaction;
mod pack;
mod read;
mod resident;
mod shared;
mod spool;
mod undo;
mod upkeep;
mod write;

pub use access::Access;
pub use apply::Applier;
pub use cursor::{RecordSource, SteppingCursor, TransactionSource};
pub use error::{Cause, StorageError};
pub use follow::{Follow, Follower};
pub use freshness::Freshness;
pub use history::{HistoryEntry, LogItem, RecordCursor, Transaction, TransactionCursor};
pub use history::{ObjectStep, TransactionRecord};
pub use load::{Load, Revision, Stamp, StoredRecord};
pub use new_transaction::{NewBody, NewRecord, NewTransaction};
pub use pack::{Pack, PackOptions, PackStep, Packed};
pub use read::Read;
pub use resident::{LOOKED_UP_TOGETHER, ResidentRevision, ResidentRevisions};
pub use shared::{Finished, Shared, SharedConflict, SharedTransaction, SharedWrite};
pub use spool::{Spool, SpooledData};
pub use undo::{Undo, UndoneRecord};
pub use upkeep::Upkeep;
pub use write::{Committed, Prepared, Storage, Write, WriteState};
pub use zodium_disk::Missed;
