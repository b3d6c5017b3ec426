//! A storage on a server or in this process.

use std::path::Path;
use std::sync::Arc;

use zodium_storage::{Read, StorageError};
use zodium_types::{Oid, Tid};

use crate::stored::{StoredTransactions, load_before};
use crate::url::Place;
use crate::{Client, ClientError, CommittedTransaction, Options, Revision, View};

/// A storage, wherever it is.
pub enum Database {
    /// A storage on a server.
    Server(Client),
    /// A storage that this process has opened.
    Stored(Arc<dyn Read>),
}

/// Iterates over transactions.
pub type Walk<'d> = Box<dyn Iterator<Item = Result<CommittedTransaction, ClientError>> + 'd>;

impl Database {
    /// Opens `zeo://HOST:PORT/STORAGE`, `zodium://HOST:PORT/STORAGE` or `zeo:///path/to/socket`.
    /// [`Options::from_url`] lists the parameters.
    pub fn open(url: &str) -> Result<Database, ClientError> {
        Options::from_url(url).and_then(Database::connect)
    }

    /// As [`Database::open`], and also `file:///path/to/Data.fs`, which `open_file` opens: any kind
    /// of storage that can be read.
    pub fn open_with(
        url: &str,
        open_file: impl FnOnce(&Path) -> Result<Arc<dyn Read>, StorageError>,
    ) -> Result<Database, ClientError> {
        match Place::from_url(url)? {
            Place::Server(options) => Database::connect(*options),
            Place::File(path) => {
                open_file(&path).map(Database::Stored).map_err(ClientError::options)
            }
        }
    }

    /// Connects to a storage on a server.
    pub fn connect(options: Options) -> Result<Database, ClientError> {
        Client::connect(options).map(Database::Server)
    }

    /// The last transaction known to this client. Waits for the first connection, as loads do.
    pub fn last_tid(&self) -> Result<Tid, ClientError> {
        match self {
            Database::Server(client) => client.last_tid_of_server(),
            Database::Stored(storage) => Ok(storage.last_tid()),
        }
    }

    /// A view of the database as of [`Database::last_tid`].
    pub fn now(&self) -> Result<View<'_>, ClientError> {
        self.last_tid().map(|tid| self.view(tid))
    }

    /// A view of the database as of a transaction.
    pub fn view(&self, tid: Tid) -> View<'_> {
        View::new(self, tid)
    }

    /// Loads the newest revision of an object written before transaction `before`; `None` if the
    /// object did not exist yet. Fails with [`ClientError::NoObject`] if it does not exist or is
    /// deleted.
    pub fn load_before(&self, oid: Oid, before: Tid) -> Result<Option<Revision>, ClientError> {
        match self {
            Database::Server(client) => client.load_before(oid, before),
            Database::Stored(storage) => load_before(storage.as_ref(), oid, before),
        }
    }

    /// Iterates over the transactions from `start` to `stop`, both included, oldest first.
    pub fn iterate<'d>(
        &'d self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Walk<'d>, ClientError> {
        Ok(match self {
            Database::Server(client) => Box::new(client.iterate(start, stop)?),
            Database::Stored(storage) => Box::new(StoredTransactions::new(storage, start, stop)?),
        })
    }
}
