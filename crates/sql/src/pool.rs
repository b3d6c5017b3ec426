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
/// Most readers that wait for a connection. Each waits on a thread that other storages need too.
const WAITING_MAX: usize = 32;
/// Pause before another try to connect to a server.
const PAUSE: Duration = Duration::from_millis(500);

/// Connections that wait for a reader.
#[derive(Debug)]
pub(crate) struct Pool {
    place: Place,
    purpose: Purpose,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Connection>,
    /// Readers that wait.
    waiting: usize,
    /// Since when a connection could not be made, unless a reader has had one since.
    failing: Option<Instant>,
}

impl Pool {
    pub(crate) fn new(place: Place, purpose: Purpose) -> Pool {
        Pool { place, purpose, state: Mutex::default(), returned: Condvar::new() }
    }

    /// Runs `read` with a connection. After an error the connection is not used again.
    pub(crate) fn with<T>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> driver::Result<T>,
    ) -> Result<T, SqlError> {
        let connection = self.take()?;
        let found = read(&connection).map_err(self.place.cannot(operation))?;
        let mut state = self.state.lock();
        state.failing = None;
        if state.idle.len() < IDLE_MAX {
            state.idle.push(connection);
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
        loop {
            if let Some(idle) = self.state.lock().idle.pop() {
                return Ok(idle);
            }
            let opened = connection::open(&self.place, self.purpose);
            let mut state = self.state.lock();
            match opened {
                Err(error) if error.may_pass() && self.may_wait(&mut state) => {}
                opened => return opened,
            }
            state.waiting += 1;
            self.returned.wait_while_for(&mut state, |state| state.idle.is_empty(), PAUSE);
            state.waiting -= 1;
        }
    }

    /// Whether a reader waits after a failure: not if there was none but failures for a while.
    fn may_wait(&self, state: &mut State) -> bool {
        let patience = self.place.server().map_or(Duration::ZERO, |server| server.patience());
        let failing = state.failing.get_or_insert_with(Instant::now);
        failing.elapsed() < patience && state.waiting < WAITING_MAX
    }
}
