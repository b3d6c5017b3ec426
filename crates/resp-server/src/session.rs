//! The RESP side of a link: takes requests off the input, and executes them.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use zodium_keyspace::now;
use zodium_net::{CloseReason, Consumed, Link, Parked, Session};
use zodium_resp::{RequestLimits, RequestReader, Step};

use crate::ahead::LookAhead;
use crate::client::{Client, ClientShared, MovedClient};
use crate::dispatch::{After, execute};
use crate::local::LocalServer;
use crate::reply::Reply;

/// From so many missing bytes on, the session is not called before they are there.
const MISSING_BYTES_MIN: usize = 4 << 10;

/// The session of a RESP client.
pub struct RespSession {
    local: Rc<LocalServer>,
    client: Rc<Client>,
    reader: RequestReader,
    ahead: LookAhead,
}

impl RespSession {
    pub(crate) fn open(local: Rc<LocalServer>, link: Link) -> RespSession {
        let server = &local.server;
        server.statistics.connections.fetch_add(1, Ordering::Relaxed);
        let id = server.new_client_id();
        let shared = Arc::new(ClientShared::new(id, link.peer(), local.number, now()));
        let is_open = server.settings.is_open();
        RespSession::of(local, Client::new(link, shared, is_open))
    }

    pub(crate) fn resume(local: Rc<LocalServer>, link: Link, moved: MovedClient) -> RespSession {
        moved.shared.worker.store(local.number, Ordering::Relaxed);
        RespSession::of(local, Client::resume(link, moved))
    }

    fn of(local: Rc<LocalServer>, client: Client) -> RespSession {
        let client = Rc::new(client);
        local.enter(&client);
        local.server.clients.lock().insert(client.id(), Arc::clone(&client.shared));
        RespSession { local, client, reader: RequestReader::default(), ahead: LookAhead::default() }
    }

    fn limits(&self) -> RequestLimits {
        RequestLimits {
            bulk_bytes_max: self.local.server.settings.bulk_bytes_max(),
            is_authenticated: self.client.is_authenticated.get(),
            ..RequestLimits::default()
        }
    }

    /// Executes the request that the reader has found. `Err` ends the link.
    fn execute(&mut self, bytes: &[u8]) -> Result<(), CloseReason> {
        let after = execute(&self.local, &self.client, self.reader.arguments(bytes));
        self.reader.next();
        match after {
            After::Continue => Ok(()),
            After::Close => Err(CloseReason::Done),
        }
    }
}

impl Session for RespSession {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        let outcome = self.take_requests(bytes);
        self.local.hold_back(&self.client);
        outcome
    }

    fn received_large(&mut self, _: Bytes) -> Result<(), CloseReason> {
        // This session announces no large frames.
        Err(CloseReason::Refused)
    }

    fn is_ready(&self) -> bool {
        !self.client.is_blocked()
    }

    fn watches_end(&self) -> bool {
        self.client.is_blocked()
    }

    fn is_established(&self) -> bool {
        self.client.is_authenticated.get()
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn park(&mut self) -> Option<Parked> {
        let moved = self.client.moved()?;
        self.local.remove(self.client.id());
        Some(Box::new(moved))
    }

    fn closed(&mut self) {
        self.local.end_pause_of(&self.client);
        self.local.remove(self.client.id());
        self.local.server.clients.lock().remove(&self.client.id());
        self.local.server.forget(&self.client);
    }
}

impl RespSession {
    /// Executes the requests in some bytes.
    fn take_requests(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        self.local.now.set(now());
        self.client.shared.used_at.store(self.local.now.get(), Ordering::Relaxed);
        if self.client.is_told() {
            self.local.take_letters();
        }
        let mut consumed = 0;
        // A client that was killed while it moved to this worker.
        if self.client.shared.is_killed.load(Ordering::Relaxed) {
            return Err(CloseReason::Done);
        }
        while !self.client.is_blocked() && !self.client.link.is_congested() {
            let (rest, limits) = (&bytes[consumed..], self.limits());
            match self.reader.read(rest, &limits) {
                Ok(Step::Request(count)) => {
                    if self.ahead.is_due() && count < rest.len() {
                        let database = self.client.database.get();
                        self.ahead.look(&self.local.server.keyspace, database, rest, &limits);
                    }
                    if self.local.postpone(&self.client, self.reader.arguments(rest)) {
                        // It is read again when the pause ends.
                        self.reader.next();
                        break;
                    }
                    self.execute(rest)?;
                    consumed += count;
                }
                Ok(Step::Nothing(count)) => {
                    self.reader.next();
                    consumed += count;
                }
                Ok(Step::Incomplete(at_least)) => {
                    let most = self.local.server.settings.request_bytes_max();
                    if at_least > most {
                        let peer = self.client.link.peer();
                        tracing::warn!(peer, "a request is longer than {most} bytes");
                        return Err(CloseReason::Refused);
                    }
                    return Ok(match at_least > rest.len() + MISSING_BYTES_MIN {
                        true => Consumed::Need { consumed, at_least },
                        false => Consumed::Bytes(consumed),
                    });
                }
                Err(error) => {
                    let mut output = self.client.link.output();
                    let mut reply = Reply::to_link(&mut output, self.client.version.get());
                    reply.error(&format!("ERR {error}"));
                    return Err(CloseReason::Refused);
                }
            }
        }
        Ok(Consumed::Bytes(consumed))
    }
}
