//! A connection that outlives its sessions.
//!
//! After a lost session, a deadlock, or a refusal of a cluster's node, it connects again where a
//! host answers, and repeats the transaction. Callers notice a pause.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Row, Value};
use rustc_hash::FxHashMap;
use tracing::{info, warn};

use super::failure::{self, Failure};
use super::fence::{self, Fence};
use super::server::Current;
use super::session::{Former, Session};
use super::transaction::Transaction;
use super::{MariaPurpose, MariaServer, Translated};
use crate::driver::{Error, Result};

/// Pause before another try: the first one, and the longest.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a transaction waits for what another session has locked: a dump locks all tables.
const LOCKED_MAX: Duration = Duration::from_secs(1800);
/// Statements whose translation is kept.
const STATEMENTS: usize = 256;

/// A connection to the server of a database.
#[derive(Debug)]
pub(crate) struct MariaConnection {
    server: Arc<MariaServer>,
    purpose: MariaPurpose,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    session: Option<Session>,
    /// The host of the session.
    host: usize,
    /// The host and the number of the last session that had the lock.
    former: Option<(usize, u32)>,
    epoch: u64,
    translated: FxHashMap<Box<str>, Arc<Translated>>,
    /// Set once this process has the database for itself.
    fence: Option<Fence>,
    transaction: Option<Transaction>,
    /// The session has one state of the database; another session would have another one.
    is_snapshot: bool,
}

/// How a transaction that failed can go on.
enum Found {
    /// Its changes are made again.
    Repeated,
    /// It was committed.
    Committed,
    /// It has too many changes to be made again, and was not committed.
    Lost,
}

impl MariaConnection {
    /// Connects.
    pub(crate) fn open(server: &Arc<MariaServer>, purpose: MariaPurpose) -> Result<Self> {
        let current = server.current();
        let state = State {
            session: None,
            host: current.host,
            former: None,
            epoch: current.epoch,
            translated: FxHashMap::default(),
            fence: None,
            transaction: None,
            is_snapshot: false,
        };
        let connection =
            MariaConnection { server: Arc::clone(server), purpose, state: RefCell::new(state) };
        connection.connect(&mut connection.state.borrow_mut(), false)?;
        Ok(connection)
    }

    /// A statement for the server.
    pub(crate) fn translated(&self, sql: &str) -> Arc<Translated> {
        let kept = &mut self.state.borrow_mut().translated;
        if let Some(found) = kept.get(sql) {
            return Arc::clone(found);
        }
        let new = Arc::new(Translated::new(sql));
        if kept.len() < STATEMENTS {
            kept.insert(sql.into(), Arc::clone(&new));
        }
        new
    }

    /// Runs a query.
    pub(crate) fn select(&self, text: &Arc<Translated>, values: Vec<Value>) -> Result<Vec<Row>> {
        let found = self.run(|session| session.query(text, &values))?;
        self.end_single()?;
        Ok(found)
    }

    /// Runs a statement that changes rows; how many it has changed.
    pub(crate) fn change(&self, text: &Arc<Translated>, values: Vec<Value>) -> Result<u64> {
        let changed = self.run(|session| session.change(text, &values))?;
        if let Some(transaction) = &mut self.state.borrow_mut().transaction {
            transaction.note(text, values);
        }
        self.end_single()?;
        Ok(changed)
    }

    /// Ends the transaction of a single statement, where the server does not do it itself.
    fn end_single(&self) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        match state.transaction.is_none() && self.purpose == MariaPurpose::Write {
            true => state.session()?.run("COMMIT"),
            false => Ok(()),
        }
    }

    /// Begins a transaction.
    pub(crate) fn begin(&self) -> Result<()> {
        self.state.borrow_mut().transaction = Some(Transaction::default());
        let begun = self.run_first();
        if begun.is_err() {
            self.rollback();
        }
        begun
    }

    /// Commits the transaction.
    pub(crate) fn commit(&self) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        let started = Instant::now();
        let mut pause = PAUSE;
        loop {
            let failed = match state.session().and_then(|session| session.run("COMMIT")) {
                Ok(()) => break,
                Err(failed) => failed,
            };
            if let Found::Committed = self.recover(state, failed, (started, &mut pause))? {
                break;
            }
        }
        state.transaction = None;
        if let Some(fence) = &mut state.fence {
            fence.serial += 1;
            self.server.note_written(fence);
        }
        Ok(())
    }

    /// Ends the transaction without effect.
    pub(crate) fn rollback(&self) {
        let state = &mut *self.state.borrow_mut();
        state.transaction = None;
        // A session that cannot roll back is not used again.
        let rolled_back = state.session().and_then(|session| session.run("ROLLBACK"));
        if rolled_back.is_err() {
            state.session = None;
        }
    }

    /// Keeps seeing the database as it is now.
    pub(crate) fn begin_snapshot(&self) -> Result<()> {
        self.run(|session| session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT"))?;
        self.state.borrow_mut().is_snapshot = true;
        Ok(())
    }

    /// Runs reads of one state of the database; again, if the session is lost meanwhile.
    pub(crate) fn at_once<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        if self.purpose != MariaPurpose::Read || self.state.borrow().is_snapshot {
            return read();
        }
        let started = Instant::now();
        loop {
            self.begin_snapshot()?;
            let found = read();
            let state = &mut *self.state.borrow_mut();
            state.is_snapshot = false;
            let is_ended = state.session().and_then(|session| session.run("COMMIT")).is_ok();
            if !is_ended {
                state.session = None;
            }
            match found {
                Err(error) if !is_ended && started.elapsed() < self.server.patience() => {
                    warn!(database = %self.server.address(), %error, "data are read again");
                }
                found => return found,
            }
        }
    }

    /// Makes this process the owner of the database: another one that writes to it fails then.
    pub(crate) fn take_over(&self, owner: u64) -> Result<()> {
        let find = format!("SELECT value FROM config WHERE name = '{}'", fence::NAME);
        let found = self.select(&Arc::new(Translated::new(&find)), Vec::new())?;
        let found: Option<Vec<u8>> = found.into_iter().next().and_then(|mut row| row.take(0));
        let found = found.and_then(|text| String::from_utf8(text).ok());
        let fence = Fence::after(found.as_deref(), owner);
        let set = Arc::new(Translated::new("REPLACE INTO config (name, value) VALUES (?1, ?2)"));
        self.change(&set, vec![Value::from(fence::NAME), Value::from(fence.value(0))])?;
        self.server.note_written(&fence);
        self.state.borrow_mut().fence = Some(fence);
        Ok(())
    }

    /// Runs the first statement of a transaction.
    fn run_first(&self) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        let started = Instant::now();
        let mut pause = PAUSE;
        loop {
            let failed = match state.pass(&self.server) {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            if let Found::Repeated = self.recover(state, failed, (started, &mut pause))? {
                return Ok(());
            }
        }
    }

    /// Runs a statement; again if that may help.
    fn run<T>(&self, run: impl Fn(&mut Session) -> Result<T>) -> Result<T> {
        let state = &mut *self.state.borrow_mut();
        self.leave(state);
        let started = Instant::now();
        let mut pause = PAUSE;
        loop {
            if state.session.is_none() && state.transaction.is_none() && !state.is_snapshot {
                self.connect(state, true)?;
            }
            let failed = match state.session().and_then(&run) {
                Ok(found) => {
                    self.server.note_success();
                    return Ok(found);
                }
                Err(failed) => failed,
            };
            self.recover(state, failed, (started, &mut pause))?;
        }
    }

    /// Leaves a host that must not be read from any more.
    fn leave(&self, state: &mut State) {
        let current = self.server.current();
        if self.purpose != MariaPurpose::Read || state.is_snapshot {
            return;
        }
        let index = state.host;
        let is_usable = state.epoch == current.epoch
            && state
                .session()
                .is_ok_and(|session| self.check(current, None, session, index).is_ok());
        if !is_usable {
            state.session = None;
        }
    }

    /// Refuses another server than the one with the writing connection that lacks commits.
    /// `fence` is what this connection has written. A node of a cluster waits until it has all.
    fn check(
        &self,
        current: Current,
        fence: Option<&Fence>,
        session: &mut Session,
        index: usize,
    ) -> Result<()> {
        if !current.is_written || current.host == index || session.is_clustered {
            return Ok(());
        }
        let row = session.owner()?;
        if row.as_ref().is_some_and(|row| fence.is_some_and(|fence| fence.is_overtaken(row))) {
            return Err(Error::TakenOver);
        }
        // A COMMIT whose answer was lost may have happened.
        let is_next = fence.is_some_and(|fence| row == Some(fence.value(fence.serial + 1)));
        match is_next || self.server.is_whole(row) {
            true => Ok(()),
            false => Err(failure::behind()),
        }
    }

    /// After an error: connects again if need be, and repeats the transaction.
    fn recover(
        &self,
        state: &mut State,
        failed: Error,
        (started, pause): (Instant, &mut Duration),
    ) -> Result<Found> {
        let mut failed = failed;
        loop {
            let failure = failure::of(&failed);
            let patience = match failure {
                Failure::Locked => LOCKED_MAX,
                _ => self.server.patience(),
            };
            let is_over = started.elapsed() > patience;
            if failure == Failure::Lasting || state.is_snapshot || is_over {
                return Err(failed);
            }
            warn!(database = %self.server.address(), error = %failed,
                "a transaction of the database is run again");
            sleep(*pause);
            *pause = (*pause * 2).min(PAUSE_MAX);
            match self.repeat(state, failure == Failure::Lost) {
                Ok(Found::Lost) => return Err(failed),
                Ok(found) => return Ok(found),
                Err(error) => failed = error,
            }
        }
    }

    fn repeat(&self, state: &mut State, is_lost: bool) -> Result<Found> {
        if is_lost || state.session.is_none() {
            state.session = None;
            self.connect(state, true)?;
        }
        let State { session, fence, transaction, .. } = state;
        let session = session.as_mut().ok_or_else(lost)?;
        if self.purpose == MariaPurpose::Write {
            session.run("ROLLBACK")?;
        }
        let Some(transaction) = transaction else { return Ok(Found::Repeated) };
        if let Some(fence) = fence {
            // A lost COMMIT may still be under way: the row is locked until it has ended.
            session.wait_for_cluster(true)?;
            let found = session.fence()?;
            session.wait_for_cluster(false)?;
            if found.as_deref() == Some(&fence.value(fence.serial + 1)) {
                session.run("ROLLBACK")?;
                return Ok(Found::Committed);
            }
            session.pass(fence)?;
        }
        let Some(changes) = transaction.changes() else { return Ok(Found::Lost) };
        for change in changes {
            session.change(&change.text, &change.values)?;
        }
        Ok(Found::Repeated)
    }

    /// Connects to the first host that answers, from the current one on.
    fn connect(&self, state: &mut State, is_again: bool) -> Result<()> {
        let hosts = self.server.address().hosts();
        let (started, mut pause) = (Instant::now(), PAUSE);
        loop {
            let (current, mut failed) = (self.server.current(), None);
            for index in (0..hosts.len()).map(|step| (current.host + step) % hosts.len()) {
                let host = &hosts[index];
                let former = state.former.filter(|(host, _)| *host == index);
                let former = former.zip(state.fence.as_ref());
                let former = former.map(|((_, number), fence)| Former { number, fence });
                let address = self.server.address();
                let opened = Session::open(address, host, self.purpose, is_again, former);
                let checked = opened.and_then(|mut session| {
                    self.check(current, state.fence.as_ref(), &mut session, index)?;
                    Ok(session)
                });
                match checked {
                    Ok(session) => return self.connected(state, session, index),
                    Err(error) => failed = Some(error),
                }
            }
            let failed = failed.unwrap_or_else(lost);
            // The start tells of its own failure.
            if is_again || current.is_written {
                self.server.note_failure(&failed);
            }
            let passes = matches!(failed, Error::Locked) || failure::of(&failed) == Failure::Lost;
            if !is_again || !passes || started.elapsed() > self.server.patience() {
                return Err(failed);
            }
            sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn connected(&self, state: &mut State, mut session: Session, index: usize) -> Result<()> {
        let mut current = self.server.current();
        if self.purpose == MariaPurpose::Write {
            state.former = Some((index, session.conn.connection_id()));
            if current.host != index {
                let address = self.server.address();
                info!(database = %address, host = %address.hosts()[index],
                    "the database is on another host now");
            }
            // Once: what was committed on another host is here then, for readers too.
            session.wait_for_cluster(true)?;
            session.run("START TRANSACTION")?;
            session.run("COMMIT")?;
            session.wait_for_cluster(false)?;
            current = self.server.moved(index);
        } else if current.host != index {
            session.wait_for_cluster(true)?;
        }
        (state.session, state.host, state.epoch) = (Some(session), index, current.epoch);
        Ok(())
    }
}

impl State {
    fn session(&mut self) -> Result<&mut Session> {
        self.session.as_mut().ok_or_else(lost)
    }

    /// Notes the transaction in the row, if it is still this process that writes.
    fn pass(&mut self, server: &MariaServer) -> Result<()> {
        let State { session, fence: Some(fence), .. } = self else { return Ok(()) };
        let session = session.as_mut().ok_or_else(lost)?;
        let passed = session.pass(fence);
        if !matches!(passed, Err(Error::TakenOver))
            || session.fence()?.as_deref() != Some(&fence.value(fence.serial + 1))
        {
            return passed;
        }
        // The COMMIT before this one has happened, though it was given up.
        fence.serial += 1;
        server.note_written(fence);
        session.pass(fence)
    }
}

impl Session {
    fn query(&mut self, text: &Translated, values: &[Value]) -> Result<Vec<Row>> {
        let statement = self.conn.prep(text.text())?;
        Ok(self.conn.exec(&statement, values.to_vec())?)
    }

    fn change(&mut self, text: &Translated, values: &[Value]) -> Result<u64> {
        let statement = self.conn.prep(text.text())?;
        self.conn.exec_drop(&statement, values.to_vec())?;
        Ok(self.conn.affected_rows())
    }

    fn run(&mut self, statement: &str) -> Result<()> {
        Ok(self.conn.query_drop(statement)?)
    }

    /// The row that says which process writes, locked.
    fn fence(&mut self) -> Result<Option<String>> {
        self.row("SELECT value FROM config WHERE name = ? FOR UPDATE")
    }

    /// The same, as it is now.
    fn owner(&mut self) -> Result<Option<String>> {
        self.row("SELECT value FROM config WHERE name = ?")
    }

    fn row(&mut self, find: &str) -> Result<Option<String>> {
        let found: Option<Vec<u8>> = self.conn.exec_first(find, (fence::NAME,))?;
        Ok(found.and_then(|text| String::from_utf8(text).ok()))
    }

    /// Notes the transaction in the row, if it is still this process that writes.
    fn pass(&mut self, fence: &Fence) -> Result<()> {
        let set = "UPDATE config SET value = ? WHERE name = ? AND value = ?";
        let (before, after) = (fence.value(fence.serial), fence.value(fence.serial + 1));
        self.conn.exec_drop(set, (after, fence::NAME, before))?;
        match self.conn.affected_rows() {
            1 => Ok(()),
            _ => Err(Error::TakenOver),
        }
    }
}

fn lost() -> Error {
    mysql::Error::server_disconnected().into()
}
