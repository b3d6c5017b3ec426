//! The commit state machine: object locks, the conflict check, the order of transactions.
//!
//! Key decision: everything here is a pure function of the calls made. There is no I/O, no thread
//! and no clock (time is an argument), so one seed replays any interleaving: see
//! `tests/commit_model.rs`. The live engine keeps one [`CommitMachine`] behind a short mutex.
//!
//! The states of a transaction (before its first vote it is unknown here):
//!
//! ```text
//!          vote            (granted)           voted         finish        next_batch
//! (open) -------> Waiting -----------> Checking ----> Voted -------> Ready ----------> Writing
//!    ^                                   |                                               |
//!    '-------------- refuse -------------'               published, or write_failed: over'
//! ```
//!
//! `abort` ends a transaction in any state up to `Voted`; from `Ready` on it is too late. A client
//! that meets conflicts (`Resolving`) and gives up may keep its locks (`Reserved`) for its next
//! transaction, for a short time.
//!
//! This module must not know: files, positions, records, protocols, threads.

#![forbid(unsafe_code)]

mod conflict;
mod key_queue;
mod lock_set;
mod lock_table;
mod machine;
mod number;

pub use conflict::{Conflict, ConflictKind, ObjectRead, ObjectWrite, WriteKind, check};
pub use lock_set::{LockKey, LockMode, LockSet};
pub use lock_table::{LockAnswer, LockTable, LockWait};
pub use machine::{
    AbortOutcome, CommitError, CommitMachine, CommitState, CommitStatus, WriteFailure,
};
pub use number::TransactionNumber;
