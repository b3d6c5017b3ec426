//! A NEO storage node as a state machine: no sockets, no database, no clock, no threads.
//!
//! A [`Node`] is told what happens: connections open and close, packets arrive, jobs complete. It
//! answers with [`Output`]s: addresses to dial, bytes to send, connections to close, jobs to run.
//! A driver connects it with sockets and with a database.
//!
//! Key decision: a job is a closure over a trait of the database, [`Reads`] or [`Writes`]. Its
//! result is a [`Completion`], which the driver hands back. So the node says in one place what it
//! asks of the database, and what it does with the outcome; it never waits for either.

#![forbid(unsafe_code)]

mod checking;
mod cluster;
mod commits;
mod counts;
mod database;
mod identification;
mod links;
mod master;
mod members;
mod node;
mod packing;
mod phase;
mod reads;
mod replication;
mod settings;
mod status;
mod sums;

pub use counts::Counts;
pub use database::{
    CellProgress, Data, DatabaseError, Found, LastIds, Loaded, NewRecord, NewTransaction,
    PackObjects, PackRow, ReadResult, Reads, Record, Spool, Spooled, TableChange,
    TransactionRecord, Undone, Voted, Writes,
};
pub use links::{Completion, Exit, Output, ReadJob, Store, WriteJob};
pub use node::Node;
pub use reads::RECORDS_BYTES_MAX;
pub use settings::{Saved, Settings, TRANSACTION_BYTES_MAX};
pub use status::{CellStatus, ConnectionCounts, Missing, State, Status, TransactionCounts};
pub use zodium_neo::ConnectionId;
use zodium_neo::handling;
