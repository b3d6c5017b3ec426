//! What a protocol has to provide.

use bytes::Bytes;

use crate::Link;

/// Makes sessions, one per accepted link; lives on one worker.
pub trait Service: 'static {
    /// The protocol's side of a link.
    type Session: Session;

    /// A link was accepted. A greeting goes into its output now.
    fn open(&self, link: Link) -> Self::Session;
}

/// The protocol's side of one link. Called by its worker only, never at once with itself.
pub trait Session: 'static {
    /// Bytes have arrived, and what was left over from before stands first. The session takes
    /// whole frames off the front, for as long as [`Session::is_ready`], and says how far it got.
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, Verdict>;

    /// A frame that [`Consumed::Large`] announced, length prefix and all.
    fn received_large(&mut self, frame: Bytes) -> Result<(), Verdict>;

    /// Whether more frames may be handed over: too many requests under way, and the link stops
    /// reading. The session [wakes](Link::wake) the link when that changes.
    fn is_ready(&self) -> bool;

    /// Whether the peer has introduced itself as the protocol wants; from then on it may be
    /// silent.
    fn is_established(&self) -> bool;

    /// Whether something is under way that an orderly stop should wait for.
    fn is_busy(&self) -> bool;

    /// The link is gone: nothing can be sent any more.
    fn closed(&mut self);
}

/// How far a session got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumed {
    /// So many bytes; what follows is not a whole frame, or must wait.
    Bytes(usize),
    /// So many bytes; then follows the beginning of a frame so long that it gets a buffer of its
    /// own, which can be kept without a copy.
    Large {
        /// Bytes consumed before it.
        consumed: usize,
        /// Its length, prefix included.
        frame: usize,
    },
}

/// Why a link ends. What was answered before is still sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the protocol has it.
    Done,
    /// The peer broke the protocol; the session has logged how.
    Refused,
}
