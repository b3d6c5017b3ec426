//! The sessions of the server, which note in which order they execute requests.
//!
//! Key decision: all workers are on one thread, and a session executes requests within one call. So
//! the calls, with the bytes that each has taken, are the order of all commands.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use zodium_net::{CloseReason, Consumed, Link, Parked, Service, Session};
use zodium_resp_server::RespService;

/// What a session was called for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    /// It begins.
    Open,
    /// It has executed the requests of so many bytes.
    Taken(usize),
    /// It has executed requests, and ends its connection.
    Ended,
    /// The connection has ended: nothing is sent any more.
    Closed,
}

/// The calls of all sessions, with the numbers of their connections.
pub(super) type Record = Rc<RefCell<Vec<(usize, Call)>>>;

/// The service of a worker.
pub(super) struct RecordingService {
    pub(super) inner: RespService,
    pub(super) record: Record,
}

/// A session.
pub(super) struct RecordingSession {
    inner: <RespService as Service>::Session,
    connection: usize,
    record: Record,
}

impl RecordingSession {
    fn note(&self, call: Call) {
        self.record.borrow_mut().push((self.connection, call));
    }
}

impl Service for RecordingService {
    type Session = RecordingSession;

    fn open(&self, link: Link) -> RecordingSession {
        // The simulation numbers connections, and calls peers by these numbers.
        let connection = link.peer().parse().unwrap_or(usize::MAX);
        let record = Rc::clone(&self.record);
        let session = RecordingSession { inner: self.inner.open(link), connection, record };
        session.note(Call::Open);
        session
    }
}

impl Session for RecordingSession {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        let outcome = self.inner.received(bytes);
        self.note(match &outcome {
            Ok(Consumed::Bytes(taken)) => Call::Taken(*taken),
            Ok(Consumed::Large { consumed, .. } | Consumed::Need { consumed, .. }) => {
                Call::Taken(*consumed)
            }
            Err(_) => Call::Ended,
        });
        outcome
    }

    fn received_large(&mut self, frame: Bytes) -> Result<(), CloseReason> {
        self.inner.received_large(frame)
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    fn watches_end(&self) -> bool {
        self.inner.watches_end()
    }

    fn is_established(&self) -> bool {
        self.inner.is_established()
    }

    fn is_busy(&self) -> bool {
        self.inner.is_busy()
    }

    fn park(&mut self) -> Option<Parked> {
        self.inner.park()
    }

    fn closed(&mut self) {
        self.inner.closed();
        self.note(Call::Closed);
    }
}
