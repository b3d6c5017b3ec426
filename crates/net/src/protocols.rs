//! Several protocols on the same workers: each listener says which one its connections speak.
//!
//! A worker of one protocol has its service alone. Beside others, a session is behind one virtual
//! call for each batch of requests.

use bytes::Bytes;

use crate::Link;
use crate::session::{CloseReason, Consumed, Parked, Service, Session};

/// A protocol: the place of its service in [`Protocols`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocol(pub usize);

/// The services of several protocols, as one. Each worker has its own.
#[derive(Default)]
pub struct Protocols {
    services: Vec<Box<dyn OpenSession>>,
}

/// A [`Service`] without its type.
trait OpenSession {
    fn open_session(&self, link: Link) -> Box<dyn Session>;

    fn resume_session(&self, link: Link, parked: Parked) -> Option<Box<dyn Session>>;
}

impl<S: Service> OpenSession for S {
    fn open_session(&self, link: Link) -> Box<dyn Session> {
        Box::new(self.open(link))
    }

    fn resume_session(&self, link: Link, parked: Parked) -> Option<Box<dyn Session>> {
        Some(Box::new(self.resume(link, parked)?))
    }
}

impl Protocols {
    /// Adds the service of the next protocol: the first one is `Protocol(0)`.
    #[must_use]
    pub fn with(mut self, service: impl Service) -> Protocols {
        self.services.push(Box::new(service));
        self
    }
}

impl Service for Protocols {
    type Session = Box<dyn Session>;

    fn open(&self, link: Link) -> Box<dyn Session> {
        let Protocol(place) = link.protocol();
        match self.services.get(place) {
            Some(service) => service.open_session(link),
            None => {
                tracing::error!(peer = link.peer(), protocol = place, "no service for a protocol");
                link.close(CloseReason::Refused);
                Box::new(Unserved)
            }
        }
    }

    fn resume(&self, link: Link, parked: Parked) -> Option<Box<dyn Session>> {
        let Protocol(place) = link.protocol();
        self.services.get(place)?.resume_session(link, parked)
    }
}

impl Session for Box<dyn Session> {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        self.as_mut().received(bytes)
    }

    fn received_large(&mut self, frame: Bytes) -> Result<(), CloseReason> {
        self.as_mut().received_large(frame)
    }

    fn is_ready(&self) -> bool {
        self.as_ref().is_ready()
    }

    fn watches_end(&self) -> bool {
        self.as_ref().watches_end()
    }

    fn is_established(&self) -> bool {
        self.as_ref().is_established()
    }

    fn is_busy(&self) -> bool {
        self.as_ref().is_busy()
    }

    fn park(&mut self) -> Option<Parked> {
        self.as_mut().park()
    }

    fn closed(&mut self) {
        self.as_mut().closed();
    }
}

/// The session of a link whose protocol has no service. The link is closed already.
struct Unserved;

impl Session for Unserved {
    fn received(&mut self, _: &[u8]) -> Result<Consumed, CloseReason> {
        Err(CloseReason::Refused)
    }

    fn received_large(&mut self, _: Bytes) -> Result<(), CloseReason> {
        Err(CloseReason::Refused)
    }

    fn is_ready(&self) -> bool {
        false
    }

    fn is_established(&self) -> bool {
        false
    }

    fn closed(&mut self) {}
}
