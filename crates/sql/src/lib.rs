//! A storage in an SQL database, with the tables of a NEO storage node: SQLite, or MariaDB.
//!
//! Two things open such a database. [`NodeDatabase`] is that of a NEO storage node, with any cells
//! of a cluster. [`Database`] is a whole one, all of whose partitions are here; [`SqlStorage`] is a
//! kind of storage over it. Both are made of the same rows: transactions, revisions, data, votes.
//!
//! Key decision: the tables are NEO's, to the last column, since NEO/py opens the same files. What
//! serving needs besides is kept in memory, and read again when the database is opened.

#![forbid(unsafe_code)]

mod big;
mod cluster;
mod connection;
mod creation;
mod data;
mod database;
mod driver;
mod error;
mod held;
mod insertion;
mod locking;
mod node;
mod obstacle;
mod packing;
mod partitions;
mod place;
mod pool;
mod reads;
mod revisions;
mod schema;
mod storage;
mod transactions;
mod truncation;
mod votes;
mod writer;

pub use cluster::{Cell, Cluster, NewCluster};
pub use database::{Database, OpenDatabase};
pub use driver::{Error as StatementError, MariaAddress, MariaAddressError, MariaEngine};
pub use error::SqlError;
pub use node::{NodeDatabase, NodeOptions, ROOM_BYTES};
pub use partitions::Partitions;
pub use place::Location;
pub use revisions::RevisionRow;
pub use storage::{SqlOptions, SqlStorage};
pub use transactions::TransactionRow;
pub use votes::VotedRecord;
pub use writer::Writer;
pub use zodium_neo::StoredData;
