//! Reading the log: its records are executed in order, on several threads where their keys allow.

use std::sync::Barrier;

use parking_lot::Mutex;
use zodium_keylog::Chunk;
use zodium_keyspace::{Entry, Hold, Keyspace, Stripes};
use zodium_rdb::{Input, read_value};
use zodium_resp::OwnedRequest;

use super::items::{self, Item};
use super::recovery::Recovery;
use super::strings::Strings;
use crate::Server;
use crate::commands::{self, Command};
use crate::unanswered::execute_unanswered;

/// Records of a chunk from which several threads are used.
const RECORDS_MIN: usize = 2000;
/// Most threads.
const THREADS_MAX: usize = 8;

/// The log of a server while its records are executed.
pub(super) struct Replay<'a> {
    server: &'a Server,
    recovery: Mutex<Recovery>,
}

impl Replay<'_> {
    pub(super) fn new(server: &Server) -> Replay<'_> {
        Replay { server, recovery: Mutex::default() }
    }

    /// What is left to be decided when all records were executed.
    pub(super) fn end(self) -> Recovery {
        self.recovery.into_inner()
    }

    /// Executes the records of a chunk.
    ///
    /// Each thread has the stripes whose numbers leave the same rest, and goes through all records.
    /// For a record of several threads all of them meet, and one executes it.
    pub(super) fn execute(&self, chunk: &Chunk) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if chunk.len() < RECORDS_MIN { 1 } else { cores.min(THREADS_MAX) };
        let meeting = Barrier::new(threads);
        std::thread::scope(|scope| {
            for thread in 1..threads {
                let share = Share { thread, threads, meeting: &meeting };
                scope.spawn(move || self.execute_share(chunk, &share));
            }
            let share = Share { thread: 0, threads, meeting: &meeting };
            self.execute_share(chunk, &share);
        });
    }

    /// Executes the records of a chunk that are a thread's.
    fn execute_share(&self, chunk: &Chunk, share: &Share) {
        let keyspace = &self.server.keyspace;
        let mut strings = Strings::new(keyspace);
        for record in chunk.records() {
            // Most records are of one key. The other threads need not read them.
            let one = items::one_key(record).map(|one| (keyspace.place(one.key), one));
            let only = one.map(|(place, _)| place.stripes());
            if only.and_then(|stripe| share.of(stripe)).is_some_and(|of| of != share.thread)
                || one.is_some_and(|(place, one)| strings.take(place, one))
            {
                continue;
            }
            strings.put();
            let Some((now, items)) = items::read(record) else {
                if share.thread == 0 {
                    // Its sum was right.
                    tracing::error!(
                        "the log has a record that this program does not know, which is left out"
                    );
                }
                continue;
            };
            let stripes = only.unwrap_or_else(|| stripes_of_items(keyspace, &items));
            match share.of(stripes) {
                Some(thread) if thread == share.thread => {
                    self.execute_record(now, &items, stripes);
                }
                Some(_) => {}
                None => {
                    if share.meeting.wait().is_leader() {
                        self.execute_record(now, &items, stripes);
                    }
                    share.meeting.wait();
                }
            }
        }
        strings.put();
    }

    fn execute_record(&self, now: u64, items: &[Item], stripes: Stripes) {
        let mut hold = self.server.keyspace.lock(stripes, now);
        for item in items {
            match item {
                Item::Command(database, request) => {
                    hold.database = *database;
                    run_logged(self.server, &mut hold, request);
                }
                Item::Value { database, key, expires_at, value } => {
                    hold.database = *database;
                    put(&mut hold, key, *expires_at, value);
                }
                Item::Removal(database, key) => {
                    hold.database = *database;
                    hold.take(key);
                }
                Item::Tie { database, key, origin } => {
                    hold.database = *database;
                    self.recovery.lock().tie_again(&self.server.beside, &mut hold, key, origin);
                }
                Item::Parked { token, database, since, commands } => {
                    self.recovery.lock().park(token, *database, since, commands);
                }
                Item::Unparked(token) => self.recovery.lock().unpark(token),
            }
        }
    }
}

fn stripes_of_items(keyspace: &Keyspace, items: &[Item]) -> Stripes {
    let stripes = items.iter().map(|item| match item {
        Item::Command(_, request) => stripes_of_logged(keyspace, request),
        Item::Value { key, .. } | Item::Removal(_, key) | Item::Tie { key, .. } => {
            keyspace.stripe(key)
        }
        // They must stay in order with each other, so that no thread has them alone.
        Item::Parked { .. } | Item::Unparked(_) => Stripes::ALL,
    });
    stripes.fold(Stripes::NONE, |all, one| all | one)
}

/// The command of a request of the log.
fn logged_command(request: &OwnedRequest) -> Option<&'static Command> {
    match commands::find(request.arguments()) {
        Ok(command) => Some(command),
        Err(fail) => {
            tracing::error!("the log has a command that is left out: {}", fail.0);
            None
        }
    }
}

/// The stripes of a request of the log.
pub(super) fn stripes_of_logged(keyspace: &Keyspace, request: &OwnedRequest) -> Stripes {
    let Ok(command) = commands::find(request.arguments()) else { return Stripes::NONE };
    command.stripes(keyspace, request.arguments())
}

/// Executes a request of the log.
pub(super) fn run_logged(server: &Server, hold: &mut Hold, request: &OwnedRequest) {
    let Some(command) = logged_command(request) else { return };
    // Its client got the error.
    let _ = execute_unanswered(server, hold, command, request.arguments());
}

/// The part of the records that a thread executes.
struct Share<'a> {
    thread: usize,
    threads: usize,
    meeting: &'a Barrier,
}

impl Share<'_> {
    /// The thread that executes a record with these stripes; `None` if several have some.
    fn of(&self, stripes: Stripes) -> Option<usize> {
        let mut threads = stripes.numbers().map(|number| number % self.threads);
        let first = threads.next().unwrap_or(0);
        threads.all(|other| other == first).then_some(first)
    }
}

/// Gives a key a value.
fn put(hold: &mut Hold, key: &[u8], expires_at: Option<u64>, value: &[u8]) {
    let Some((kind, mut rest)) = value.split_first() else { return };
    match read_value(*kind, &mut Input::new(&mut rest)) {
        Ok(value) => {
            hold.put(key, Entry::new(value).expiring(expires_at));
            hold.changed(key);
        }
        Err(error) => {
            let key = key.escape_ascii();
            tracing::error!(%key, %error, "the log has a value that cannot be read: left out");
        }
    }
}
