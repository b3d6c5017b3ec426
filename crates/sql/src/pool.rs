//! Reading connections, each for one reader at a time.

use parking_lot::Mutex;

use crate::SqlError;
use crate::connection::{self, Purpose};
use crate::driver::{self, Connection};
use crate::place::Place;

/// Most connections that wait for a reader. More readers at once open more for a while.
const IDLE_MAX: usize = 8;

/// Connections that wait for a reader.
#[derive(Debug)]
pub(crate) struct Pool {
    place: Place,
    purpose: Purpose,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub(crate) fn new(place: Place, purpose: Purpose) -> Pool {
        Pool { place, purpose, idle: Mutex::default() }
    }

    /// Runs `read` with a connection. After an error the connection is not used again.
    pub(crate) fn with<T>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> driver::Result<T>,
    ) -> Result<T, SqlError> {
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connection::open(&self.place, self.purpose)?,
        };
        let found = read(&connection).map_err(self.place.cannot(operation))?;
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        Ok(found)
    }

    /// A connection that sees the database as it is now, for as long as it lives.
    pub(crate) fn snapshot(&self) -> Result<Connection, SqlError> {
        let connection = connection::open(&self.place, self.purpose)?;
        connection.begin_snapshot().map_err(self.place.cannot("begin to read"))?;
        Ok(connection)
    }
}
