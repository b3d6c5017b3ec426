//! A connection without a socket: bytes are in transit until the simulation delivers them.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Open,
    /// The client has closed its side; what it sent before still arrives.
    Finished,
    /// Closed on both sides; bytes in transit are lost.
    Reset,
}

/// The client's end and the network. Clones are the same connection.
#[derive(Clone)]
pub(crate) struct Pipe {
    state: Rc<RefCell<State>>,
}

struct State {
    /// Sent by the client, in transit.
    requests: BytesMut,
    /// Delivered, not read by the server.
    arrived: BytesMut,
    /// Sent by the server, in transit.
    replies: BytesMut,
    /// Most bytes in transit from the server.
    window: usize,
    standing: Standing,
    server_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The server's end.
pub(crate) struct ServerEnd {
    state: Rc<RefCell<State>>,
}

impl Pipe {
    pub(crate) fn new(window: usize) -> (Pipe, ServerEnd) {
        let state = Rc::new(RefCell::new(State {
            requests: BytesMut::new(),
            arrived: BytesMut::new(),
            replies: BytesMut::new(),
            window,
            standing: Standing::Open,
            server_closed: false,
            reader: None,
            writer: None,
        }));
        (Pipe { state: Rc::clone(&state) }, ServerEnd { state })
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        self.state.borrow_mut().requests.extend_from_slice(bytes);
    }

    /// Number of bytes in transit to the server.
    pub(crate) fn requests_under_way(&self) -> usize {
        self.state.borrow().requests.len()
    }

    pub(crate) fn replies_under_way(&self) -> usize {
        self.state.borrow().replies.len()
    }

    /// Delivers this many bytes to the server.
    pub(crate) fn deliver_requests(&self, count: usize) {
        let mut state = self.state.borrow_mut();
        let count = count.min(state.requests.len());
        let bytes = state.requests.split_to(count);
        state.arrived.extend_from_slice(&bytes);
        state.wake();
    }

    /// Delivers this many bytes to the client, appending them to `input`.
    pub(crate) fn deliver_replies(&self, count: usize, input: &mut BytesMut) {
        let mut state = self.state.borrow_mut();
        let count = count.min(state.replies.len());
        input.extend_from_slice(&state.replies[..count]);
        state.replies.advance(count);
        state.wake();
    }

    /// Closes the client's side: the server reads the end of the stream after what was sent.
    pub(crate) fn finish(&self) {
        let mut state = self.state.borrow_mut();
        if state.standing == Standing::Open {
            state.standing = Standing::Finished;
        }
        state.wake();
    }

    /// Resets the connection; the first `kept` bytes in transit to the client may still arrive.
    pub(crate) fn reset(&self, kept: usize) {
        let mut state = self.state.borrow_mut();
        state.standing = Standing::Reset;
        state.requests.clear();
        state.arrived.clear();
        state.replies.truncate(kept);
        state.wake();
    }

    /// Whether no more bytes can come from the server.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.borrow();
        let closed = state.server_closed || state.standing == Standing::Reset;
        closed && state.replies.is_empty()
    }

    /// Whether the server has ended it, and nothing else.
    pub(crate) fn is_ended_by_server(&self) -> bool {
        let state = self.state.borrow();
        state.server_closed && state.standing == Standing::Open
    }

    /// Whether the client has closed its side.
    pub(crate) fn is_finished(&self) -> bool {
        self.state.borrow().standing == Standing::Finished
    }
}

impl State {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

impl Drop for ServerEnd {
    fn drop(&mut self) {
        self.state.borrow_mut().server_closed = true;
    }
}

impl AsyncRead for ServerEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.state.borrow_mut();
        if state.standing == Standing::Reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if !state.arrived.is_empty() {
            let count = state.arrived.len().min(buffer.remaining());
            buffer.put_slice(&state.arrived[..count]);
            state.arrived.advance(count);
            return Poll::Ready(Ok(()));
        }
        if state.standing == Standing::Finished && state.requests.is_empty() {
            return Poll::Ready(Ok(()));
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for ServerEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state.borrow_mut();
        if state.standing == Standing::Reset {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = state.window.saturating_sub(state.replies.len()).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            state.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        state.replies.extend_from_slice(&bytes[..room]);
        Poll::Ready(Ok(room))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
