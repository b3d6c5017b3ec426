//! Bytes received on a link and not handled yet.
//!
//! Key decision: the beginning of a large frame grows only while the server has memory for it.
//! When memory is full, links with large frames are not read. One link at a time may go on to the
//! end of its frame, so memory becomes free again, whatever the peers send.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use zodium_types::{Held, Turn};

use crate::Refusal;
use crate::busy_poll::BusyPoll;
use crate::link::Link;
use crate::session::{CloseReason, Consumed, Session};

/// Longest time that one link may go past the memory limit; the others wait for the end of its
/// frame.
const TURN_TIME_MAX: Duration = Duration::from_secs(30);
/// Interval between two looks whether memory is free.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Most bytes that are read while the session waits; further ones stay in the system's buffers.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// State that all links of a worker share.
pub(crate) struct Shared {
    /// The read buffer; an idle link has none of its own.
    scratch: RefCell<Vec<u8>>,
    busy_poll: Option<BusyPoll>,
}

impl Shared {
    /// Creates a read buffer of `scratch_bytes`; every read is reported to `busy_poll`.
    pub(crate) fn new(scratch_bytes: usize, busy_poll: Option<BusyPoll>) -> Shared {
        Shared { scratch: RefCell::new(vec![0; scratch_bytes]), busy_poll }
    }

    /// Keeps the worker awake after requests; returns at once without busy polling.
    pub(crate) async fn stay_awake(&self) {
        if let Some(busy_poll) = &self.busy_poll {
            busy_poll.run().await;
        }
    }
}

pub(crate) struct Input {
    /// The beginning of a frame, or frames that have to wait.
    rest: BytesMut,
    /// Length of the large frame whose beginning `rest` is.
    large: Option<usize>,
    /// Bytes that `rest` needs before the session is called again; 0: any.
    needed: usize,
    shared: Rc<Shared>,
    held: Held,
    /// The right to go past the memory limit, and its end.
    turn: Option<(Turn, Pin<Box<Sleep>>)>,
    /// Runs while the link waits for memory.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Input {
    pub(crate) fn new(shared: Rc<Shared>, held: Held) -> Input {
        Input {
            rest: BytesMut::new(),
            large: None,
            needed: 0,
            shared,
            held,
            turn: None,
            pause: None,
        }
    }

    /// Whether all received bytes have been handled.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.large.is_none()
    }

    /// Passes waiting bytes to the session again; `true` if the session took any of them.
    pub(crate) fn handle_waiting<S: Session>(&mut self, link: &Link, session: &mut S) -> bool {
        if self.rest.is_empty() || self.large.is_some() || self.rest.len() < self.needed {
            return false;
        }
        let before = self.rest.len();
        let bytes = self.take_rest();
        self.handle(bytes, link, session);
        self.rest.len() != before || self.large.is_some()
    }

    /// Reads once, and passes whole frames to the session. `Ok(0)` is the end of the stream.
    pub(crate) fn poll_read<S, T>(
        &mut self,
        stream: Pin<&mut T>,
        link: &Link,
        session: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>>
    where
        S: Session,
        T: AsyncRead,
    {
        if self.large.is_some() || self.needed > 0 {
            ready!(self.poll_room(link, context));
        }
        let shared = Rc::clone(&self.shared);
        let mut scratch = shared.scratch.borrow_mut();
        // A read never goes past the end of a large frame, which is then alone in its buffer.
        let wanted = self.large.map_or(scratch.len(), |frame| frame - self.rest.len());
        let limit = wanted.min(scratch.len());
        let mut buffer = ReadBuf::new(&mut scratch[..limit]);
        ready!(stream.poll_read(context, &mut buffer)?);
        let bytes = buffer.filled();
        link.note_read(bytes.len());
        if let Some(busy_poll) = &shared.busy_poll {
            busy_poll.note_request();
        }
        if let Some(frame) = self.large {
            self.grow(frame, bytes, link, session);
        } else if self.rest.len() + bytes.len() < self.needed {
            self.rest.extend_from_slice(bytes);
        } else if self.rest.is_empty() {
            self.handle_slice(bytes, link, session);
        } else {
            let mut all = self.take_rest();
            all.extend_from_slice(bytes);
            self.handle(all, link, session);
        }
        self.held.set(self.rest.len());
        Poll::Ready(Ok(bytes.len()))
    }

    /// Reads without calling the session, which is not ready: to notice the end of the stream.
    /// `Ok(0)` is that end.
    pub(crate) fn poll_read_ahead<T: AsyncRead>(
        &mut self,
        stream: Pin<&mut T>,
        link: &Link,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let room = AHEAD_BYTES_MAX.saturating_sub(self.rest.len());
        if room == 0 || self.large.is_some() {
            return Poll::Pending;
        }
        let shared = Rc::clone(&self.shared);
        let mut scratch = shared.scratch.borrow_mut();
        let limit = room.min(scratch.len());
        let mut buffer = ReadBuf::new(&mut scratch[..limit]);
        ready!(stream.poll_read(context, &mut buffer)?);
        let bytes = buffer.filled();
        link.note_read(bytes.len());
        self.rest.extend_from_slice(bytes);
        self.held.set(self.rest.len());
        Poll::Ready(Ok(bytes.len()))
    }

    /// Waits until there is memory for more of a large frame, or until it is this link's turn.
    fn poll_room(&mut self, link: &Link, context: &mut Context<'_>) -> Poll<()> {
        let memory = link.memory();
        if !memory.is_full() {
            (self.turn, self.pause) = (None, None);
            return Poll::Ready(());
        }
        if self.turn.is_none() {
            let turn = memory.take_turn();
            self.turn = turn.map(|turn| (turn, Box::pin(sleep(TURN_TIME_MAX))));
        }
        if let Some((_, end)) = &mut self.turn {
            if end.as_mut().poll(context).is_ready() {
                let seconds = TURN_TIME_MAX.as_secs();
                let bytes = self.rest.len();
                tracing::warn!(
                    peer = link.peer(),
                    bytes,
                    "memory is short, and a large message did not arrive within {seconds} s, \
                     disconnecting"
                );
                link.close(CloseReason::RefusedFor(Refusal::Memory));
            }
            self.pause = None;
            return Poll::Ready(());
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(LOOK_AGAIN)));
        if pause.as_mut().poll(context).is_ready() {
            // Poll again: a timer that was reset wakes only tasks that have polled it since.
            pause.as_mut().reset(Instant::now() + LOOK_AGAIN);
            let _ = pause.as_mut().poll(context);
        }
        Poll::Pending
    }

    fn grow<S: Session>(&mut self, frame: usize, bytes: &[u8], link: &Link, session: &mut S) {
        self.rest.extend_from_slice(bytes);
        if self.rest.len() == frame {
            (self.large, self.turn) = (None, None);
            let frame = self.take_rest().freeze();
            if let Err(reason) = session.received_large(frame) {
                link.close(reason);
            }
        }
    }

    fn take_rest(&mut self) -> BytesMut {
        std::mem::take(&mut self.rest)
    }

    fn handle<S: Session>(&mut self, mut bytes: BytesMut, link: &Link, session: &mut S) {
        match session.received(&bytes) {
            Ok(consumed) => {
                let _ = bytes.split_to(taken_of(consumed));
                self.rest = bytes;
                self.note_wanted(consumed);
                self.held.set(self.rest.len());
            }
            Err(reason) => link.close(reason),
        }
    }

    /// Notes how much of the rest the session waits for.
    fn note_wanted(&mut self, consumed: Consumed) {
        let there_are = self.rest.len();
        (self.large, self.needed) = match consumed {
            Consumed::Bytes(_) => (None, 0),
            Consumed::Large { frame, .. } => (Some(frame).filter(|frame| *frame > there_are), 0),
            Consumed::Need { at_least, .. } => (None, at_least),
        };
        if self.needed <= there_are {
            self.needed = 0;
        }
        if self.large.is_none() && self.needed == 0 {
            (self.turn, self.pause) = (None, None);
        }
    }

    fn handle_slice<S: Session>(&mut self, bytes: &[u8], link: &Link, session: &mut S) {
        match session.received(bytes) {
            Ok(consumed) => {
                self.rest.extend_from_slice(&bytes[taken_of(consumed)..]);
                self.note_wanted(consumed);
            }
            Err(reason) => link.close(reason),
        }
    }
}

fn taken_of(consumed: Consumed) -> usize {
    match consumed {
        Consumed::Bytes(taken) => taken,
        Consumed::Large { consumed, .. } | Consumed::Need { consumed, .. } => consumed,
    }
}
