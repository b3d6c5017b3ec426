//! What has come in on a link and is not handled yet.
//!
//! Key decision: the beginning of a large frame grows only while the server has memory for it.
//! When there is none its sender is not read from, but for one at a time, which goes on to the end
//! of its frame: so what is held comes free again, whoever sends what.

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

use crate::busy_poll::BusyPoll;
use crate::link::Link;
use crate::session::{Consumed, Session, Verdict};

/// Who may go past the memory limit has so long to come to the end of its frame: others wait.
const TURN_TIME_MAX: Duration = Duration::from_secs(30);
/// Who waits for memory looks again after so long.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What all links of a worker share.
pub(crate) struct Shared {
    /// A read buffer: an idle link owns none.
    scratch: RefCell<Vec<u8>>,
    busy_poll: Option<BusyPoll>,
}

impl Shared {
    /// With a read buffer of so many bytes; `busy_poll` is told of whatever arrives.
    pub(crate) fn new(scratch_bytes: usize, busy_poll: Option<BusyPoll>) -> Shared {
        Shared { scratch: RefCell::new(vec![0; scratch_bytes]), busy_poll }
    }

    /// Keeps the worker awake as long as it should be; ends at once if it should not.
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
    shared: Rc<Shared>,
    held: Held,
    /// Until when the frame has to be there, for who may go past the memory limit.
    turn: Option<(Turn, Pin<Box<Sleep>>)>,
    /// Waits for memory.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Input {
    pub(crate) fn new(shared: Rc<Shared>, held: Held) -> Input {
        Input { rest: BytesMut::new(), large: None, shared, held, turn: None, pause: None }
    }

    /// Hands over again what had to wait; whether that has got any further.
    pub(crate) fn handle_waiting<S: Session>(&mut self, link: &Link, session: &mut S) -> bool {
        if self.rest.is_empty() || self.large.is_some() {
            return false;
        }
        let before = self.rest.len();
        let bytes = self.take_rest();
        self.handle(bytes, link, session);
        self.rest.len() != before || self.large.is_some()
    }

    /// Reads once, and hands what is whole to the session. 0 is the end of the stream.
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
        if self.large.is_some() {
            ready!(self.poll_room(link, context));
        }
        let shared = Rc::clone(&self.shared);
        let mut scratch = shared.scratch.borrow_mut();
        // Never past the end of a large frame: then it is alone in its buffer.
        let wanted = self.large.map_or(scratch.len(), |frame| frame - self.rest.len());
        let limit = wanted.min(scratch.len());
        let mut buffer = ReadBuf::new(&mut scratch[..limit]);
        ready!(stream.poll_read(context, &mut buffer)?);
        let bytes = buffer.filled();
        link.metrics().bytes_received.add(bytes.len() as u64);
        if let Some(busy_poll) = &shared.busy_poll {
            busy_poll.note_request();
        }
        if let Some(frame) = self.large {
            self.grow(frame, bytes, link, session);
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

    /// Waits until there is memory for more of a large frame, or it is this link's turn.
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
                    "memory is short, and a message did not come in {seconds} s, disconnecting"
                );
                link.close(Verdict::Refused);
            }
            self.pause = None;
            return Poll::Ready(());
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(LOOK_AGAIN)));
        if pause.as_mut().poll(context).is_ready() {
            // Once more: a timer that was reset wakes only who has polled it since.
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
            if let Err(verdict) = session.received_large(frame) {
                link.close(verdict);
            }
        }
    }

    fn take_rest(&mut self) -> BytesMut {
        std::mem::take(&mut self.rest)
    }

    fn handle<S: Session>(&mut self, mut bytes: BytesMut, link: &Link, session: &mut S) {
        match session.received(&bytes) {
            Ok(consumed) => {
                let (taken, large) = split(consumed);
                let _ = bytes.split_to(taken);
                self.rest = bytes;
                self.large = large.filter(|frame| *frame > self.rest.len());
                self.held.set(self.rest.len());
            }
            Err(verdict) => link.close(verdict),
        }
    }

    fn handle_slice<S: Session>(&mut self, bytes: &[u8], link: &Link, session: &mut S) {
        match session.received(bytes) {
            Ok(consumed) => {
                let (taken, large) = split(consumed);
                self.rest.extend_from_slice(&bytes[taken..]);
                self.large = large.filter(|frame| *frame > self.rest.len());
            }
            Err(verdict) => link.close(verdict),
        }
    }
}

fn split(consumed: Consumed) -> (usize, Option<usize>) {
    match consumed {
        Consumed::Bytes(taken) => (taken, None),
        Consumed::Large { consumed, frame } => (consumed, Some(frame)),
    }
}
