//! The model: what a server is to answer that executes one command after the other.
//!
//! Key decision: it gets the commands in the order in which the server has executed them, and
//! learns nothing else of the server but when connections begin and end.
//!
//! - `content`, `keys`, `collections`: the data, and commands for it;
//! - `waits`, `news`: clients that wait, and messages;
//! - `sessions`: what the server is to know of a connection, and commands for that.

mod collections;
mod content;
mod keys;
mod news;
mod sessions;
mod waits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) use sessions::Session;

use super::plan::RespBug;
use super::reply::Reply;
use super::request::{Request, SCRIPT_OF_POP, text_of};
use collections::streams_of;
use content::{Kept, Place};
use sessions::Replies;
use waits::{Pause, Waiter};

/// The text of an error.
type Failure = &'static str;

/// For which client a command is executed.
#[derive(Clone, Copy, Debug)]
struct Caller {
    database: usize,
    /// The connection; `None` for a command that has waited.
    changes_as: Option<usize>,
}

/// What became of a command.
enum Outcome {
    Answer(Reply),
    /// It has found nothing to take. Where it may not wait, it answers null.
    Waits {
        is_array: bool,
    },
}

/// The keys and the clients.
#[derive(Default)]
pub(super) struct Model {
    /// In milliseconds since 1970.
    pub(super) now: u64,
    keys: BTreeMap<Place, Kept>,
    sessions: BTreeMap<usize, Session>,
    /// Connections that have ended.
    ended: BTreeMap<usize, Session>,
    /// The last id of a client.
    last_id: u64,
    /// Commands that wait, in the order in which they began.
    waiting: Vec<Waiter>,
    /// What has come into being, for commands that wait.
    filled: VecDeque<Place>,
    /// Keys that the command or transaction has changed; so many of them were told.
    altered: Vec<Vec<u8>>,
    told: usize,
    is_all_altered: bool,
    /// The connections that have read a key since they were told of it.
    readers: BTreeMap<Vec<u8>, BTreeSet<usize>>,
    has_events: bool,
    pause: Option<Pause>,
    /// Transactions of the storage, and what they wrote.
    commits: Vec<(u64, Vec<u64>)>,
    bug: RespBug,
    /// What has happened, for the report.
    pub(super) happened: Vec<&'static str>,
}

impl Model {
    pub(super) fn new(has_events: bool, bug: RespBug) -> Model {
        Model { has_events, bug, ..Model::default() }
    }

    /// The last transaction of the storage.
    pub(super) fn last_tid(&self) -> u64 {
        self.commits.last().map_or(0, |(tid, _)| *tid)
    }

    /// Executes a command that is not about its connection.
    fn run(&mut self, caller: Caller, request: &[Vec<u8>]) -> Result<Outcome, Failure> {
        let answer = |reply| Ok(Outcome::Answer(reply));
        match &*request[0] {
            b"PUBLISH" => {
                self.tell_readers(caller.changes_as);
                answer(Reply::count(self.publish(&request[1], &request[2])))
            }
            b"WAIT" => answer(Reply::Number(0)),
            b"EVAL" => answer(self.run_script(caller, request)),
            _ => match self.run_of_keys(caller, request)? {
                Some(reply) => answer(reply),
                None => self.run_of_collections(caller, request),
            },
        }
    }

    /// Executes a command that does not wait.
    fn run_at_once(&mut self, caller: Caller, request: &[Vec<u8>]) -> Reply {
        match self.run(caller, request) {
            Ok(Outcome::Answer(reply)) => reply,
            Ok(Outcome::Waits { is_array: true }) => Reply::NullArray,
            Ok(Outcome::Waits { is_array: false }) => Reply::Null,
            Err(failure) => Reply::Error(failure.to_owned()),
        }
    }

    fn run_script(&mut self, caller: Caller, request: &[Vec<u8>]) -> Reply {
        self.happened.push("script");
        let (one, other, value) = (&request[3], &request[4], &request[5]);
        let call = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Request>();
        if request[1] == SCRIPT_OF_POP {
            return match self.run_at_once(caller, &call(&[b"BLPOP", one, b"0"])) {
                Reply::NullArray => Reply::Null,
                reply => reply,
            };
        }
        self.run_at_once(caller, &call(&[b"RPUSH", one, value, b"2"]));
        self.run_at_once(caller, &call(&[b"DEL", other, b"none"]));
        self.run_at_once(caller, &call(&[b"RPUSH", other, value]));
        Reply::Number(7)
    }
}

/// The keys of a command that reads, or waits.
fn keys_of(request: &[Vec<u8>]) -> &[Vec<u8>] {
    match &*request[0] {
        b"XREAD" => streams_of(request).0,
        b"MGET" | b"EXISTS" => &request[1..],
        b"BLPOP" | b"BRPOP" | b"BZPOPMIN" => &request[1..request.len() - 1],
        _ => &request[1..2],
    }
}

/// The name of a command, for reports.
pub(super) fn name_of(request: &[Vec<u8>]) -> String {
    text_of(&request[0])
}
