//! The node's side of one link: greeting and framing.

use std::rc::{Rc, Weak};

use bytes::Bytes;
use tracing::{debug, warn};
use zodium_neo::{GREETING, Greeting, Packet, Scan, Scanner, read_greeting};
use zodium_neo_storage::ConnectionId;
use zodium_net::{CloseReason, Consumed, Link, Service, Session};

use crate::driver::Driver;

/// Opens the sessions of links.
pub(crate) struct Sessions {
    /// The driver owns the host, which owns this.
    driver: Weak<Driver>,
}

/// One link; `None` after its end.
pub(crate) struct NodeSession(Option<Open>);

/// A link that is open.
struct Open {
    driver: Rc<Driver>,
    link: Link,
    connection: ConnectionId,
    scanner: Scanner,
    has_greeted: bool,
}

impl Sessions {
    pub(crate) fn new(driver: &Rc<Driver>) -> Sessions {
        Sessions { driver: Rc::downgrade(driver) }
    }
}

impl Service for Sessions {
    type Session = NodeSession;

    fn open(&self, link: Link) -> NodeSession {
        let Some(driver) = self.driver.upgrade() else {
            link.close(CloseReason::Done);
            return NodeSession(None);
        };
        link.output().buffer().extend_from_slice(&GREETING);
        let known = driver.opening.take();
        let connection = match known {
            Some(connection) => connection,
            None => driver.node.borrow_mut().accepted(link.peer().to_owned()),
        };
        driver.links.borrow_mut().insert(connection, link.clone());
        if known.is_some() {
            driver.node.borrow_mut().connected(connection);
            driver.apply();
        }
        let scanner = Scanner::default();
        NodeSession(Some(Open { driver, link, connection, scanner, has_greeted: false }))
    }
}

impl Open {
    /// Takes the greeting off the front; `None` while it is not whole.
    fn greeting(&mut self, bytes: &[u8]) -> Result<Option<usize>, CloseReason> {
        match read_greeting(bytes) {
            Ok(Greeting::Complete(length)) => {
                self.has_greeted = true;
                Ok(Some(length))
            }
            Ok(Greeting::Need(_)) => Ok(None),
            Err(error) => {
                warn!(peer = self.link.peer(), %error, "closing a connection");
                Err(CloseReason::Refused)
            }
        }
    }

    fn frames(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        let mut consumed = 0;
        if !self.has_greeted {
            match self.greeting(bytes)? {
                Some(length) => consumed = length,
                None => return Ok(Consumed::Bytes(0)),
            }
        }
        while consumed < bytes.len() {
            let frame = match self.scanner.scan(&bytes[consumed..]) {
                Ok(Scan::Complete(frame)) => frame,
                Ok(Scan::Need(at_least)) => return Ok(Consumed::Need { consumed, at_least }),
                Err(error) => return self.malformed(&error),
            };
            consumed += frame.bytes().len();
            match Packet::decode(frame) {
                Ok(packet) => self.driver.received(self.connection, packet),
                Err(error) => return self.malformed(&error),
            }
        }
        Ok(Consumed::Bytes(consumed))
    }

    fn malformed(&self, error: &dyn std::error::Error) -> Result<Consumed, CloseReason> {
        let peer = self.link.peer();
        warn!(peer, %error, "a malformed message, closing the connection");
        Err(CloseReason::Refused)
    }
}

impl Session for NodeSession {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        let Some(session) = &mut self.0 else { return Err(CloseReason::Done) };
        let consumed = session.frames(bytes);
        session.driver.apply();
        consumed
    }

    fn received_large(&mut self, _: Bytes) -> Result<(), CloseReason> {
        // No message begins with its length, so none is announced.
        Err(CloseReason::Refused)
    }

    fn is_ready(&self) -> bool {
        self.0.is_some()
    }

    fn is_established(&self) -> bool {
        self.0.as_ref().is_some_and(|session| session.has_greeted)
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn closed(&mut self) {
        let Some(session) = self.0.take() else { return };
        debug!(peer = session.link.peer(), "a connection has ended");
        session.driver.closed(session.connection);
    }
}
