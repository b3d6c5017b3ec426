//! A client for ZEO servers: answers loads from a cache where it can, and reads replies in the
//! thread that waits for them.
//!
//! [`Database::open`] takes the URL of a storage on a server, or of a `Data.fs`. A [`View`] shows
//! the database as of one transaction:
//!
//! ```
//! use zodium_client::Database;
//! use zodium_types::Oid;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("Data.fs");
//! # let disk = std::sync::Arc::new(zodium_disk::RealDisk);
//! # let options = zodium_filestorage::OpenOptions::new(&path);
//! # zodium_filestorage::FileStorage::open(disk, &options).unwrap().close().unwrap();
//! # let url = format!("file://{}", path.display());
//! // Or "zeo://127.0.0.1:8100/1".
//! let database = Database::open(&url)?;
//! let view = database.now();
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
mod connection;
mod connector;
mod data_file;
mod database;
pub mod direct;
mod error;
mod exception;
mod idle;
mod input;
mod interrupt;
mod iterate;
mod keyed_mutex;
mod log;
mod objects;
mod options;
mod outcome;
mod promise;
mod reading;
mod revision;
mod shared;
mod socket;
mod table;
mod transaction;
mod transport;
mod url;
mod view;
mod watcher;

pub use client::Client;
pub use data_file::{DataFile, FileTransactions};
pub use database::{Database, Walk};
pub use error::ClientError;
pub use exception::Exception;
pub use interrupt::Interrupt;
pub use iterate::{CommittedRecord, CommittedTransaction, Transactions};
pub use log::{Extension, LogReader, TransactionHead};
pub use objects::CurrentObject;
pub use options::{Access, Options, TlsOptions};
pub use outcome::{Outcome, Unfinished};
pub use revision::Revision;
pub use socket::ConnectError;
pub use transaction::{StoreConflict, Transaction, TransactionOptions, Voted};
pub use view::View;
pub use watcher::Watcher;
