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

use crate::input::{Input, Shared};
use crate::metrics::LinkMetrics;
use crate::output::{Output, SLICES_FEW, SLICES_MAX};
use crate::peer_log::PeerLog;
use crate::session::{CloseReason, Parked, Session};
use crate::{Protocol, Refusal};

/// Limits of links, in memory, time and number.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Output high-water mark: while more bytes than this wait to be sent, no requests are read.
    pub output_bytes_high: usize,
    /// Most bytes of pushed messages that may wait to be sent; above, the peer is disconnected.
    /// Pushed messages are those that answer no request, such as invalidations. While memory is
    /// short, fewer may wait, but one message still may be as large as this.
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
    log: PeerLog,
    output: RefCell<Output>,
    /// Memory that the output holds.
    held: RefCell<Held>,
    /// Bytes that the stream did not take yet, as they are counted.
    unsent: Cell<usize>,
    /// Pushed bytes in the output since it was last empty.
    push_bytes: Cell<usize>,
    closing: Cell<Option<CloseReason>>,
    /// Output was dropped: what is appended later would follow a hole, so nothing is sent any more.
    is_cut: Cell<bool>,
    /// The output may wait for the next answer.
    deferred: Cell<bool>,
    /// The link was woken since it last ran: its output must leave.
    is_woken: Cell<bool>,
    /// The stream did not take all output yet.
    is_flushing: Cell<bool>,
    /// Bytes were read since [`Link::takes_activity`].
    is_active: Cell<bool>,
    /// Reads since [`Link::takes_reads`].
    reads: Cell<u32>,
    /// Another worker takes the link over as soon as its session can park.
    is_moving: Cell<bool>,
    /// The output is not to be sent yet.
    is_held: Cell<bool>,
    /// Requests are taken however much waits to be sent.
    is_paced: Cell<bool>,
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
        log: PeerLog,
    ) -> Link {
        let held = RefCell::new(limits.memory.holder());
        Link {
            state: Rc::new(LinkState {
                peer,
                protocol,
                identity,
                limits,
                metrics,
                log,
                output: RefCell::default(),
                held,
                unsent: Cell::new(0),
                push_bytes: Cell::new(0),
                closing: Cell::new(None),
                is_cut: Cell::new(false),
                deferred: Cell::new(false),
                is_woken: Cell::new(false),
                is_flushing: Cell::new(false),
                is_active: Cell::new(false),
                reads: Cell::new(0),
                is_moving: Cell::new(false),
                is_held: Cell::new(false),
                is_paced: Cell::new(false),
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

    /// As [`Link::note_push`], for a message whose bytes the links of all its receivers share. It
    /// counts as half of [`Limits::push_bytes_max`] at most, so one message never ends a link,
    /// however large it is: the peer cannot read it before it is sent.
    ///
    /// A message may be sent in several forms, which share most of its bytes. `before` are those
    /// that were counted for forms before this one, for which `bytes` are what it adds. Returns the
    /// bytes that are counted.
    pub fn note_shared_push(&self, bytes: usize, before: usize) -> usize {
        let bytes = bytes.min(self.state.limits.push_bytes_max / 2);
        self.note_part(bytes, before);
        bytes
    }

    /// Counts bytes of a pushed message in the output, and ends the link above
    /// [`Limits::push_bytes_max`]. Nothing is sent from then on.
    pub fn note_push(&self, bytes: usize) {
        self.note_part(bytes, 0);
    }

    /// Counts bytes of a message, of which `before` were counted already.
    fn note_part(&self, bytes: usize, before: usize) {
        if self.state.is_cut.get() {
            self.output().clear();
            return;
        }
        // Answers may keep the output from ever being empty, and may be most of it.
        let total = (self.state.push_bytes.get() + bytes).min(self.queued().len());
        self.state.push_bytes.set(total);
        // A peer that reads all the time leaves nothing before a message, however large that is.
        let waited = total.saturating_sub(bytes + before);
        if waited > self.push_bytes_max() || total > self.state.limits.push_bytes_max {
            tracing::warn!(
                peer = self.peer(),
                bytes = total,
                "the peer does not read its messages, disconnecting"
            );
            self.cut(CloseReason::RefusedFor(Refusal::Unread));
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
            && !self.state.is_paced.get()
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

    /// Holds the output back, or lets it go. A link that is held does not end either, as its last
    /// answers must not be sent; the session wakes it when it lets go.
    pub fn hold(&self, is_held: bool) {
        self.state.is_held.set(is_held);
    }

    /// The link is never congested from now on: the session waits before it sends more.
    ///
    /// For peers that answer requests, too. Two that each have much to send, and read nothing until
    /// that is sent, would wait for each other.
    pub fn set_paced(&self) {
        self.state.is_paced.set(true);
    }

    /// Waits while the link [is congested](Link::is_congested); false when it has ended.
    pub async fn uncongested(&self) -> bool {
        self.drained(self.congested_from()).await
    }

    /// Whether the link has ended, or is about to: what is added now is not sent.
    pub fn has_ended(&self) -> bool {
        self.state.ended.get() || self.state.closing.get().is_some()
    }

    /// Waits until at most `bytes` are left to be sent; false when the link has ended, or is about
    /// to. Answers that are larger than the output, such as blobs, are produced in this way.
    pub async fn drained(&self, bytes: usize) -> bool {
        std::future::poll_fn(|context| {
            if self.has_ended() {
                return Poll::Ready(false);
            }
            if self.queued().len() <= bytes {
                return Poll::Ready(true);
            }
            self.state.draining.borrow_mut().push((bytes, context.waker().clone()));
            Poll::Pending
        })
        .await
    }

    /// Wakes the link to send its output, and to take more requests if the session is ready.
    pub fn wake(&self) {
        self.state.is_woken.set(true);
        if let Some(waker) = self.state.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Lets pushed messages leave together with the next answer. Requests that are not answered at
    /// once do not send them.
    ///
    /// Used instead of [waking](Link::wake) the link at once. The caller must wake it later.
    pub fn defer(&self) {
        self.state.deferred.set(true);
    }

    /// Whether the peer has sent something since [`Link::takes_activity`]: it will probably soon
    /// send more.
    pub fn is_active(&self) -> bool {
        self.state.is_active.get()
    }

    /// As [`Link::is_active`]; from now on only what the peer sends later counts.
    pub fn takes_activity(&self) -> bool {
        self.state.is_active.take()
    }

    pub(crate) fn note_read(&self, bytes: usize) {
        self.state.is_active.set(true);
        self.state.reads.set(self.state.reads.get().saturating_add(1));
        self.metrics().bytes_received.add(bytes as u64);
    }

    /// Whether a message about the refusal of a peer that is no client yet is to be logged. At most
    /// one is for each reason, source and minute: port scanners and health checks come again and
    /// again. The others belong in the log at level DEBUG; their number is logged. Must be called
    /// by the session.
    pub fn admits_log_of(&self, refusal: Refusal) -> bool {
        self.state.log.admits(refusal, self.peer())
    }

    /// Counts a refusal that does not end the link.
    pub fn count_refusal(&self, refusal: Refusal) {
        self.metrics().refused(refusal).add(1);
    }

    /// Ends the link once the output is sent.
    pub fn close(&self, reason: CloseReason) {
        if self.state.closing.get().is_none() {
            self.state.closing.set(Some(reason));
            reason.refusal().into_iter().for_each(|refusal| self.count_refusal(refusal));
        }
        self.wake_draining(0);
        self.wake();
    }

    /// Ends the link at once: what was not sent is dropped, as the peer may never read it.
    pub fn cut(&self, reason: CloseReason) {
        self.output().clear();
        self.state.is_cut.set(true);
        self.close(reason);
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
        let before = self.state.unsent.replace(bytes);
        if bytes != before {
            let counter = &self.metrics().unsent_bytes;
            counter.subtract(before as u64);
            counter.add(bytes as u64);
        }
    }

    /// Takes what a session appended to the output when it parked.
    fn take_output(&self) -> Output {
        std::mem::take(&mut *self.output())
    }

    fn refuse_unregistered(&self) {
        let (peer, seconds) = (self.peer(), self.state.limits.handshake_time_max.as_secs_f64());
        let text = format!("the peer did not register within {seconds} s, disconnecting");
        match self.admits_log_of(Refusal::Silent) {
            true => tracing::info!(peer, "{text}"),
            false => tracing::debug!(peer, "{text}"),
        }
        self.close(CloseReason::RefusedFor(Refusal::Silent));
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

    fn is_ending(&self) -> bool {
        self.state.stopping.get() || self.state.closing.get().is_some()
    }

    /// Takes the deferral: the bytes of the output if it may still wait.
    fn takes_deferred(&self) -> Option<usize> {
        let state = &self.state;
        let is_leaving = self.is_ending() || state.is_moving.get() || state.is_flushing.get();
        let must_leave = state.is_woken.replace(false) || is_leaving;
        let may_wait = state.deferred.replace(false) && !must_leave && !self.is_congested();
        may_wait.then(|| self.queued().len())
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
    link.hold_output(0);
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
    let deferred_bytes = link.takes_deferred().filter(|_| session.is_ready());
    loop {
        if link.state.is_cut.get() {
            return Poll::Ready(Ok(None));
        }
        // Until an answer is added, or the link ends.
        let is_deferred = deferred_bytes == Some(link.queued().len()) && !link.is_ending();
        let flushed = if link.state.is_held.get() {
            Poll::Pending
        } else if is_deferred {
            Poll::Ready(())
        } else {
            poll_flush(stream.as_mut(), link, context)?
        };
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
            Poll::Pending if is_deferred => {
                link.defer();
                return Poll::Pending;
            }
            Poll::Pending
                if link.state.is_moving.get() && flushed.is_ready() && input.is_empty() =>
            {
                let Some(parked) = session.park() else { return Poll::Pending };
                // Its last messages may be too many: it must not go on elsewhere without them.
                if link.state.closing.get().is_none() {
                    return Poll::Ready(Ok(Some(parked)));
                }
            }
            Poll::Pending => return Poll::Pending,
        }
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
            link.state.is_flushing.set(flushed.is_pending());
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
                link.state.is_flushing.set(true);
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
mod tests;
