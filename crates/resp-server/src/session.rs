//! The RESP side of a link: takes requests off the input, and executes them.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use zodium_keyspace::now;
use zodium_net::{CloseReason, Consumed, Link, Parked, Session};
use zodium_resp::{RequestLimits, RequestReader, Step};

use crate::batch::Batch;
use crate::client::{Client, ClientShared, MovedClient};
use crate::dispatch::{After, execute};
use crate::local::LocalServer;
use crate::parting::forget;
use crate::quick;
use crate::reply::Reply;

/// From so many missing bytes on, the session is not called before they are there.
const MISSING_BYTES_MIN: usize = 4 << 10;

/// The session of a RESP client.
pub struct RespSession {
    local: Rc<LocalServer>,
    client: Rc<Client>,
    reader: RequestReader,
}

impl RespSession {
    pub(crate) fn open(local: Rc<LocalServer>, link: Link) -> RespSession {
        let server = &local.server;
        server.statistics.connections.fetch_add(1, Ordering::Relaxed);
        let id = server.clients.new_id();
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
        local.server.clients.enter(&client.shared);
        RespSession { local, client, reader: RequestReader::default() }
    }

    fn limits(&self) -> RequestLimits {
        RequestLimits {
            bulk_bytes_max: self.local.server.settings.bulk_bytes_max(),
            is_authenticated: self.client.is_authenticated.get(),
            ..RequestLimits::default()
        }
    }

    fn takes_requests(&self) -> bool {
        !self.client.is_blocked() && !self.client.link.is_congested()
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

    fn park(&mut self) -> Option<Parked> {
        let moved = self.client.moved()?;
        self.local.remove(self.client.id());
        Some(Box::new(moved))
    }

    fn closed(&mut self) {
        self.local.end_pause_of(&self.client);
        self.local.remove(self.client.id());
        self.local.server.clients.leave(self.client.id());
        forget(&self.local.server, &self.client);
    }
}

impl RespSession {
    /// Executes the requests in some bytes.
    fn take_requests(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        self.local.clock.read();
        self.client.shared.used_at.store(self.local.clock.time(), Ordering::Relaxed);
        if self.client.is_told() {
            self.local.take_letters();
        }
        // A client that was killed while it moved to this worker, or has too many messages.
        let is_killed = self.client.shared.is_killed.load(Ordering::Relaxed);
        if is_killed || self.client.link.has_ended() {
            return Err(CloseReason::Done);
        }
        let mut batch = self.local.batch.take().unwrap_or_default();
        let outcome = self.take_batches(&mut batch, bytes);
        self.local.batch.set(Some(batch));
        outcome
    }

    fn take_batches(&mut self, batch: &mut Batch, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        let mut consumed = 0;
        while self.takes_requests() {
            self.local.clock.follow();
            let (rest, limits) = (&bytes[consumed..], self.limits());
            let behind = batch.read(&mut self.reader, rest, &limits);
            let (keyspace, reader) = (&self.local.server.keyspace, &self.local.reader);
            batch.look_ahead(rest, keyspace, reader, self.client.database.get());
            let (executed, is_open) = self.execute(batch, rest);
            consumed += batch.end_of(executed);
            let (is_whole, is_first) = (executed == batch.len(), executed == 0);
            batch.end(&mut self.reader, executed);
            if !is_open {
                return Err(CloseReason::Done);
            }
            if !is_whole {
                break;
            }
            match behind {
                Ok(Step::Request(_)) => {}
                Ok(Step::Nothing(count)) => consumed += count,
                Ok(Step::Incomplete(at_least)) => return self.wait_for(bytes, consumed, at_least),
                // The requests before it may have changed the limits.
                Err(_) if !is_first => {}
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

    /// Executes the requests of a batch; how many, and whether the link stays open. The others have
    /// to wait.
    fn execute(&self, batch: &Batch, bytes: &[u8]) -> (usize, bool) {
        for number in 0..batch.len() {
            if number > 0 && !self.takes_requests() {
                return (number, true);
            }
            let (arguments, place) = batch.request(number, bytes);
            if self.local.postpone(&self.client, arguments) {
                // It is read again when the pause ends.
                return (number, true);
            }
            if quick::execute(&self.local, &self.client, arguments, place) {
                continue;
            }
            let after = execute(&self.local, &self.client, arguments);
            self.local.clock.follow();
            // A client that has killed itself sends no more commands either.
            if after == After::Close || self.client.link.has_ended() {
                return (number, false);
            }
        }
        (batch.len(), true)
    }

    /// What the session needs to go on with a request that is not whole.
    fn wait_for(
        &self,
        bytes: &[u8],
        consumed: usize,
        at_least: usize,
    ) -> Result<Consumed, CloseReason> {
        let most = self.local.server.settings.request_bytes_max();
        if at_least > most {
            let peer = self.client.link.peer();
            tracing::warn!(peer, "a request is longer than {most} bytes");
            return Err(CloseReason::Refused);
        }
        Ok(match at_least > bytes.len() - consumed + MISSING_BYTES_MIN {
            true => Consumed::Need { consumed, at_least },
            false => Consumed::Bytes(consumed),
        })
    }
}
