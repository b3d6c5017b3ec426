//! Reading connections, each for one reader at a time.
//!
//! A server may be away for a while, or have no connection left. A reader waits then, and takes a
//! connection that another reader returns.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::SqlError;
use crate::connection::{self, Purpose};
use crate::driver::{self, Connection};
use crate::place::Place;

/// Most connections that wait for a reader. More readers at once open more for a while.
const IDLE_MAX: usize = 8;
/// Pause before another try to connect to a server.
const PAUSE: Duration = Duration::from_millis(500);

/// Connections that wait for a reader.
#[derive(Debug)]
pub(crate) struct Pool {
    place: Place,
    purpose: Purpose,
    idle: Mutex<Vec<Connection>>,
    returned: Condvar,
}

impl Pool {
    pub(crate) fn new(place: Place, purpose: Purpose) -> Pool {
        Pool { place, purpose, idle: Mutex::default(), returned: Condvar::new() }
    }

    /// Runs `read` with a connection. After an error the connection is not used again.
    pub(crate) fn with<T>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> driver::Result<T>,
    ) -> Result<T, SqlError> {
        let connection = self.take()?;
        let found = read(&connection).map_err(self.place.cannot(operation))?;
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
            self.returned.notify_one();
        }
        Ok(found)
    }

    /// A connection that sees the database as it is now, for as long as it lives.
    pub(crate) fn snapshot(&self) -> Result<Connection, SqlError> {
        let connection = self.take()?;
        connection.begin_snapshot().map_err(self.place.cannot("begin to read"))?;
        Ok(connection)
    }

    fn take(&self) -> Result<Connection, SqlError> {
        let started = Instant::now();
        loop {
            if let Some(idle) = self.idle.lock().pop() {
                return Ok(idle);
            }
            let opened = connection::open(&self.place, self.purpose);
            let patience = self.place.server().map_or(Duration::ZERO, |server| server.patience());
            match opened {
                Err(error) if error.may_pass() && started.elapsed() < patience => {}
                opened => return opened,
            }
            let mut idle = self.idle.lock();
            self.returned.wait_while_for(&mut idle, |idle| idle.is_empty(), PAUSE);
        }
    }
}
