//! Clients that wait: for an element, or for the end of a pause.

use super::content::{Place, Type};
use super::{Caller, Model, Outcome, Replies, keys_of};
use crate::resp::plan::RespBug;
use crate::resp::reply::Reply;
use crate::resp::request::{Request, seconds_of, text_of};
use crate::resp::stream::Source;

/// A command that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) connection: usize,
    request: Request,
    database: usize,
    is_resp3: bool,
    /// In milliseconds since 1970.
    end: Option<u64>,
    /// Whether its client is told of changes of what it reads.
    is_remembered: bool,
}

impl Waiter {
    /// The keys that it waits for.
    fn keys(&self) -> &[Vec<u8>] {
        match &*self.request[0] {
            b"BLMOVE" | b"BRPOPLPUSH" => &self.request[1..2],
            _ => keys_of(&self.request),
        }
    }

    /// The type of what it waits for.
    fn kind(&self) -> Type {
        match &*self.request[0] {
            b"BZPOPMIN" => Type::SortedSet,
            b"XREAD" => Type::Stream,
            _ => Type::List,
        }
    }
}

/// A pause of commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    pub(super) until: u64,
    pub(super) is_of_all: bool,
}

impl Model {
    pub(in crate::resp) fn is_waiting(&self, connection: usize) -> bool {
        self.waiting.iter().any(|waiter| waiter.connection == connection)
    }

    /// Whether a pause stops commands now.
    pub(in crate::resp) fn is_paused(&self) -> bool {
        self.pause.is_some_and(|pause| pause.until > self.now)
    }

    /// The next moment at which something ends, after now.
    pub(in crate::resp) fn next_end(&self) -> Option<u64> {
        let ends = self.waiting.iter().filter_map(|waiter| waiter.end);
        let pause = self.pause.map(|pause| pause.until);
        ends.chain(pause).filter(|end| *end > self.now).min()
    }

    pub(super) fn begin_pause(&mut self, until: u64, is_of_all: bool) {
        let before = self.pause.filter(|pause| pause.until > self.now);
        self.pause = Some(match before {
            None => Pause { until, is_of_all },
            Some(before) => {
                Pause { until: until.max(before.until), is_of_all: is_of_all || before.is_of_all }
            }
        });
        self.happened.push("pause");
    }

    /// Whether a command may not be executed now.
    pub(super) fn is_stopped(&self, connection: usize, request: &[Vec<u8>]) -> bool {
        let Some(pause) = self.pause.filter(|pause| pause.until > self.now) else { return false };
        let queue = self.sessions.get(&connection).and_then(|session| session.queue.as_ref());
        match (&*request[0], queue) {
            (b"CLIENT", _) if request[1] == b"UNPAUSE" => false,
            _ if pause.is_of_all => true,
            (b"EXEC", Some(queue)) => queue.iter().any(|request| may_write(request)),
            _ => may_write(request),
        }
    }

    /// Ends the waiting of clients of a worker whose time is past.
    pub(in crate::resp) fn end_waits(&mut self, worker: usize) {
        let now = self.now;
        let sessions = &self.sessions;
        let is_past = |waiter: &mut Waiter| {
            let of_worker = sessions.get(&waiter.connection).is_some_and(|s| s.worker == worker);
            of_worker && waiter.end.is_some_and(|end| end <= now)
        };
        let past: Vec<_> = self.waiting.extract_if(.., is_past).collect();
        for waiter in past {
            self.happened.push("timed out");
            self.answer_late(waiter.connection, waiter.is_resp3, &Reply::NullArray);
        }
    }

    /// Ends the waiting of a client with an id; whether it waited.
    pub(super) fn unblock(&mut self, id: u64, is_error: bool) -> bool {
        let sessions = &self.sessions;
        let is_it = |waiter: &Waiter| {
            sessions.get(&waiter.connection).is_some_and(|session| session.id == id)
        };
        let Some(place) = self.waiting.iter().position(is_it) else { return false };
        let waiter = self.waiting.remove(place);
        let reply = match is_error {
            true => Reply::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".to_owned()),
            false => Reply::NullArray,
        };
        self.happened.push("unblocked");
        self.answer_late(waiter.connection, waiter.is_resp3, &reply);
        true
    }

    /// Sends the answer of a command that has waited.
    fn answer_late(&mut self, connection: usize, is_resp3: bool, reply: &Reply) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        if session.replies == Replies::On {
            session.stream.message(reply.encoded(is_resp3), Source::Server);
            session.stream.bar(false);
        }
        if session.replies == Replies::Skip {
            session.replies = Replies::On;
        }
    }

    pub(super) fn wait(&mut self, caller: Caller, connection: usize, request: &[Vec<u8>]) {
        let Some(session) = self.sessions.get(&connection) else { return };
        let is_resp3 = session.is_resp3;
        let milliseconds = match &*request[0] {
            b"XREAD" => crate::resp::request::number_of(&request[2]),
            _ => seconds_of(&request[request.len() - 1]),
        };
        let waiter = Waiter {
            connection,
            request: self.with_ids(caller, request),
            database: caller.database,
            is_resp3,
            end: (milliseconds > 0).then(|| self.now + milliseconds),
            is_remembered: self.remembers(connection, request),
        };
        self.happened.push("wait");
        match self.bug {
            RespBug::ServesLastFirst => self.waiting.insert(0, waiter),
            _ => self.waiting.push(waiter),
        }
    }

    /// The keys that commands wait for in a database, by the first command for each.
    pub(super) fn keys_waited_for(&self, database: usize) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        for waiter in self.waiting.iter().filter(|waiter| waiter.database == database) {
            for key in waiter.keys() {
                let place = (database, key.clone());
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
        places
    }

    /// Tries commands again that wait for what has come into being.
    pub(super) fn serve(&mut self) {
        while let Some(place) = self.filled.pop_front() {
            for waiter in self.waiting.clone() {
                let waits = waiter.database == place.0 && waiter.keys().contains(&place.1);
                let is_there = self.waiting.iter().any(|w| w.connection == waiter.connection);
                if waits && is_there {
                    self.try_again(&waiter, &place);
                    if self.get(&place).is_none() {
                        break;
                    }
                }
            }
        }
    }

    fn try_again(&mut self, waiter: &Waiter, place: &Place) {
        let connection = waiter.connection;
        let is_killed = self.sessions.get(&connection).is_none_or(|session| session.is_killed);
        let kind = self.get(place).map(|kept| kept.content.kind());
        if is_killed || kind != Some(waiter.kind()) {
            return;
        }
        let caller = Caller { database: waiter.database, changes_as: None };
        let reply = match self.run(caller, &waiter.request) {
            Ok(Outcome::Waits { .. }) => return,
            Ok(Outcome::Answer(reply)) => reply,
            Err(failure) => Reply::Error(failure.to_owned()),
        };
        self.waiting.retain(|other| other.connection != connection);
        self.happened.push("served");
        if waiter.is_remembered {
            for key in keys_of(&waiter.request) {
                self.readers.entry(key.clone()).or_default().insert(connection);
            }
        }
        self.answer_late(connection, waiter.is_resp3, &reply);
        self.tell_changes(None);
    }
}

/// Whether a command may change keys, or sends a message.
fn may_write(request: &[Vec<u8>]) -> bool {
    const READS: [&str; 24] = [
        "GET",
        "MGET",
        "EXISTS",
        "TYPE",
        "PTTL",
        "LLEN",
        "LRANGE",
        "ZRANGE",
        "ZCARD",
        "XREAD",
        "XLEN",
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH",
        "UNWATCH",
        "CLIENT",
        "SELECT",
        "PING",
        "WAIT",
        "HELLO",
        "QUIT",
        "SUBSCRIBE",
        "PSUBSCRIBE",
    ];
    let name = text_of(&request[0]);
    !READS.contains(&&*name) && !name.ends_with("UNSUBSCRIBE")
}
