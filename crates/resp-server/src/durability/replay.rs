//! Reading the log: its records are executed in order, on several threads where their keys allow.

use std::path::Path;
use std::sync::Barrier;

use parking_lot::Mutex;
use zodium_keylog::{Chunk, OpenError};
use zodium_keyspace::{Entry, Hold, Keyspace, Stripes};
use zodium_rdb::{Input, read_value};
use zodium_resp::OwnedRequest;

use super::items::{self, Item};
use super::recovery::Recovery;
use super::strings::Strings;
use crate::Server;
use crate::commands;
use crate::fail::Outcome;
use crate::unanswered::execute_unanswered;

/// Records of a chunk from which several threads are used.
const RECORDS_MIN: usize = 2000;
/// Most threads.
const THREADS_MAX: usize = 8;

/// The log of a server while its records are executed.
pub(super) struct Replay<'a> {
    server: &'a Server,
    recovery: Mutex<Recovery>,
    /// Where a record has something that this program does not know, and what.
    unknown: Mutex<Option<(u64, String)>>,
}

impl Replay<'_> {
    pub(super) fn new(server: &Server) -> Replay<'_> {
        Replay { server, recovery: Mutex::default(), unknown: Mutex::default() }
    }

    /// What is left to be decided when all records were executed.
    pub(super) fn end(self) -> Recovery {
        self.recovery.into_inner()
    }

    /// Whether a record was not understood.
    pub(super) fn is_refused(&self) -> bool {
        self.unknown.lock().is_some()
    }

    /// The error of a log with a record that was not understood.
    pub(super) fn check(&self, path: &Path) -> Result<(), OpenError> {
        match self.unknown.lock().clone() {
            None => Ok(()),
            Some((position, what)) => {
                Err(OpenError::Unknown { path: path.to_owned(), position, what })
            }
        }
    }

    /// Notes the first of the records that were not understood.
    fn refuse(&self, position: u64, what: String) {
        let mut unknown = self.unknown.lock();
        if unknown.as_ref().is_none_or(|(first, _)| position < *first) {
            *unknown = Some((position, what));
        }
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
        for (number, record) in chunk.records().enumerate() {
            let at = chunk.position(number);
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
                // Its sum was right.
                self.refuse(at, "an item".to_owned());
                continue;
            };
            let stripes = only.unwrap_or_else(|| stripes_of_items(keyspace, &items));
            match share.of(stripes) {
                Some(thread) if thread == share.thread => {
                    self.execute_record(at, (now, &items), stripes);
                }
                Some(_) => {}
                None => {
                    if share.meeting.wait().is_leader() {
                        self.execute_record(at, (now, &items), stripes);
                    }
                    share.meeting.wait();
                }
            }
        }
        strings.put();
    }

    fn execute_record(&self, at: u64, (now, items): (u64, &[Item]), stripes: Stripes) {
        let mut hold = self.server.keyspace.lock(stripes, now);
        let done = items.iter().try_for_each(|item| self.execute_item(&mut hold, item));
        if let Err(what) = done {
            self.refuse(at, what);
        }
    }

    /// Executes an item; the error says what is not known of it.
    fn execute_item(&self, hold: &mut Hold, item: &Item) -> Result<(), String> {
        match item {
            Item::Command(database, request) => {
                hold.database = *database;
                run_logged(self.server, hold, request).map_err(|fail| fail.0.into_owned())?;
            }
            Item::Value { database, key, expires_at, value } => {
                hold.database = *database;
                put(hold, key, *expires_at, value)?;
            }
            Item::Removal(database, key) => {
                hold.database = *database;
                hold.take(key);
            }
            Item::Tie { database, key, origin } => {
                hold.database = *database;
                Recovery::tie_again(&self.server.beside, hold, key, origin);
            }
            Item::Parked { token, database, since, commands } => {
                let mut found = Vec::new();
                for request in commands {
                    let command = commands::find(request.arguments());
                    found.push((command.map_err(|fail| fail.0.into_owned())?, request.clone()));
                }
                self.recovery.lock().park(token, *database, since, found);
            }
            Item::Unparked(token) => self.recovery.lock().unpark(token),
        }
        Ok(())
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

/// The stripes of a request of the log.
pub(super) fn stripes_of_logged(keyspace: &Keyspace, request: &OwnedRequest) -> Stripes {
    let Ok(command) = commands::find(request.arguments()) else { return Stripes::NONE };
    command.stripes(keyspace, request.arguments())
}

/// Executes a request of the log. The error: this program does not know the command.
pub(super) fn run_logged(server: &Server, hold: &mut Hold, request: &OwnedRequest) -> Outcome {
    let command = commands::find(request.arguments())?;
    // Its client got the error.
    let _ = execute_unanswered(server, hold, command, request.arguments(), None);
    Ok(())
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

/// Gives a key a value; the error says why that cannot be read.
fn put(hold: &mut Hold, key: &[u8], expires_at: Option<u64>, value: &[u8]) -> Result<(), String> {
    let (kind, mut rest) = value.split_first().ok_or("a value without a kind")?;
    let value = read_value(*kind, &mut Input::new(&mut rest)).map_err(|error| error.to_string())?;
    hold.put(key, Entry::new(value).expiring(expires_at));
    hold.changed(key);
    Ok(())
}
