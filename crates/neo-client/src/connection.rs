//! A connection to a node: many requests in flight, each answered by its id.
//!
//! Key decision: the thread that asks writes its request to the socket. Which thread reads the
//! answers, `reading.rs` says.

use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tracing::{info, warn};
use zodium_neo::messages::Ping;
use zodium_neo::{GREETING, Greeting, Message, MessageIds, NodeId, Scanner, encode, read_greeting};
use zodium_transport::{InputBuffer, Patience, TICK, TlsSide, Transport, Turns};
use zodium_types::Address;

use crate::NeoError;

/// Longest time of connecting, of the TLS handshake and of the greeting, each.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// A node that accepts no byte for so long is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Interval between looks whether storages answer.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// A storage that has not answered for so many looks is reported. It was pinged at the first one.
const QUIET_LOOKS_MAX: u32 = 2;
/// Bytes of requests that are written at once.
const OUTPUT_BYTES: usize = 256 << 10;
/// A larger output buffer is not kept.
const OUTPUT_KEPT_BYTES_MAX: usize = 1 << 20;

/// Takes the answer of a request, on the thread that reads. It must not wait.
pub(crate) type Then = Box<dyn for<'a> FnOnce(Result<Message<'a>, NeoError>) + Send>;

/// Is told of what a node sends without being asked, in its order, on the thread that reads.
pub(crate) trait Receiver: Send + Sync {
    /// A notification.
    fn notified(&self, connection: &Connection, message: Message<'_>);
    /// The connection has ended, and all its requests are answered with an error.
    fn ended(&self, connection: &Connection);
}

/// A connection to a node.
pub(crate) struct Connection {
    peer: Arc<str>,
    /// The storage; `None` for a master.
    pub(crate) node: Option<NodeId>,
    pub(crate) transport: Transport,
    pub(crate) receiver: Arc<dyn Receiver>,
    /// Locked while requests are written, so that ids go out in their order.
    pub(crate) output: Mutex<Output>,
    /// Locked by the thread that reads.
    pub(crate) reading: Mutex<Reading>,
    pub(crate) waiting: Mutex<Waiting>,
    /// The threads that wait for answers, and the background thread.
    pub(crate) turns: Turns,
    /// The background thread.
    background: OnceLock<Thread>,
    /// Number of looks since which requests wait and no answer has come.
    quiet_looks: AtomicU32,
}

#[derive(Default)]
pub(crate) struct Output {
    ids: MessageIds,
    buffer: BytesMut,
}

/// What was read and not handed out.
pub(crate) struct Reading {
    pub(crate) input: InputBuffer,
    pub(crate) scanner: Scanner,
}

/// The requests that are not answered yet.
#[derive(Default)]
pub(crate) struct Waiting {
    ended: Option<NeoError>,
    pub(crate) thens: FxHashMap<u32, Then>,
    /// Number of [`Attended`].
    pub(crate) attended: usize,
    /// Number of answers.
    pub(crate) answered: u64,
    /// That number at the last look, if requests waited then.
    looked: Option<u64>,
}

/// A connection that the background thread reads, since answers are not waited for one by one.
pub(crate) struct Attended(Arc<Connection>);

/// Requests and notifications that are written together.
pub(crate) struct Batch<'c> {
    connection: &'c Connection,
    output: &'c mut Output,
}

impl Connection {
    /// Connects and greets, and starts the thread that reads.
    pub(crate) fn open(
        (name, node): (&str, Option<NodeId>),
        address: &Address,
        (tls, patience): (Option<&TlsSide>, &Patience),
        receiver: Arc<dyn Receiver>,
    ) -> Result<Arc<Connection>, NeoError> {
        let peer: Arc<str> = format!("{name} at {address}").into();
        let lost = |error: &dyn ToString| NeoError::lost(&peer, error.to_string());
        let transport =
            Transport::open(address, tls, HANDSHAKE_TIME_MAX).map_err(|error| lost(&error))?;
        let input = greet(&transport).map_err(|reason| lost(&reason))?;
        let tick = node.map(|_| TICK);
        transport.wait_long(tick, SILENCE_MAX).map_err(|error| lost(&error))?;
        let turns = Turns::new(patience.clone()).map_err(|error| lost(&error))?;
        if node.is_none() {
            // The background thread reads a master's connection from the start to the end.
            turns.lead_at_once();
        }
        let reading = Mutex::new(Reading { input, scanner: Scanner::default() });
        let connection = Arc::new(Connection {
            node,
            transport,
            receiver,
            output: Mutex::default(),
            reading,
            waiting: Mutex::default(),
            turns,
            background: OnceLock::new(),
            quiet_looks: AtomicU32::new(0),
            peer,
        });
        let attending = Arc::clone(&connection);
        let attend = move || {
            attending.attend();
            attending.receiver.ended(&attending);
        };
        let started = thread::Builder::new().name("neo-reader".to_owned()).spawn(attend);
        let started =
            started.map_err(|error| NeoError::Thread { reason: error.to_string().into() })?;
        let _ = connection.background.set(started.thread().clone());
        Ok(connection)
    }

    /// The node and its address.
    pub(crate) fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    /// Whether it cannot be used any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.waiting.lock().ended.is_some()
    }

    /// Sends a notification.
    pub(crate) fn notify<'a>(&self, message: impl Into<Message<'a>>) -> Result<(), NeoError> {
        self.send(|batch| batch.notify(message))
    }

    /// Sends what `fill` adds, with as few writes as possible.
    ///
    /// # Errors
    /// When the connection had ended before, or a message is too long. What was added before that
    /// is sent. A request whose sending fails is answered with an error.
    pub(crate) fn send(
        &self,
        fill: impl FnOnce(&mut Batch<'_>) -> Result<(), NeoError>,
    ) -> Result<(), NeoError> {
        let mut output = self.output.lock();
        let mut batch = Batch { connection: self, output: &mut output };
        let filled = fill(&mut batch);
        batch.flush();
        if output.buffer.capacity() > OUTPUT_KEPT_BYTES_MAX {
            output.buffer = BytesMut::new();
        }
        filled
    }

    /// Ends the connection; the first reason counts. All requests are answered with it.
    pub(crate) fn end(&self, reason: &str) {
        let (error, thens) = {
            let mut waiting = self.waiting.lock();
            if waiting.ended.is_some() {
                return;
            }
            let error = NeoError::lost(&self.peer, reason);
            waiting.ended = Some(error.clone());
            (error, std::mem::take(&mut waiting.thens))
        };
        self.transport.shut_down();
        thens.into_values().for_each(|then| then(Err(error.clone())));
        self.wake_background();
    }

    /// Has the background thread read from now on, and as long as the guard lives.
    pub(crate) fn attended(self: &Arc<Self>) -> Attended {
        let is_first = {
            let mut waiting = self.waiting.lock();
            waiting.attended += 1;
            waiting.attended == 1
        };
        if is_first {
            self.wake_background();
        }
        Attended(Arc::clone(self))
    }

    /// Looks whether the node answers. If requests wait, and no answer has come since the last
    /// look, a ping asks: requests may wait for a lock at a node that is there.
    pub(crate) fn look(&self) {
        let is_quiet = {
            let mut waiting = self.waiting.lock();
            let answered = waiting.answered;
            let now = Some(answered).filter(|_| !waiting.thens.is_empty());
            std::mem::replace(&mut waiting.looked, now) == now && now.is_some()
        };
        if !is_quiet {
            if self.quiet_looks.swap(0, Ordering::Relaxed) >= QUIET_LOOKS_MAX {
                info!(peer = %self.peer, "the node answers again");
            }
            return;
        }
        let looks = self.quiet_looks.fetch_add(1, Ordering::Relaxed) + 1;
        if looks == 1 {
            self.ping();
        } else if looks == QUIET_LOOKS_MAX {
            let (peer, seconds) = (&self.peer, self.silent_seconds());
            match self.node {
                Some(_) => {
                    warn!(%peer, seconds, "a storage does not answer, and requests wait for it");
                }
                None => warn!(%peer, seconds, "the primary master does not answer"),
            }
        }
    }

    /// As [`Connection::look`], and asks the node although no request waits.
    pub(crate) fn look_and_ask(&self) {
        self.look();
        if self.waiting.lock().thens.is_empty() {
            self.ping();
        }
    }

    /// For how many seconds the node has not answered a ping either, if so.
    pub(crate) fn silent_seconds(&self) -> Option<u64> {
        let looks = self.quiet_looks.load(Ordering::Relaxed);
        let seconds = u64::from(looks) * LOOK_INTERVAL.as_secs();
        (looks >= QUIET_LOOKS_MAX && !self.has_ended()).then_some(seconds)
    }

    fn ping(&self) {
        // A thread that writes, and cannot, shows as much as a ping without an answer.
        let Some(mut output) = self.output.try_lock() else { return };
        let mut batch = Batch { connection: self, output: &mut output };
        // A connection that fails is noticed by its reader.
        let _ = batch.ask(Ping {}, Box::new(|_| ()));
        batch.flush();
    }

    fn wake_background(&self) {
        if let Some(background) = self.background.get() {
            background.unpark();
        }
    }
}

impl Waiting {
    /// Whether the background thread need not read for transactions, or cannot.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.attended == 0 || self.ended.is_some()
    }
}

impl Deref for Attended {
    type Target = Arc<Connection>;

    fn deref(&self) -> &Arc<Connection> {
        &self.0
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.0.waiting.lock().attended -= 1;
    }
}

impl Batch<'_> {
    /// Adds a request.
    pub(crate) fn ask<'a>(
        &mut self,
        request: impl Into<Message<'a>>,
        then: Then,
    ) -> Result<(), NeoError> {
        let id = self.output.ids.take();
        // Before it is written: the answer may come at once.
        {
            let mut waiting = self.connection.waiting.lock();
            if let Some(ended) = &waiting.ended {
                return Err(ended.clone());
            }
            waiting.thens.insert(id, then);
        }
        if let Err(error) = encode(id, request, &mut self.output.buffer) {
            self.connection.waiting.lock().thens.remove(&id);
            return Err(error.into());
        }
        self.flush_if_long();
        Ok(())
    }

    /// Adds a notification.
    pub(crate) fn notify<'a>(&mut self, message: impl Into<Message<'a>>) -> Result<(), NeoError> {
        let id = self.output.ids.take();
        encode(id, message, &mut self.output.buffer)?;
        self.flush_if_long();
        Ok(())
    }

    fn flush_if_long(&mut self) {
        if self.output.buffer.len() >= OUTPUT_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.output.buffer.is_empty() {
            return;
        }
        let sent = self.connection.transport.send(&self.output.buffer);
        self.output.buffer.clear();
        if let Err(error) = sent {
            self.connection.end(&error.to_string());
        }
    }
}

/// Exchanges greetings; gives what the node sent after its own.
fn greet(transport: &Transport) -> Result<InputBuffer, String> {
    let deadline = Instant::now() + HANDSHAKE_TIME_MAX;
    transport.send_by(&GREETING, Some(deadline)).map_err(|error| error.to_string())?;
    let mut input = InputBuffer::default();
    loop {
        match read_greeting(input.bytes()) {
            Ok(Greeting::Complete(length)) => {
                input.consume(length);
                return Ok(input);
            }
            Ok(Greeting::Need(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
        match transport.receive_by(&mut input, Some(deadline)) {
            Ok(0) => {
                return Err("it closed the connection without a greeting; check whether the \
                            cluster has TLS"
                    .to_owned());
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(no_greeting(&error)),
        }
    }
}

fn no_greeting(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let seconds = HANDSHAKE_TIME_MAX.as_secs();
            format!("no greeting within {seconds} s; it hangs or is overloaded")
        }
        _ => format!("no greeting: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_says_nothing_is_said_to_hang() {
        // What a socket says at the end of its time.
        let late = no_greeting(&io::Error::from_raw_os_error(11));
        assert_eq!(late, "no greeting within 10 s; it hangs or is overloaded");
        let reset = no_greeting(&io::ErrorKind::ConnectionReset.into());
        assert_eq!(reset, "no greeting: connection reset");
    }
}
