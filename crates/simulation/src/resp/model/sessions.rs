//! What the server is to know of its connections, and commands for that.

use std::collections::{BTreeSet, VecDeque};

use super::content::Place;
use super::news::Cache;
use super::{Caller, Model, Outcome};
use crate::resp::recorder::Call;
use crate::resp::reply::Reply;
use crate::resp::request::{Request, is_subscription, number_of, text_of};
use crate::resp::stream::Stream;

/// Which answers a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Replies {
    #[default]
    On,
    Off,
    SkipNext,
    Skip,
}

/// A connection.
#[derive(Default)]
pub(in crate::resp) struct Session {
    pub(super) worker: usize,
    /// 0 before the server has noticed it.
    pub(super) id: u64,
    pub(super) is_resp3: bool,
    pub(super) database: usize,
    /// Requests that were not executed, and their bytes.
    sent: VecDeque<(Request, usize)>,
    /// The requests of its transaction.
    pub(super) queue: Option<Vec<Request>>,
    pub(super) watched: BTreeSet<Place>,
    /// A watched key was changed.
    pub(super) is_dirty: bool,
    pub(super) replies: Replies,
    pub(super) channels: BTreeSet<Vec<u8>>,
    pub(super) patterns: BTreeSet<Vec<u8>>,
    pub(super) cache: Option<Cache>,
    /// Another client has ended it.
    pub(in crate::resp) is_killed: bool,
    /// It has ended itself.
    pub(super) is_ending: bool,
    /// It has had subscriptions, or a cache.
    was_told: bool,
    /// The server has ended it, since it does not read.
    pub(in crate::resp) is_left_behind: bool,
    pub(in crate::resp) stream: Stream,
}

impl Session {
    /// Whether the server is to end it.
    pub(in crate::resp) fn has_to_end(&self) -> bool {
        self.is_killed || self.is_ending
    }

    /// Whether it has ever got messages.
    pub(in crate::resp) fn was_told(&self) -> bool {
        self.was_told
    }

    /// Whether a request that was not executed ends the connection.
    fn is_about_to_end(&self) -> bool {
        let id = self.id.to_string().into_bytes();
        self.sent.iter().any(|(request, _)| {
            request[0] == b"QUIT" || request.len() == 6 && request[1] == b"KILL" && request[3] == id
        })
    }

    /// Bytes of requests that were not executed.
    pub(in crate::resp) fn sent_bytes(&self) -> usize {
        self.sent.iter().map(|(_, length)| length).sum()
    }

    /// The first request that was not executed.
    pub(in crate::resp) fn next(&self) -> Option<&Request> {
        self.sent.front().map(|(request, _)| request)
    }
}

impl Model {
    pub(in crate::resp) fn connect(&mut self, connection: usize, worker: usize) {
        self.sessions.insert(connection, Session { worker, ..Session::default() });
    }

    pub(in crate::resp) fn session(&mut self, connection: usize) -> Option<&mut Session> {
        self.sessions.get_mut(&connection)
    }

    /// What a connection is sent, which may have ended.
    pub(in crate::resp) fn stream(&mut self, connection: usize) -> Option<&mut Stream> {
        let session = self.sessions.get_mut(&connection);
        let session = session.or_else(|| self.ended.get_mut(&connection));
        session.map(|session| &mut session.stream)
    }

    /// What a connection was to be sent that has ended in order, for a client that has not gone.
    pub(in crate::resp) fn take_ended(&mut self, connection: usize) -> Option<Stream> {
        let session = self.ended.remove(&connection)?;
        (!session.is_killed && !session.is_left_behind).then_some(session.stream)
    }

    /// The id of a connection; 0 if the server does not know it.
    pub(in crate::resp) fn id_of(&self, connection: usize) -> u64 {
        self.sessions.get(&connection).map_or(0, |session| session.id)
    }

    /// A client has sent a request, which has so many bytes on its way.
    pub(in crate::resp) fn note_sent(&mut self, connection: usize, request: Request, len: usize) {
        if let Some(session) = self.sessions.get_mut(&connection) {
            session.sent.push_back((request, len));
        }
    }

    /// All letters of a worker have been taken.
    pub(in crate::resp) fn bar_worker(&mut self, worker: usize) {
        let of_worker = self.sessions.values_mut().filter(|session| session.worker == worker);
        of_worker.for_each(|session| session.stream.bar(true));
    }

    /// Follows what a session of the server has done.
    pub(in crate::resp) fn follow(&mut self, connection: usize, call: Call) -> Result<(), String> {
        let Some(session) = self.sessions.get_mut(&connection) else {
            return Err(format!("an unknown connection {connection} does something"));
        };
        match call {
            Call::Open => {
                self.last_id += 1;
                session.id = self.last_id;
            }
            Call::Taken(0) => {}
            Call::Taken(count) => self.take(connection, count)?,
            Call::Ended => self.take_last(connection)?,
            Call::Closed => {
                if let Some(mut session) = self.sessions.remove(&connection) {
                    session.stream.end();
                    self.ended.insert(connection, session);
                }
                self.waiting.retain(|waiter| waiter.connection != connection);
                self.forget_readers();
            }
        }
        Ok(())
    }

    /// The server has executed the requests of so many bytes.
    fn take(&mut self, connection: usize, mut count: usize) -> Result<(), String> {
        self.bar_if_told(connection);
        while count > 0 {
            let session = self.sessions.get_mut(&connection);
            match session.and_then(|session| session.sent.pop_front()) {
                Some((request, length)) if length <= count => {
                    count -= length;
                    self.execute(connection, &request)?;
                }
                _ => return Err(format!("{count} bytes of {connection} are no request")),
            }
        }
        Ok(())
    }

    /// The server has executed requests up to one that ends the connection; or none, if it has
    /// ended the connection itself.
    fn take_last(&mut self, connection: usize) -> Result<(), String> {
        self.bar_if_told(connection);
        while let Some(session) = self.sessions.get_mut(&connection)
            && !session.has_to_end()
            && session.is_about_to_end()
            && let Some((request, _)) = session.sent.pop_front()
        {
            self.execute(connection, &request)?;
        }
        Ok(())
    }

    /// The session of a client with a cache takes letters before it takes requests.
    fn bar_if_told(&mut self, connection: usize) {
        if let Some(session) = self.sessions.get_mut(&connection)
            && session.cache.is_some()
        {
            session.stream.bar(true);
        }
    }

    fn execute(&mut self, connection: usize, request: &[Vec<u8>]) -> Result<(), String> {
        let name = text_of(&request[0]);
        let Some(session) = self.sessions.get_mut(&connection) else { return Ok(()) };
        if session.has_to_end() {
            return Err(format!("{name} of {connection} is executed, which was ended"));
        }
        if self.is_waiting(connection) {
            return Err(format!("{name} of {connection} is executed, which waits"));
        }
        if self.is_stopped(connection, request) {
            return Err(format!("{name} of {connection} is executed in a pause"));
        }
        let Some(session) = self.sessions.get_mut(&connection) else { return Ok(()) };
        if session.replies == Replies::SkipNext && !request.starts_with(&switch_of_replies()) {
            session.replies = Replies::Skip;
        }
        let is_queueing = session.queue.is_some() && !is_control(&name);
        let reply = match is_queueing {
            true => {
                session.queue.get_or_insert_default().push(request.to_vec());
                Some(Reply::Simple("QUEUED"))
            }
            false => self.execute_now(connection, &name, request),
        };
        let Some(session) = self.sessions.get_mut(&connection) else { return Ok(()) };
        session.was_told |= session.cache.is_some() || is_subscription(request);
        let is_answered = session.replies == Replies::On || is_subscription(request);
        if let Some(reply) = &reply {
            if is_answered && *reply != Reply::None {
                session.stream.answer(reply.encoded(session.is_resp3));
            }
            if session.replies == Replies::Skip {
                session.replies = Replies::On;
            }
        }
        // After the answer, for others and for itself.
        self.tell_changes(Some(connection));
        self.serve();
        Ok(())
    }

    /// Executes a command that is not queued; the answer, unless it waits.
    fn execute_now(&mut self, connection: usize, name: &str, request: &[Vec<u8>]) -> Option<Reply> {
        let session = self.sessions.get_mut(&connection)?;
        Some(match name {
            "EXEC" => self.execute_queue(connection),
            "MULTI" => {
                session.queue = Some(Vec::new());
                Reply::ok()
            }
            "DISCARD" => {
                session.queue = None;
                session.end_watch();
                Reply::ok()
            }
            "WATCH" => {
                let database = session.database;
                for key in &request[1..] {
                    // A key whose time is past is not there: it does not change any more.
                    self.get(&(database, key.clone()));
                    let session = self.sessions.get_mut(&connection)?;
                    session.watched.insert((database, key.clone()));
                }
                Reply::ok()
            }
            "CLIENT" => self.execute_client(connection, request),
            "HELLO" => {
                session.is_resp3 = true;
                session.stream.greet(session.id);
                Reply::None
            }
            "QUIT" => {
                session.is_ending = true;
                Reply::ok()
            }
            _ if is_subscription(request) => self.subscribe(connection, request),
            _ => return self.execute_data(connection, name, request, true),
        })
    }

    /// Executes a command that a transaction may have, too.
    fn execute_data(
        &mut self,
        connection: usize,
        name: &str,
        request: &[Vec<u8>],
        may_wait: bool,
    ) -> Option<Reply> {
        let session = self.sessions.get_mut(&connection)?;
        match name {
            "SELECT" => {
                session.database = number_of(&request[1]) as usize;
                return Some(Reply::ok());
            }
            "UNWATCH" => {
                session.end_watch();
                return Some(Reply::ok());
            }
            "PING" => {
                let is_subscriber = !(session.channels.is_empty() && session.patterns.is_empty());
                return Some(match is_subscriber && !session.is_resp3 {
                    true => Reply::Array(vec![Reply::bulk("pong"), Reply::bulk("")]),
                    false => Reply::Simple("PONG"),
                });
            }
            _ => {}
        }
        let caller = Caller { database: session.database, changes_as: Some(connection) };
        let outcome = self.run(caller, request);
        self.remember(connection, request);
        match outcome {
            Ok(Outcome::Answer(reply)) => Some(reply),
            Ok(Outcome::Waits { .. }) if may_wait => {
                self.wait(caller, connection, request);
                None
            }
            Ok(Outcome::Waits { is_array: true }) => Some(Reply::NullArray),
            Ok(Outcome::Waits { is_array: false }) => Some(Reply::Null),
            Err(failure) => Some(Reply::Error(failure.to_owned())),
        }
    }

    fn execute_queue(&mut self, connection: usize) -> Reply {
        let Some(session) = self.sessions.get_mut(&connection) else { return Reply::None };
        let queue = session.queue.take().unwrap_or_default();
        for place in session.watched.clone() {
            // A key whose time is past now has changed.
            self.get(&place);
        }
        let Some(session) = self.sessions.get_mut(&connection) else { return Reply::None };
        let is_dirty = session.is_dirty;
        session.end_watch();
        if is_dirty {
            self.happened.push("transaction of changed keys");
            return Reply::NullArray;
        }
        self.happened.push("transaction");
        let execute = |request: &Request| {
            let reply = self.execute_data(connection, &text_of(&request[0]), request, false);
            reply.unwrap_or(Reply::None)
        };
        Reply::Array(queue.iter().map(execute).collect())
    }

    fn execute_client(&mut self, connection: usize, request: &[Vec<u8>]) -> Reply {
        let word =
            |place: usize| request.get(place).map_or("", |w| std::str::from_utf8(w).unwrap_or(""));
        let Some(session) = self.sessions.get_mut(&connection) else { return Reply::None };
        match (word(1), word(2)) {
            ("ID", _) => Reply::Number(session.id as i64),
            ("REPLY", mode) => {
                match (mode, session.replies) {
                    ("ON", _) => session.replies = Replies::On,
                    ("OFF", _) => session.replies = Replies::Off,
                    (_, Replies::Off) => {}
                    _ => session.replies = Replies::SkipNext,
                }
                self.happened.push("switch of replies");
                if mode == "ON" { Reply::ok() } else { Reply::None }
            }
            ("KILL", _) => Reply::count(self.kill(connection, request)),
            ("UNBLOCK", _) => {
                let is_it = self.unblock(number_of(&request[2]), word(3) == "ERROR");
                Reply::Number(i64::from(is_it))
            }
            ("PAUSE", _) => {
                self.begin_pause(self.now + number_of(&request[2]), word(3) == "ALL");
                Reply::ok()
            }
            ("UNPAUSE", _) => {
                self.pause = None;
                Reply::ok()
            }
            ("TRACKING", "ON") => {
                let has = |option: &[u8]| request.iter().any(|word| word == option);
                let cache = Cache { is_broadcast: has(b"BCAST"), skips_own: has(b"NOLOOP") };
                self.track(connection, Some(cache));
                Reply::ok()
            }
            _ => {
                self.track(connection, None);
                Reply::ok()
            }
        }
    }

    /// Ends the connection with an id; how many there were.
    fn kill(&mut self, connection: usize, request: &[Vec<u8>]) -> usize {
        let id = number_of(&request[3]);
        let spares_itself = request.len() == 4;
        let found = self.sessions.iter_mut().find(|(_, session)| session.id == id && id > 0);
        match found {
            None => 0,
            Some((number, _)) if *number == connection && spares_itself => 0,
            Some((number, session)) => {
                self.happened.push("killed");
                match *number == connection {
                    true => session.is_ending = true,
                    false => {
                        session.is_killed = true;
                        session.stream.end();
                    }
                }
                1
            }
        }
    }
}

impl Session {
    fn end_watch(&mut self) {
        self.watched.clear();
        self.is_dirty = false;
    }
}

fn switch_of_replies() -> [Vec<u8>; 2] {
    [b"CLIENT".to_vec(), b"REPLY".to_vec()]
}

/// Whether a command is not queued by a transaction.
fn is_control(name: &str) -> bool {
    matches!(name, "EXEC" | "DISCARD" | "MULTI" | "WATCH" | "QUIT")
}
