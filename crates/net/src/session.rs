//! The traits that a protocol implements.

use std::any::Any;

use bytes::Bytes;

use crate::{Link, Refusal};

/// A session that was taken apart, on its way to another worker. Only its service knows its type.
pub type Parked = Box<dyn Any + Send>;

/// Creates sessions, one for each accepted link; belongs to one worker.
pub trait Service: 'static {
    /// The protocol's side of a link.
    type Session: Session;

    /// Opens the session of a new link. A greeting goes into its output now.
    fn open(&self, link: Link) -> Self::Session;

    /// Continues a session that another worker's service of this kind has [parked](Session::park).
    /// `None` closes the link; it is the answer of services whose sessions never park.
    fn resume(&self, link: Link, parked: Parked) -> Option<Self::Session> {
        drop((link, parked));
        None
    }
}

/// The protocol's side of one link. Only its worker calls it, one call at a time.
pub trait Session: 'static {
    /// Handles received bytes, which begin with those left over from the last call.
    ///
    /// The session takes whole frames off the front while [`Session::is_ready`], and returns how
    /// far it got.
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason>;

    /// Handles a frame that [`Consumed::Large`] announced, with its length prefix.
    fn received_large(&mut self, frame: Bytes) -> Result<(), CloseReason>;

    /// Whether the session takes more frames; otherwise the link stops reading.
    ///
    /// The session [wakes](Link::wake) the link when it becomes ready again.
    fn is_ready(&self) -> bool {
        true
    }

    /// Whether the session waits, while it is not ready, for an event that may be hours away. The
    /// link then reads a little ahead, so that it notices when the peer has gone.
    fn watches_end(&self) -> bool {
        false
    }

    /// Whether the peer has completed the protocol's handshake; from then on it may be silent.
    fn is_established(&self) -> bool;

    /// Whether work is under way that a graceful stop should wait for.
    fn is_busy(&self) -> bool {
        false
    }

    /// Takes the session apart, so that another worker can [resume](Service::resume) it. `None`
    /// while it is at work, or if its kind never moves.
    ///
    /// Called when all that was received is handled, and all answers are sent. What it appends to
    /// the output now is sent by the other worker. After `Some`, the session gets nothing any more.
    /// If it has ended its link meanwhile, what it returns is dropped, and it is
    /// [closed](Session::closed).
    fn park(&mut self) -> Option<Parked> {
        None
    }

    /// Cleans up after the link has ended; nothing can be sent any more.
    fn closed(&mut self);
}

/// How many bytes a session took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumed {
    /// So many bytes; the rest is not a whole frame, or must wait.
    Bytes(usize),
    /// So many bytes; the rest is the beginning of a large frame. It gets a buffer of its own,
    /// which the session can keep without a copy.
    Large {
        /// Bytes consumed before it.
        consumed: usize,
        /// Its length, prefix included.
        frame: usize,
    },
    /// So many bytes; the rest is the beginning of a frame whose length is not known yet. The
    /// session is called again when there are `at_least` bytes of it.
    Need {
        /// Bytes consumed before it.
        consumed: usize,
        /// The least length of the frame. More than what is there, or the session is called with
        /// each byte that arrives.
        at_least: usize,
    },
}

/// Why a link ends. Earlier answers are still sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The protocol ends it.
    Done,
    /// The peer broke the protocol; the session has logged how.
    Refused,
    /// The peer is refused for another reason, which has been logged.
    RefusedFor(Refusal),
}

impl CloseReason {
    /// Why the peer is refused; `None` if it is not.
    pub(crate) fn refusal(self) -> Option<Refusal> {
        match self {
            CloseReason::Done => None,
            CloseReason::Refused => Some(Refusal::Protocol),
            CloseReason::RefusedFor(refusal) => Some(refusal),
        }
    }
}
