//! The database as of one transaction.

use zodium_types::{Oid, Tid};

use crate::{ClientError, Database, Revision};

/// A view of the database right after a transaction, whatever was committed since.
#[derive(Clone, Copy)]
pub struct View<'d> {
    database: &'d Database,
    tid: Tid,
}

impl<'d> View<'d> {
    pub(crate) fn new(database: &'d Database, tid: Tid) -> View<'d> {
        View { database, tid }
    }

    /// The transaction of the view.
    pub fn tid(self) -> Tid {
        self.tid
    }

    /// Loads an object as of the view; `None` if it did not exist.
    pub fn load(self, oid: Oid) -> Result<Option<Revision>, ClientError> {
        absent_or(self.database.load_before(oid, self.tid.next()))
    }

    /// Loads many objects as of the view, in the order of `oids`. Sends all requests to a server
    /// with one write.
    pub fn load_many(self, oids: &[Oid]) -> Result<Vec<Option<Revision>>, ClientError> {
        match self.database {
            Database::Server(client) => {
                client.load_many(oids, self.tid.next())?.into_iter().map(absent_or).collect()
            }
            Database::Stored(_) => oids.iter().map(|oid| self.load(*oid)).collect(),
        }
    }

    /// Starts loading the objects that are not in the cache, and does not wait for them.
    pub fn prefetch(self, oids: &[Oid]) {
        if let Database::Server(client) = self.database {
            client.prefetch(oids, self.tid.next());
        }
    }
}

fn absent_or(
    loaded: Result<Option<Revision>, ClientError>,
) -> Result<Option<Revision>, ClientError> {
    match loaded {
        Err(ClientError::NoObject(_)) => Ok(None),
        loaded => loaded,
    }
}
