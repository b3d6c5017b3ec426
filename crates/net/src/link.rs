//! A link is one connection: it reads a batch, passes it to the session, and sends the answers.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use zodium_tls::PeerIdentity;
use zodium_types::{Held, Memory};

use crate::Protocol;
use crate::input::{Input, Shared};
use crate::metrics::LinkMetrics;
use crate::output::{Output, SLICES_FEW, SLICES_MAX};
use crate::session::{CloseReason, Parked, Session};

/// Limits of links, in memory, time and number.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Output high-water mark: while more bytes than this wait to be sent, no requests are read.
    pub output_bytes_high: usize,
    /// Most bytes of pushed messages that may wait to be sent; above, the peer is disconnected.
    /// Pushed messages are those that answer no request, such as invalidations.
    pub push_bytes_max: usize,
    /// Handshake timeout: longest time until [`Session::is_established`].
    ///
    /// It begins when the peer has connected; with TLS, at the end of the TLS handshake, which has
    /// a limit of its own. `Duration::MAX` means no timeout.
    pub handshake_time_max: Duration,
    /// Most connections; further ones are closed at once.
    pub connections_max: usize,
    /// Counts the memory that is held for all links.
    pub memory: Arc<Memory>,
}

/// Lowest value that `output_bytes_high` falls to while memory is short.
const OUTPUT_BYTES_LOW: usize = 64 << 10;
/// Lowest value that `push_bytes_max` falls to while memory is short.
const PUSH_BYTES_LOW: usize = 1 << 20;

impl Default for Limits {
    fn default() -> Self {
        Limits {
            output_bytes_high: 1 << 20,
            push_bytes_max: 16 << 20,
            handshake_time_max: Duration::from_secs(30),
            connections_max: usize::MAX,
            memory: Memory::new(u64::MAX),
        }
    }
}

/// Bytes that a link reads before the other links of its worker get their turn.
const TURN_BYTES: usize = 512 << 10;

/// A session's handle to its connection; all clones are the same link.
#[derive(Clone)]
pub struct Link {
    state: Rc<LinkState>,
}

struct LinkState {
    peer: String,
    protocol: Protocol,
    identity: Option<PeerIdentity>,
    limits: Limits,
    metrics: Arc<LinkMetrics>,
    output: RefCell<Output>,
    /// Memory that the output holds.
    held: RefCell<Held>,
    /// Pushed bytes in the output since it was last empty.
    push_bytes: Cell<usize>,
    closing: Cell<Option<CloseReason>>,
    /// The output may wait for the answers to the next requests.
    deferred: Cell<bool>,
    /// Bytes were read since [`Link::takes_activity`].
    is_active: Cell<bool>,
    /// Reads since [`Link::takes_reads`].
    reads: Cell<u32>,
    /// Another worker takes the link over as soon as its session can park.
    is_moving: Cell<bool>,
    /// Graceful stop: no more is read, and the link ends when its session is idle.
    stopping: Cell<bool>,
    ended: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// Tasks that wait until the output has shrunk to a number of bytes.
    draining: RefCell<Vec<(usize, Waker)>>,
}

impl Link {
    pub(crate) fn new(
        peer: String,
        protocol: Protocol,
        identity: Option<PeerIdentity>,
        limits: Limits,
        metrics: Arc<LinkMetrics>,
    ) -> Link {
        let held = RefCell::new(limits.memory.holder());
        Link {
            state: Rc::new(LinkState {
                peer,
                protocol,
                identity,
                limits,
                metrics,
                output: RefCell::default(),
                held,
                push_bytes: Cell::new(0),
                closing: Cell::new(None),
                deferred: Cell::new(false),
                is_active: Cell::new(false),
                reads: Cell::new(0),
                is_moving: Cell::new(false),
                stopping: Cell::new(false),
                ended: Cell::new(false),
                waker: RefCell::new(None),
                draining: RefCell::default(),
            }),
        }
    }

    /// Peer address, for log messages.
    pub fn peer(&self) -> &str {
        &self.state.peer
    }

    /// The protocol that its listener serves.
    pub fn protocol(&self) -> Protocol {
        self.state.protocol
    }

    /// The authenticated identity of the peer; `None` without TLS.
    pub fn identity(&self) -> Option<&PeerIdentity> {
        self.state.identity.as_ref()
    }

    /// The output queue. Outside of [`Session::received`], the session must [wake](Link::wake) the
    /// link after appending to it.
    pub fn output(&self) -> RefMut<'_, Output> {
        self.state.output.borrow_mut()
    }

    /// Counts bytes of a pushed message in the output, and ends the link above
    /// [`Limits::push_bytes_max`].
    pub fn note_push(&self, bytes: usize) {
        // Answers may keep the output from ever being empty, and may be most of it.
        let total = (self.state.push_bytes.get() + bytes).min(self.queued().len());
        self.state.push_bytes.set(total);
        if total > self.push_bytes_max() {
            tracing::warn!(
                peer = self.peer(),
                bytes = total,
                "the peer does not read its messages, disconnecting"
            );
            self.output().clear();
            self.close(CloseReason::Refused);
        }
    }

    /// Whether so many bytes wait to be sent that no more requests should be taken.
    pub fn is_congested(&self) -> bool {
        self.would_be_congested(&self.queued())
    }

    /// As [`Link::is_congested`], for an output that is borrowed already.
    pub fn would_be_congested(&self, output: &Output) -> bool {
        // The usual case reads no memory that workers share.
        let queued = output.len();
        queued > OUTPUT_BYTES_LOW.min(self.state.limits.output_bytes_high)
            && queued > self.congested_from()
    }

    fn congested_from(&self) -> usize {
        let Limits { memory, output_bytes_high, .. } = &self.state.limits;
        memory.share(OUTPUT_BYTES_LOW, *output_bytes_high)
    }

    fn push_bytes_max(&self) -> usize {
        let Limits { memory, push_bytes_max, .. } = &self.state.limits;
        memory.share(PUSH_BYTES_LOW, *push_bytes_max)
    }

    /// The counter of the memory that is held for links.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.state.limits.memory
    }

    fn metrics(&self) -> &LinkMetrics {
        &self.state.metrics
    }

    /// Waits while the link [is congested](Link::is_congested); false when it has ended.
    pub async fn uncongested(&self) -> bool {
        self.drained(self.congested_from()).await
    }

    /// Waits until at most `bytes` are left to be sent; false when the link has ended, or is about
    /// to. Answers that are larger than the output, such as blobs, are produced in this way.
    pub async fn drained(&self, bytes: usize) -> bool {
        std::future::poll_fn(|context| {
            let state = &self.state;
            if state.ended.get() || state.closing.get().is_some() {
                return Poll::Ready(false);
            }
            if self.queued().len() <= bytes {
                return Poll::Ready(true);
            }
            state.draining.borrow_mut().push((bytes, context.waker().clone()));
            Poll::Pending
        })
        .await
    }

    /// Wakes the link to send its output, and to take more requests if the session is ready.
    pub fn wake(&self) {
        if let Some(waker) = self.state.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Lets pushed messages leave together with the answers to the next requests.
    ///
    /// Used instead of [waking](Link::wake) the link at once. The caller must wake it later.
    pub fn defer(&self) {
        self.state.deferred.set(true);
    }

    /// Whether the peer has sent something since the last call: it will probably soon send more.
    pub fn takes_activity(&self) -> bool {
        self.state.is_active.take()
    }

    pub(crate) fn note_read(&self, bytes: usize) {
        self.state.is_active.set(true);
        self.state.reads.set(self.state.reads.get().saturating_add(1));
        self.metrics().bytes_received.add(bytes as u64);
    }

    /// Ends the link once the output is sent.
    pub fn close(&self, reason: CloseReason) {
        if self.state.closing.get().is_none() {
            self.state.closing.set(Some(reason));
            self.state.metrics.refused.add(u64::from(reason == CloseReason::Refused));
        }
        self.wake_draining(0);
        self.wake();
    }

    /// Number of reads since the last call: how busy the link was.
    pub(crate) fn takes_reads(&self) -> u32 {
        self.state.reads.take()
    }

    /// Whether another worker takes the link over, as soon as its session can park.
    pub(crate) fn set_moving(&self, is_moving: bool) {
        self.state.is_moving.set(is_moving);
        if is_moving {
            self.wake();
        }
    }

    pub(crate) fn stop(&self) {
        self.state.stopping.set(true);
        self.wake();
    }

    fn hold_output(&self, bytes: usize) {
        self.state.held.borrow_mut().set(bytes);
    }

    /// Takes what a session appended to the output when it parked.
    fn take_output(&self) -> Output {
        std::mem::take(&mut *self.output())
    }

    fn refuse_unregistered(&self) {
        let seconds = self.state.limits.handshake_time_max.as_secs_f64();
        tracing::info!(
            peer = self.peer(),
            "the peer did not register within {seconds} s, disconnecting"
        );
        self.close(CloseReason::Refused);
    }

    fn queued(&self) -> Ref<'_, Output> {
        self.state.output.borrow()
    }

    /// Wakes tasks that wait for the output to shrink to `left` bytes.
    fn wake_draining(&self, left: usize) {
        // Waking runs no task, so nothing is added meanwhile.
        let mut draining = self.state.draining.borrow_mut();
        for (_, waker) in draining.extract_if(.., |(bytes, _)| left <= *bytes) {
            waker.wake();
        }
    }

    /// Takes the deferral: whether the output may still wait.
    fn takes_deferred(&self) -> bool {
        let state = &self.state;
        let is_ending = state.stopping.get() || state.closing.get().is_some();
        let is_leaving = is_ending || state.is_moving.get();
        state.deferred.replace(false) && !is_leaving && !self.is_congested()
    }

    fn set_waker(&self, waker: &Waker) {
        let mut stored = self.state.waker.borrow_mut();
        if !stored.as_ref().is_some_and(|stored| stored.will_wake(waker)) {
            *stored = Some(waker.clone());
        }
    }
}

/// A session that has left its worker, and what is left to send.
pub(crate) struct Departed {
    pub(crate) parked: Parked,
    pub(crate) output: Output,
}

/// Drives a link until it ends, or until its session has parked.
pub(crate) async fn run<S, T>(
    mut stream: T,
    link: Link,
    mut session: S,
    shared: Rc<Shared>,
) -> Option<Departed>
where
    S: Session,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut input = Input::new(shared, link.memory().holder());
    let time_max = link.state.limits.handshake_time_max;
    let mut handshake = (time_max != Duration::MAX).then(|| Box::pin(sleep(time_max)));
    let result = std::future::poll_fn(|context| {
        link.set_waker(context.waker());
        let polled = poll_link(Pin::new(&mut stream), &link, &mut session, &mut input, context);
        if session.is_established() {
            handshake = None;
        }
        let end = handshake.as_mut().filter(|_| polled.is_pending());
        if end.is_some_and(|end| end.as_mut().poll(context).is_ready()) {
            // A client that has not registered waits for no answer that it needs.
            link.refuse_unregistered();
            return Poll::Ready(Ok(None));
        }
        polled
    })
    .await;
    link.state.ended.set(true);
    link.wake_draining(0);
    match result {
        Ok(Some(parked)) => return Some(Departed { parked, output: link.take_output() }),
        Ok(None) => {}
        Err(error) => tracing::debug!(peer = link.peer(), %error, "connection lost"),
    }
    session.closed();
    None
}

fn poll_link<S, T>(
    mut stream: Pin<&mut T>,
    link: &Link,
    session: &mut S,
    input: &mut Input,
    context: &mut Context<'_>,
) -> Poll<io::Result<Option<Parked>>>
where
    S: Session,
    T: AsyncRead + AsyncWrite,
{
    let mut turn_bytes = 0;
    let mut is_deferred = link.takes_deferred() && session.is_ready();
    loop {
        let flushed =
            if is_deferred { Poll::Ready(()) } else { poll_flush(stream.as_mut(), link, context)? };
        let stopped = link.state.stopping.get() && !session.is_busy();
        if stopped || link.state.closing.get().is_some() {
            ready!(flushed);
            return Poll::Ready(Ok(None));
        }
        if link.is_congested() || link.state.stopping.get() || !session.is_ready() {
            if session.watches_end() && !link.state.stopping.get() {
                if ready!(input.poll_read_ahead(stream.as_mut(), link, context))? == 0 {
                    link.close(CloseReason::Done);
                }
                continue;
            }
            // The flush, the session or the stop wakes this task.
            return Poll::Pending;
        }
        // Frames that had to wait come before new ones.
        if input.handle_waiting(link, session) {
            continue;
        }
        if turn_bytes >= TURN_BYTES {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        match input.poll_read(stream.as_mut(), link, session, context)? {
            // Half-closed: earlier requests are still answered, as far as that takes no waiting.
            Poll::Ready(0) => link.close(CloseReason::Done),
            Poll::Ready(count) => turn_bytes += count,
            // Nothing has come in that the deferred output could leave with.
            Poll::Pending if is_deferred => {}
            Poll::Pending
                if link.state.is_moving.get() && flushed.is_ready() && input.is_empty() =>
            {
                return session
                    .park()
                    .map_or(Poll::Pending, |parked| Poll::Ready(Ok(Some(parked))));
            }
            Poll::Pending => return Poll::Pending,
        }
        is_deferred = false;
    }
}

/// Sends as much as the socket takes; pending when bytes are left.
///
/// They may be left in the stream: one that encrypts keeps what the socket did not take.
fn poll_flush<T: AsyncWrite>(
    mut stream: Pin<&mut T>,
    link: &Link,
    context: &mut Context<'_>,
) -> io::Result<Poll<()>> {
    loop {
        let mut output = link.output();
        if output.is_empty() {
            let flushed = stream.as_mut().poll_flush(context)?;
            if flushed.is_ready() {
                link.state.push_bytes.set(0);
            }
            link.hold_output(0);
            return Ok(flushed);
        }
        let written = if output.is_in_few_slices() {
            poll_write::<SLICES_FEW, T>(stream.as_mut(), &output, context)
        } else {
            poll_write::<SLICES_MAX, T>(stream.as_mut(), &output, context)
        };
        match written? {
            Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(sent) => {
                output.advance(sent);
                let left = output.len();
                drop(output);
                link.wake_draining(left);
                link.state.metrics.bytes_sent.add(sent as u64);
            }
            Poll::Pending => {
                link.hold_output(output.len());
                return Ok(Poll::Pending);
            }
        }
    }
}

/// Writes once, with at most `SLICES` slices.
fn poll_write<const SLICES: usize, T: AsyncWrite>(
    stream: Pin<&mut T>,
    output: &Output,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let count = output.slices(&mut slices);
    match &slices[..count] {
        [one] => stream.poll_write(context, one),
        several => stream.poll_write_vectored(context, several),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::task::LocalSet;

    use super::*;
    use crate::session::Consumed;

    /// Answers each line; lines from 1 KiB on come as large frames. A line of `!` is an order to
    /// end.
    struct Lines {
        link: Link,
        answer_bytes: usize,
        seen: Rc<Cell<usize>>,
        closed: Rc<Cell<bool>>,
        is_established: bool,
    }

    impl Lines {
        fn answer(&self, line: &[u8]) -> Result<(), CloseReason> {
            self.seen.set(self.seen.get() + 1);
            if line == b"!\n" {
                return Err(CloseReason::Done);
            }
            let mut output = self.link.output();
            output.buffer().extend_from_slice(format!("{} ", line.len()).as_bytes());
            output.push(Bytes::from(vec![b'.'; self.answer_bytes]));
            Ok(())
        }
    }

    impl Session for Lines {
        fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
            let mut consumed = 0;
            while !self.link.is_congested() {
                let rest = &bytes[consumed..];
                // A line that begins with a number announces its own length.
                if let Some(length) =
                    rest.strip_prefix(b"#").and_then(|r| r.split(|b| *b == b'#').next())
                    && let Ok(frame) = std::str::from_utf8(length).unwrap_or_default().parse()
                    && rest.len() < frame
                {
                    return Ok(Consumed::Large { consumed, frame });
                }
                let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { break };
                self.answer(&rest[..=end])?;
                consumed += end + 1;
            }
            Ok(Consumed::Bytes(consumed))
        }

        fn received_large(&mut self, frame: Bytes) -> Result<(), CloseReason> {
            self.answer(&frame)
        }

        fn is_ready(&self) -> bool {
            true
        }

        fn is_established(&self) -> bool {
            self.is_established
        }

        fn is_busy(&self) -> bool {
            false
        }

        fn closed(&mut self) {
            self.closed.set(true);
        }
    }

    struct Running {
        peer: DuplexStream,
        link: Link,
        seen: Rc<Cell<usize>>,
        closed: Rc<Cell<bool>>,
    }

    /// A link over a pipe that holds 4 KiB each way.
    fn start(answer_bytes: usize, limits: Limits) -> Running {
        start_with(answer_bytes, limits, true)
    }

    fn start_with(answer_bytes: usize, limits: Limits, is_established: bool) -> Running {
        let (peer, stream) = tokio::io::duplex(4096);
        let link = Link::new("peer".to_owned(), Protocol::default(), None, limits, Arc::default());
        let (seen, closed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let session = Lines {
            link: link.clone(),
            answer_bytes,
            seen: Rc::clone(&seen),
            closed: Rc::clone(&closed),
            is_established,
        };
        let shared = Rc::new(Shared::new(512, None));
        tokio::task::spawn_local(run(stream, link.clone(), session, shared));
        Running { peer, link, seen, closed }
    }

    fn run_local(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    async fn settle() {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn frames_are_answered_however_they_are_cut() {
        run_local(async {
            for step in [1, 2, 3, 7, 100] {
                let mut running = start(0, Limits::default());
                for piece in b"a\nbb\nccc\n".chunks(step) {
                    running.peer.write_all(piece).await.unwrap();
                    settle().await;
                }
                let mut answer = [0; 6];
                running.peer.read_exact(&mut answer).await.unwrap();
                assert_eq!(&answer, b"2 3 4 ");
            }
        });
    }

    #[test]
    fn a_large_frame_comes_whole_between_small_ones() {
        run_local(async {
            let mut running = start(0, Limits::default());
            let mut large = b"#3000#".to_vec();
            large.resize(2999, b'x');
            large.push(b'\n');
            let sent = [b"a\n", &large[..], b"bb\n"].concat();
            running.peer.write_all(&sent).await.unwrap();
            let mut answer = [0; 9];
            running.peer.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"2 3000 3 ");
        });
    }

    #[test]
    fn a_peer_that_does_not_read_answers_gets_no_new_ones_and_loses_none() {
        run_local(async {
            let limits = Limits { output_bytes_high: 10_000, ..Limits::default() };
            let mut running = start(1000, limits);
            running.peer.write_all("a\n".repeat(100).as_bytes()).await.unwrap();
            settle().await;
            // 4 KiB are in the pipe; 10 KB and the answer that exceeded them wait.
            assert!(running.seen.get() <= 16, "{} were answered", running.seen.get());
            assert!(running.link.output().len() < 12_000);
            let mut answers = vec![0; 100 * 1002];
            running.peer.read_exact(&mut answers).await.unwrap();
            assert_eq!(running.seen.get(), 100);
        });
    }

    #[test]
    fn what_is_deferred_leaves_before_the_next_answer_or_when_the_link_is_woken() {
        run_local(async {
            let mut running = start(0, Limits::default());
            let news = |running: &Running| {
                running.link.output().buffer().extend_from_slice(b"news ");
                running.link.defer();
            };
            settle().await;
            news(&running);
            settle().await;
            assert_eq!(running.link.output().len(), 5);
            running.peer.write_all(b"a\n").await.unwrap();
            let mut answer = [0; 7];
            running.peer.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"news 2 ");
            news(&running);
            running.link.wake();
            running.peer.read_exact(&mut answer[..5]).await.unwrap();
            // Deferred output also leaves when the link ends.
            news(&running);
            running.link.stop();
            running.peer.read_exact(&mut answer[..5]).await.unwrap();
            assert_eq!(running.peer.read(&mut answer).await.unwrap(), 0);
        });
    }

    #[test]
    fn a_peer_that_lets_pushed_messages_pile_up_is_disconnected() {
        run_local(async {
            let limits = Limits { push_bytes_max: 50_000, ..Limits::default() };
            let mut running = start(0, limits);
            settle().await;
            for _ in 0..60 {
                running.link.output().push(Bytes::from(vec![b'!'; 1000]));
                running.link.note_push(1000);
                running.link.wake();
                settle().await;
            }
            assert!(running.closed.get());
            let mut rest = Vec::new();
            running.peer.read_to_end(&mut rest).await.unwrap();
            assert!(rest.len() <= 4096);
        });
    }

    #[test]
    fn answers_that_keep_the_output_full_are_not_held_against_a_peer_that_reads_them() {
        run_local(async {
            let limits = Limits { push_bytes_max: 30_000, ..Limits::default() };
            let mut running = start(0, limits);
            settle().await;
            running.link.output().push(Bytes::from(vec![b'.'; 20_000]));
            for _ in 0..100 {
                running.link.output().push(Bytes::from(vec![b'!'; 500]));
                running.link.note_push(500);
                running.link.wake();
                running.peer.read_exact(&mut [0; 500]).await.unwrap();
                settle().await;
            }
            assert!(!running.closed.get());
        });
    }

    #[test]
    fn output_produced_as_fast_as_it_is_read_never_exceeds_its_limit() {
        run_local(async {
            let mut running = start(0, Limits::default());
            settle().await;
            let link = running.link.clone();
            let producer = tokio::task::spawn_local(async move {
                for _ in 0..100 {
                    assert!(link.drained(3000).await);
                    link.output().push(Bytes::from(vec![b'.'; 1000]));
                    assert!(link.output().len() <= 4000);
                    link.wake();
                }
            });
            let mut taken = vec![0; 100 * 1000];
            running.peer.read_exact(&mut taken).await.unwrap();
            producer.await.unwrap();

            let link = running.link.clone();
            link.output().push(Bytes::from(vec![b'.'; 100_000]));
            let waiting = tokio::task::spawn_local(async move { link.drained(10).await });
            settle().await;
            assert!(!waiting.is_finished());
            drop(running.peer);
            running.link.wake();
            assert!(!waiting.await.unwrap(), "the link has ended");
        });
    }

    #[test]
    fn what_was_asked_before_the_end_is_answered() {
        run_local(async {
            let mut running = start(0, Limits::default());
            running.peer.write_all(b"a\nbb\n").await.unwrap();
            running.peer.shutdown().await.unwrap();
            let mut answers = String::new();
            running.peer.read_to_string(&mut answers).await.unwrap();
            assert_eq!(answers, "2 3 ");

            let mut running = start(0, Limits::default());
            running.peer.write_all(b"a\n!\nbb\n").await.unwrap();
            let mut answers = String::new();
            running.peer.read_to_string(&mut answers).await.unwrap();
            assert_eq!((answers.as_str(), running.seen.get()), ("2 ", 2));
        });
    }

    #[test]
    fn a_peer_that_does_not_register_in_time_is_disconnected_whatever_it_sends() {
        run_local(async {
            let limits = Limits { handshake_time_max: Duration::from_secs(5), ..Limits::default() };
            let mut running = start_with(0, limits.clone(), false);
            for _ in 0..4 {
                running.peer.write_all(b"x").await.unwrap();
                sleep(Duration::from_secs(1)).await;
                assert!(!running.closed.get());
            }
            sleep(Duration::from_secs(2)).await;
            assert!(running.closed.get());

            let known = start_with(0, limits, true);
            sleep(Duration::from_secs(3600)).await;
            assert!(!known.closed.get());
        });
    }

    #[test]
    fn while_memory_is_full_one_large_frame_after_the_other_comes_in() {
        run_local(async {
            let memory = Memory::new(1 << 20);
            let mut holder = memory.holder();
            holder.set(1 << 20);
            let limits = Limits { memory: Arc::clone(&memory), ..Limits::default() };
            let mut running: Vec<_> = (0..3).map(|_| start(0, limits.clone())).collect();
            let mut large = b"#300000#".to_vec();
            large.resize(300_000, b'x');
            let senders: Vec<_> = running
                .iter_mut()
                .map(|running| {
                    let (_, other) = tokio::io::duplex(1);
                    let peer = std::mem::replace(&mut running.peer, other);
                    let large = large.clone();
                    tokio::task::spawn_local(async move {
                        let mut peer = peer;
                        peer.write_all(&large).await.unwrap();
                        peer
                    })
                })
                .collect();
            settle().await;
            // For the links that wait only the first read of the frame is held.
            assert!(memory.held_bytes() < (1 << 20) + 310_000, "{}", memory.held_bytes());
            for sender in senders {
                let mut peer = sender.await.unwrap();
                let mut answer = [0; 7];
                peer.read_exact(&mut answer).await.unwrap();
                assert_eq!(&answer, b"300000 ");
            }
            assert_eq!(memory.held_bytes(), 1 << 20);
        });
    }

    #[test]
    fn a_frame_that_goes_past_full_memory_has_a_time_limit() {
        run_local(async {
            let memory = Memory::new(0);
            let limits = Limits { memory, ..Limits::default() };
            let mut running = start(0, limits);
            running.peer.write_all(b"#300000#").await.unwrap();
            for _ in 0..29 {
                running.peer.write_all(b"x").await.unwrap();
                sleep(Duration::from_secs(1)).await;
                assert!(!running.closed.get());
            }
            sleep(Duration::from_secs(3)).await;
            assert!(running.closed.get());
        });
    }

    #[test]
    fn while_memory_is_short_less_waits_to_be_sent() {
        run_local(async {
            let memory = Memory::new(8 << 20);
            let limits = Limits { memory: Arc::clone(&memory), ..Limits::default() };
            let mut running = start(1000, limits);
            running.peer.write_all("a\n".repeat(2000).as_bytes()).await.unwrap();
            settle().await;
            let before = running.link.output().len();
            assert_eq!(memory.held_bytes(), before as u64 / 4096 * 4096);
            let mut holder = memory.holder();
            holder.set(8 << 20);
            assert!(running.link.is_congested() == (before > OUTPUT_BYTES_LOW));
            running.link.output().push(Bytes::from(vec![b'.'; OUTPUT_BYTES_LOW]));
            assert!(running.link.is_congested());
        });
    }

    /// Never ready, as long as it waits.
    struct Waiting {
        seen: Rc<Cell<usize>>,
        waits: Rc<Cell<bool>>,
        closed: Rc<Cell<bool>>,
    }

    impl Session for Waiting {
        fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
            self.seen.set(self.seen.get() + bytes.len());
            Ok(Consumed::Bytes(bytes.len()))
        }

        fn received_large(&mut self, _: Bytes) -> Result<(), CloseReason> {
            Err(CloseReason::Refused)
        }

        fn is_ready(&self) -> bool {
            !self.waits.get()
        }

        fn watches_end(&self) -> bool {
            self.waits.get()
        }

        fn is_established(&self) -> bool {
            true
        }

        fn is_busy(&self) -> bool {
            false
        }

        fn closed(&mut self) {
            self.closed.set(true);
        }
    }

    #[test]
    fn the_end_of_a_peer_is_noticed_while_its_session_waits() {
        run_local(async {
            let (mut peer, stream) = tokio::io::duplex(1 << 20);
            let limits = Limits::default();
            let link =
                Link::new("peer".to_owned(), Protocol::default(), None, limits, Arc::default());
            let (seen, waits, closed) = (Rc::default(), Rc::new(Cell::new(true)), Rc::default());
            let session = Waiting {
                seen: Rc::clone(&seen),
                waits: Rc::clone(&waits),
                closed: Rc::clone(&closed),
            };
            let shared = Rc::new(Shared::new(512, None));
            tokio::task::spawn_local(run(stream, link.clone(), session, shared));
            peer.write_all(&[b'x'; 200_000]).await.unwrap();
            settle().await;
            // What was read ahead waits, and is bounded.
            assert_eq!(seen.get(), 0);
            assert!(link.memory().held_bytes() <= 64 << 10);
            waits.set(false);
            link.wake();
            for _ in 0..20 {
                settle().await;
            }
            assert_eq!(seen.get(), 200_000);
            waits.set(true);
            drop(peer);
            settle().await;
            assert!(closed.get());
        });
    }

    #[test]
    fn an_orderly_stop_ends_an_idle_link() {
        run_local(async {
            let mut running = start(0, Limits::default());
            settle().await;
            running.link.stop();
            assert_eq!(running.peer.read(&mut [0; 8]).await.unwrap(), 0);
            assert!(running.closed.get());
        });
    }
}
