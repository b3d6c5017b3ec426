//! Reading connections, each for one reader at a time.
//!
//! A server may be away for a while, or have no connection left. A reader waits then, and takes a
//! connection that another reader returns.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use zodium_disk::FileIdentity;

use crate::SqlError;
use crate::connection::{self, Purpose};
use crate::driver::{self, Connection};
use crate::locking::{Lock, identity_of};
use crate::place::Place;

/// Most connections that wait for a reader. More readers at once open more for a while.
const IDLE_MAX: usize = 8;
/// Most readers that wait for a connection. Each waits on a thread that other storages need too.
const WAITING_MAX: usize = 32;
/// How long a reader waits for a connection to a file that has lost its name.
const CHANGED_MAX: Duration = Duration::from_secs(5);
/// Pause before another try to connect to a server.
const PAUSE: Duration = Duration::from_millis(500);

/// Connections that wait for a reader.
#[derive(Debug)]
pub(crate) struct Pool {
    place: Place,
    purpose: Purpose,
    /// The file that is locked.
    identity: Option<FileIdentity>,
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
    /// Connections to the database that is locked.
    pub(crate) fn new(place: Place, purpose: Purpose, lock: &Lock) -> Pool {
        let (identity, state) = (lock.identity(), Mutex::default());
        Pool { place, purpose, identity, state, returned: Condvar::new() }
    }

    /// Runs `read` with a connection. After an error the connection is not used again.
    pub(crate) fn with<T>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> driver::Result<T>,
    ) -> Result<T, SqlError> {
        let connection = self.take(|| false)?;
        let found = read(&connection).map_err(self.place.cannot(operation))?;
        let mut state = self.state.lock();
        state.failing = None;
        if state.idle.len() < IDLE_MAX {
            state.idle.push(connection);
            self.returned.notify_one();
        }
        Ok(found)
    }

    /// A connection that sees the database as it is now, for as long as it lives. If the server has
    /// none left, `make_room` is to close another one, if it can.
    pub(crate) fn snapshot(&self, make_room: impl FnMut() -> bool) -> Result<Connection, SqlError> {
        let connection = self.take(make_room)?;
        connection.begin_snapshot().map_err(self.place.cannot("begin to read"))?;
        Ok(connection)
    }

    fn take(&self, mut make_room: impl FnMut() -> bool) -> Result<Connection, SqlError> {
        loop {
            if let Some(idle) = self.state.lock().idle.pop() {
                return Ok(idle);
            }
            let opened = self.open();
            let has_room = opened.as_ref().is_err_and(SqlError::may_pass) && make_room();
            let mut state = self.state.lock();
            match opened {
                Err(_) if has_room => {}
                Err(error) if self.may_wait(&error, &mut state) => {}
                opened => return opened,
            }
            state.waiting += 1;
            self.returned.wait_while_for(&mut state, |state| state.idle.is_empty(), PAUSE);
            state.waiting -= 1;
        }
    }

    /// Opens a connection. Another file, put in the place of the one that is locked, is not read:
    /// connections that are open lead to the right one.
    fn open(&self) -> Result<Connection, SqlError> {
        // To open the other file would join it to the log of this one.
        self.check_name()?;
        let opened = connection::open(&self.place, self.purpose);
        self.check_name()?;
        opened
    }

    fn check_name(&self) -> Result<(), SqlError> {
        match self.place.file() {
            Some(path) if identity_of(path)? != self.identity => {
                Err(SqlError::Changed { path: path.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Whether a reader waits after a failure: not if there was none but failures for a while.
    fn may_wait(&self, error: &SqlError, state: &mut State) -> bool {
        let patience = match error {
            SqlError::Changed { .. } => CHANGED_MAX,
            error if error.may_pass() => {
                self.place.server().map_or(Duration::ZERO, |server| server.patience())
            }
            _ => return false,
        };
        let failing = state.failing.get_or_insert_with(Instant::now);
        failing.elapsed() < patience && state.waiting < WAITING_MAX
    }
}
