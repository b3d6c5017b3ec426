//! A storage, wherever it is: on a server, or in a file.

use zodium_types::{Oid, Tid};

use crate::url::Place;
use crate::{Client, ClientError, CommittedTransaction, DataFile, Options, Revision, View};

/// A storage that a URL names.
pub enum Database {
    /// On a server.
    Server(Client),
    /// In a `Data.fs`, for reading.
    File(Box<DataFile>),
}

/// Transactions one after the other.
pub type Walk<'d> = Box<dyn Iterator<Item = Result<CommittedTransaction, ClientError>> + 'd>;

impl Database {
    /// Opens `zeo://HOST:PORT/STORAGE`, `zodium://` with the same, `zeo:///path/to/socket` (for
    /// parameters see [`Options::from_url`]) or `file:///path/to/Data.fs`.
    pub fn open(url: &str) -> Result<Database, ClientError> {
        match Place::from_url(url)? {
            Place::Server(options) => Database::connect(*options),
            Place::File(path) => DataFile::open(&path).map(|file| Database::File(Box::new(file))),
        }
    }

    /// Opens a storage on a server.
    pub fn connect(options: Options) -> Result<Database, ClientError> {
        Client::connect(options).map(Database::Server)
    }

    /// The last transaction that is known here.
    pub fn last_tid(&self) -> Tid {
        match self {
            Database::Server(client) => client.last_tid(),
            Database::File(file) => file.last_tid(),
        }
    }

    /// The database as it is known here now.
    pub fn now(&self) -> View<'_> {
        self.view(self.last_tid())
    }

    /// The database as it was after a transaction.
    pub fn view(&self, tid: Tid) -> View<'_> {
        View::new(self, tid)
    }

    /// The last revision of an object that a transaction before `before` wrote; `None`: it did not
    /// exist yet. [`ClientError::NoObject`]: it does not exist, or is deleted.
    pub fn load_before(&self, oid: Oid, before: Tid) -> Result<Option<Revision>, ClientError> {
        match self {
            Database::Server(client) => client.load_before(oid, before),
            Database::File(file) => file.load_before(oid, before),
        }
    }

    /// All transactions from `start` to `stop`, both included, oldest first.
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
