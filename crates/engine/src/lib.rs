//! The engine: decides which transaction may commit, in which order, and notifies the workers.
//!
//! Invariants:
//! - a transaction is published only after it is durable, and in the order of tids;
//! - every mailbox gets every commit, in tid order, after the commit is visible to loads;
//! - the storage is written by one thread; locks are never held over I/O.
//!
//! The engine knows no protocol: sessions pass transactions to it and get notices back.

#![forbid(unsafe_code)]

mod blobs;
mod clock_watch;
pub mod commit;
mod commit_table;
mod companion;
mod config;
mod conflict_room;
mod database;
mod expiry;
mod found_conflict;
mod group_commit_delay;
mod id_bounds;
mod log_writer;
mod metrics;
mod notice;
mod pack;
mod pack_status;
mod reopening;
mod resolve;
mod resolver;
mod shared;
mod spill;
mod subscribers;
mod transaction;
mod undo;
mod undoing;
mod upkeep;
mod vote;
mod vote_error;
mod write_progress;

pub use companion::{Claim, Companion};
pub use config::Config;
pub use database::Database;
pub use found_conflict::{FoundConflict, FoundConflicts};
pub use log_writer::LogWriter;
pub use metrics::StorageMetrics;
pub use notice::{Commit, Commits, Mailbox, Notice};
pub use pack_status::{PackEnd, PackRun, PackStatus};
pub use reopening::{Reopening, WriteFailure};
pub use resolver::{Merge, Resolver};
pub use spill::{Spill, Spilled};
pub use subscribers::Subscribers;
pub use transaction::{Transaction, Voted};
pub use vote::{Check, VoteStart};
pub use vote_error::VoteError;
