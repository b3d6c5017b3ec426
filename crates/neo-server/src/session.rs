//! The node's side of one link: greeting and framing.

use std::error::Error;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use tracing::{debug, warn};
use zodium_neo::{ConnectionId, GREETING, Greeting, Packet, Scan, Scanner, read_greeting};
use zodium_net::{CloseReason, Consumed, Link, Service, Session};

/// What a session tells of its connection.
pub(crate) trait Connections {
    /// A connection is there; its name, or `None` if there is no node any more.
    fn opened(&self, link: &Link) -> Option<ConnectionId>;
    /// A packet has arrived. What follows from it is done at [`Connections::handled`].
    fn received(&self, connection: ConnectionId, packet: Packet<'_>);
    /// All packets that were there have been handed in.
    fn handled(&self);
    /// Whether the peer's requests are taken now. When they are again, the link is woken.
    fn takes_requests(&self, connection: ConnectionId) -> bool;
    /// A peer is refused, for a reason of this kind. `Some(times)`: log it; so many have no line.
    fn admit_refusal(&self, peer: &str, kind: &str) -> Option<u64>;
    /// The connection has ended.
    fn closed(&self, connection: ConnectionId);
}

/// Opens the sessions of links.
pub(crate) struct Sessions {
    /// The connections, which own the host, which owns this.
    connections: Weak<dyn Connections>,
}

/// One link; `None` after its end.
pub(crate) struct NodeSession(Option<Open>);

/// A link that is open.
struct Open {
    connections: Rc<dyn Connections>,
    link: Link,
    connection: ConnectionId,
    scanner: Scanner,
    has_greeted: bool,
}

impl Sessions {
    pub(crate) fn new(connections: Weak<dyn Connections>) -> Sessions {
        Sessions { connections }
    }
}

impl Service for Sessions {
    type Session = NodeSession;

    fn open(&self, link: Link) -> NodeSession {
        let Some(connections) = self.connections.upgrade() else {
            link.close(CloseReason::Done);
            return NodeSession(None);
        };
        link.output().buffer().extend_from_slice(&GREETING);
        let Some(connection) = connections.opened(&link) else {
            link.close(CloseReason::Done);
            return NodeSession(None);
        };
        let scanner = Scanner::default();
        NodeSession(Some(Open { connections, link, connection, scanner, has_greeted: false }))
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
            Err(error) => Err(self.refuse(error.kind(), &error, "closing a connection")),
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
                Err(error) => return Err(self.malformed(&error)),
            };
            consumed += frame.bytes().len();
            match Packet::decode(frame) {
                Ok(packet) => self.connections.received(self.connection, packet),
                Err(error) => return Err(self.malformed(&error)),
            }
        }
        Ok(Consumed::Bytes(consumed))
    }

    fn malformed(&self, error: &dyn Error) -> CloseReason {
        self.refuse("a malformed message", error, "a malformed message, closing the connection")
    }

    /// Logs why the connection ends, unless one of its host has ended for the same kind of reason a
    /// short time ago: nodes with wrong options, and probes, come again and again.
    fn refuse(&self, kind: &str, error: &dyn Error, what: &str) -> CloseReason {
        let peer = self.link.peer();
        match self.connections.admit_refusal(peer, kind) {
            Some(unlogged) => {
                let unlogged = (unlogged > 0).then_some(unlogged);
                warn!(peer, %error, unlogged, "{what}");
            }
            None => debug!(peer, %error, "{what}"),
        }
        CloseReason::Refused
    }
}

impl Session for NodeSession {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        let Some(session) = &mut self.0 else { return Err(CloseReason::Done) };
        let consumed = session.frames(bytes);
        session.connections.handled();
        consumed
    }

    fn received_large(&mut self, _: Bytes) -> Result<(), CloseReason> {
        // No message begins with its length, so none is announced.
        Err(CloseReason::Refused)
    }

    fn is_ready(&self) -> bool {
        let takes = |open: &Open| open.connections.takes_requests(open.connection);
        self.0.as_ref().is_some_and(takes)
    }

    fn is_established(&self) -> bool {
        self.0.as_ref().is_some_and(|session| session.has_greeted)
    }

    fn closed(&mut self) {
        let Some(session) = self.0.take() else { return };
        debug!(peer = session.link.peer(), "a connection has ended");
        session.connections.closed(session.connection);
    }
}
