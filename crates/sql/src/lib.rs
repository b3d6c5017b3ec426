//! A storage in an SQLite database, with the tables of a NEO storage node.
//!
//! There are two levels. [`Database`] is a partitioned NEO database: votes, locks, unlocks, loads
//! and packs by partition, oid and tid. A NEO storage node uses it with its own partition table.
//! [`SqlStorage`] is a kind of storage over it: a whole database, all of whose partitions it
//! serves.
//!
//! Key decision: the tables are NEO's, to the last column, since NEO/py opens the same files. What
//! serving needs besides is kept in memory, and read again when the database is opened.

#![forbid(unsafe_code)]

mod cluster;
mod connection;
mod data;
mod database;
mod error;
mod held;
mod insertion;
mod locking;
mod node;
mod packing;
mod partitions;
mod place;
mod pool;
mod reads;
mod revisions;
mod schema;
mod storage;
mod transactions;
mod votes;
mod writer;

pub use cluster::{Cell, Cluster, NewCluster};
pub use data::StoredData;
pub use database::{Database, OpenDatabase};
pub use error::SqlError;
pub use node::{NodeDatabase, NodeOptions};
pub use partitions::Partitions;
pub use revisions::RevisionRow;
pub use storage::{SqlOptions, SqlStorage};
pub use transactions::TransactionRow;
pub use votes::VotedRecord;
pub use writer::Writer;
