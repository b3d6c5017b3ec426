//! A client for ZEO servers: answers loads from a cache where it can, and reads replies in the
//! thread that waits for them.
//!
//! [`Database::open`] takes the URL of a storage on a server; [`Database::open_with`] also that of
//! a file, with the kind of storage that reads it. A [`View`] shows the database as of one
//! transaction:
//!
//! ```
//! use std::sync::Arc;
//!
//! use zodium_client::Database;
//! use zodium_disk::RealDisk;
//! use zodium_filestorage::{FileStorage, OpenOptions};
//! use zodium_types::Oid;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("Data.fs");
//! # let options = OpenOptions::new(&path);
//! # FileStorage::open(Arc::new(RealDisk), &options).unwrap().close().unwrap();
//! # let url = format!("file://{}", path.display());
//! // Or "zeo://127.0.0.1:8100/1".
//! let database = Database::open_with(&url, |path| {
//!     let options = OpenOptions { read_only: true, create: false, ..OpenOptions::new(path) };
//!     Ok(Arc::new(FileStorage::open(Arc::new(RealDisk), &options)?))
//! })?;
//! let view = database.now()?;
//! match view.load(Oid::ROOT)? {
//!     Some(root) => println!("{} bytes since {}", root.data.len(), root.serial),
//!     None => println!("nothing has been stored yet"),
//! }
//! for transaction in database.iterate(None, None)? {
//!     let transaction = transaction?;
//!     println!("{}: {} records", transaction.tid, transaction.records.len());
//! }
//! # Ok::<(), zodium_client::ClientError>(())
//! ```
//!
//! A [`Client`] can also commit, prefetch, and report the commits of other clients.
//!
//! ```no_run
//! use zodium_client::{Client, Options, TransactionOptions};
//! use zodium_types::Tid;
//!
//! let client = Client::connect(Options::from_url("zeo://127.0.0.1:8100")?)?;
//! let mut transaction = client.begin(&TransactionOptions::default())?;
//! let oid = client.new_oid()?;
//! transaction.store(oid, Tid::ZERO, "a data record: two pickles".into())?;
//! if transaction.vote()?.conflicts.is_empty() {
//!     let tid = transaction.finish(|_| ())?;
//!     assert_eq!(client.load_current(oid)?.serial, tid);
//! } else {
//!     transaction.abort()?;
//! }
//! # Ok::<(), zodium_client::ClientError>(())
//! ```
//!
//! The data of a revision are a record of two pickles, exactly as stored; the crate `zodium-pickle`
//! reads them.

#![forbid(unsafe_code)]

mod blobs;
pub mod cache;
mod chunk;
mod client;
mod commit_turns;
mod connection;
mod connector;
mod database;
pub mod direct;
mod error;
mod exception;
mod idle;
mod input;
mod iterate;
mod keyed_mutex;
mod last_told;
mod log;
mod objects;
mod options;
mod outcome;
mod promise;
mod reading;
mod revision;
mod server_storage;
mod shared;
mod standing;
mod stored;
mod table;
#[cfg(test)]
mod tls_peers;
mod transaction;
mod url;
mod view;
mod warm_up;
#[cfg(test)]
mod warnings;
mod watcher;

pub use client::Client;
pub use database::{Database, Walk};
pub use error::ClientError;
pub use exception::Exception;
pub use iterate::{CommittedRecord, CommittedTransaction, Transactions};
pub use last_told::LastTold;
pub use log::{Extension, LogReader, TransactionHead};
pub use objects::CurrentObject;
pub use options::{Access, Options, TIMEOUT_MAX, TlsOptions, WarmUpList};
pub use outcome::{Outcome, Unfinished};
pub use revision::Revision;
pub use server_storage::ServerStorage;
pub use transaction::{StoreConflict, Transaction, TransactionOptions, Voted};
pub use view::View;
pub use watcher::Watcher;
pub use zodium_transport::{ConnectError, Interrupt};
