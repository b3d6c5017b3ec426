//! A client of NEO clusters, as a kind of storage.
//!
//! It finds the primary master, keeps the partition table up to date, reads from storages that
//! have the object, and commits to all of them. The cluster decides about conflicts, tids and
//! order: see [`zodium_storage::Shared`].
//!
//! Key decision: threads that wait for an answer send their request themselves, and one thread for
//! each connection reads the answers. What can be decided without I/O is in modules of its own:
//! the routing, the stores of a transaction, and the order of commits.

#![forbid(unsafe_code)]

mod backup;
mod cache;
mod cluster;
mod commits;
mod connection;
mod connector;
mod error;
mod finish;
mod many;
mod options;
mod promise;
mod reading;
mod reads;
mod routing;
mod session;
mod storage;
mod storage_links;
mod stores;
mod transaction;

pub use error::NeoError;
pub use options::{Options, TlsFiles};
pub use storage::NeoStorage;
