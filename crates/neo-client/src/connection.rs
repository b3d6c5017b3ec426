//! A connection to a node: many requests in flight, each answered by its id.
//!
//! Key decision: the thread that asks writes its request to the socket, and one thread for each
//! connection reads the answers and hands each to what waits for it. So an answer is handed over
//! once, and a request never.

use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tracing::debug;
use zodium_neo::messages::Pong;
use zodium_neo::{
    ErrorCode, GREETING, Greeting, Kind, Message, MessageIds, NodeId, Packet, Scan, Scanner,
    encode, read_greeting,
};
use zodium_transport::{InputBuffer, TlsSide, Transport};
use zodium_types::Address;

use crate::NeoError;
use crate::patience::Patience;
use crate::promise::Promise;

/// Longest time of connecting, of the TLS handshake and of the greeting, each.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// A node that accepts no byte for so long is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);
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
    patience: Patience,
    /// The storage; `None` for a master.
    pub(crate) node: Option<NodeId>,
    transport: Transport,
    /// Locked while requests are written, so that ids go out in their order.
    output: Mutex<Output>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Output {
    ids: MessageIds,
    buffer: BytesMut,
}

#[derive(Default)]
struct Waiting {
    ended: Option<NeoError>,
    thens: FxHashMap<u32, Then>,
}

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
        transport.wait_long(None, SILENCE_MAX).map_err(|error| lost(&error))?;
        let (output, waiting) = (Mutex::default(), Mutex::default());
        let (peer, patience) = (Arc::clone(&peer), patience.clone());
        let connection = Arc::new(Connection { peer, patience, node, transport, output, waiting });
        let reading = Arc::clone(&connection);
        let read = move || {
            let reason = reading.read(input, receiver.as_ref());
            reading.end(&reason);
            receiver.ended(&reading);
        };
        let started = thread::Builder::new().name("neo-reader".to_owned()).spawn(read);
        started.map_err(|error| NeoError::Thread { reason: error.to_string().into() })?;
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

    /// Sends a request. `take` makes of its answer what the caller waits for; `None` if it is
    /// another message.
    pub(crate) fn ask<'a, T: Send + 'static>(
        &self,
        request: impl Into<Message<'a>>,
        take: impl for<'m> FnOnce(Message<'m>) -> Option<T> + Send + 'static,
    ) -> Result<Promise<T>, NeoError> {
        let (promised, promise) = Promise::new(&self.peer, &self.patience);
        let peer = Arc::clone(&self.peer);
        let then: Then = Box::new(move |answer| {
            // The caller may have given up.
            let _ = promised.send(answer.and_then(|message| {
                let name = message.name();
                take(message).ok_or(NeoError::Unexpected { peer, message: name })
            }));
        });
        self.send(|batch| batch.ask(request, then))?;
        Ok(promise)
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
    }

    /// Reads until the connection ends; the reason.
    fn read(&self, mut input: InputBuffer, receiver: &dyn Receiver) -> String {
        let mut scanner = Scanner::default();
        loop {
            let length = match scanner.scan(input.bytes()) {
                Ok(Scan::Complete(frame)) => match Packet::decode(frame) {
                    Ok(packet) => {
                        self.dispatch(packet, receiver);
                        frame.bytes().len()
                    }
                    Err(error) => return error.to_string(),
                },
                Ok(Scan::Need(_)) => 0,
                Err(error) => return error.to_string(),
            };
            if length > 0 {
                input.consume(length);
                continue;
            }
            match self.transport.receive(&mut input) {
                Ok(0) => return "the node closed the connection".to_owned(),
                Ok(_) => {}
                Err(error) if is_passing(error.kind()) => {}
                Err(error) => return error.to_string(),
            }
        }
    }

    fn dispatch(&self, packet: Packet<'_>, receiver: &dyn Receiver) {
        let Packet { id, message } = packet;
        match (message.kind(), message) {
            (Kind::Answer, message) => {
                let then = self.waiting.lock().thens.remove(&id);
                match then {
                    Some(then) => then(self.answer(message)),
                    None => debug!(peer = %self.peer, id, "an answer to no request"),
                }
            }
            (Kind::Notification, message) => receiver.notified(self, message),
            (_, Message::Ping(_)) => {
                let mut pong = BytesMut::new();
                if encode(id, Pong {}, &mut pong).is_ok() {
                    let _output = self.output.lock();
                    // A connection that fails is noticed by its reader.
                    let _ = self.transport.send(&pong);
                }
            }
            (_, message) => debug!(peer = %self.peer, message = message.name(), "not for clients"),
        }
    }

    /// An error of the node, unless it stands for success.
    fn answer<'a>(&self, message: Message<'a>) -> Result<Message<'a>, NeoError> {
        match message {
            Message::Error(error) if error.code != ErrorCode::Ack => Err(NeoError::Refused {
                peer: Arc::clone(&self.peer),
                code: error.code,
                message: error.message.into(),
            }),
            message => Ok(message),
        }
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
            Err(error) => return Err(format!("no greeting: {error}")),
        }
    }
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
