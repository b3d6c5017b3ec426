//! A storage on a server or in a file.

use zodium_types::{Oid, Tid};

use crate::url::Place;
use crate::{Client, ClientError, CommittedTransaction, DataFile, Options, Revision, View};

/// A storage, opened by URL.
pub enum Database {
    /// A storage on a server.
    Server(Client),
    /// A `Data.fs`, opened for reading.
    File(Box<DataFile>),
}

/// Iterates over transactions.
pub type Walk<'d> = Box<dyn Iterator<Item = Result<CommittedTransaction, ClientError>> + 'd>;

impl Database {
    /// Opens `zeo://HOST:PORT/STORAGE`, `zodium://HOST:PORT/STORAGE`, `zeo:///path/to/socket` or
    /// `file:///path/to/Data.fs`. [`Options::from_url`] lists the parameters.
    pub fn open(url: &str) -> Result<Database, ClientError> {
        match Place::from_url(url)? {
            Place::Server(options) => Database::connect(*options),
            Place::File(path) => DataFile::open(&path).map(|file| Database::File(Box::new(file))),
        }
    }

    /// Connects to a storage on a server.
    pub fn connect(options: Options) -> Result<Database, ClientError> {
        Client::connect(options).map(Database::Server)
    }

    /// The last transaction known to this client.
    pub fn last_tid(&self) -> Tid {
        match self {
            Database::Server(client) => client.last_tid(),
            Database::File(file) => file.last_tid(),
        }
    }

    /// A view of the database as of the last known transaction.
    pub fn now(&self) -> View<'_> {
        self.view(self.last_tid())
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
            Database::File(file) => file.load_before(oid, before),
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
            Database::File(file) => Box::new(file.iterate(start, stop)?),
        })
    }
}
