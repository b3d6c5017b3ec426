//! A session of one client: handshake, registration, and dispatch of messages to its parts.
//!
//! Key decision: a session owns its parts, and no part knows the session. So each part has its own
//! data, and can be read and tested alone.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use zodium_engine::commit::TransactionNumber;
use zodium_net::{CloseReason, Consumed, Link, Parked, Refusal};
use zodium_pickle::Value;
use zodium_storage::StorageError;
use zodium_types::Tid;
use zodium_zeo::codec::frame::{FrameError, HEADER_LENGTH, Peek, encode_frame, peek_frame};
use zodium_zeo::codec::{
    CodecError, Encoding, Greeting, Message, begun_transaction, decode_load_before, decode_message,
};

use crate::cached_loads::answer_cached_loads;
use crate::call::{Arguments, Method};
use crate::exception::{Exception, tid_value};
use crate::foreign_protocol::ForeignProtocol;
use crate::info::send_info;
use crate::invalidations::Invalidations;
use crate::loads::load_before;
use crate::local::{LocalServer, MonitoredSession};
use crate::moving::{MovingNotices, MovingSession};
use crate::parts::{Parts, Registration};
use crate::replies::{Replies, Reply, ReplyTo};
use crate::reports::SessionReport;
use crate::subscriber::{Recipient, StorageSubscriber};

/// Length from which on a frame gets a buffer of its own, whose data are not copied.
const LARGE_FRAME_BYTES: usize = 64 << 10;

/// Longest greeting. One of ZEO has 2 or 4 bytes; a longer one is of another protocol.
const HELLO_BYTES_MAX: u32 = 16;

/// Longest message before registration, which takes only the name of a storage.
const REGISTRATION_BYTES_MAX: u32 = 64 << 10;

/// Characters of a client's label that are kept.
const LABEL_SHOWN_MAX: usize = 200;

/// Characters of names from clients that are shown in errors and logs.
const NAME_SHOWN_MAX: usize = 100;

/// A handle to a session, for its link.
pub struct SessionHandle {
    session: Rc<Session>,
}

struct Session {
    local: Rc<LocalServer>,
    link: Link,
    number: u64,
    /// Known once the client has answered the greeting.
    encoding: Cell<Option<Encoding>>,
    /// There are none before registration.
    parts: OnceCell<Parts>,
    /// The client's name for itself.
    label: RefCell<String>,
    connected: Instant,
    /// Whether the connection has ended. Relaxed: other threads only end their jobs earlier.
    gone: Arc<AtomicBool>,
}

impl SessionHandle {
    /// Opens a session, which greets its client.
    pub(crate) fn open(local: Rc<LocalServer>, link: Link) -> SessionHandle {
        put_frame(&link, local.server.config.encoding.announcement());
        let session = Session::new(local, link, Instant::now());
        session.local.add(session.number, Rc::<Session>::clone(&session));
        SessionHandle { session }
    }

    /// Continues a session of another worker; `None` if the client may no longer use its storage.
    pub(crate) fn resume(
        local: Rc<LocalServer>,
        link: Link,
        moving: MovingSession,
    ) -> Option<SessionHandle> {
        let MovingSession { encoding, storage, read_only, label, connected, notices } = moving;
        let subscriber = Rc::clone(local.subscriber(&storage, link.identity())?);
        let session = Session::new(local, link, connected);
        session.encoding.set(Some(encoding));
        session.label.replace(label);
        subscriber.attend();
        session.add_parts(&subscriber, storage, read_only);
        notices.end(&subscriber, session.as_ref());
        subscriber.add(session.number, Rc::<Session>::clone(&session));
        session.local.add(session.number, Rc::<Session>::clone(&session));
        Some(SessionHandle { session })
    }
}

impl zodium_net::Session for SessionHandle {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        self.session.catch_up()?;
        self.session.counted(|session| session.handle_frames(bytes))
    }

    fn received_large(&mut self, frame: Bytes) -> Result<(), CloseReason> {
        self.session.catch_up()?;
        let payload = frame.slice(HEADER_LENGTH..);
        self.session.counted(|session| session.handle_frame(&payload, Some(&payload)))
    }

    fn is_ready(&self) -> bool {
        self.session.is_ready()
    }

    fn is_established(&self) -> bool {
        self.session.parts.get().is_some()
    }

    fn is_busy(&self) -> bool {
        self.session.parts.get().is_some_and(|parts| parts.votes.is_finishing())
    }

    fn park(&mut self) -> Option<Parked> {
        let session = &self.session;
        let encoding = session.encoding.get()?;
        let parts = session.parts.get().filter(|parts| parts.is_idle())?;
        // Notices of its locks would go to this worker.
        parts.votes.end_reservation();
        let subscriber = &parts.peer.subscriber;
        let notices = MovingNotices::begin(subscriber);
        subscriber.remove(session.number);
        session.local.remove(session.number);
        Some(Box::new(MovingSession {
            encoding,
            storage: parts.storage.clone(),
            read_only: parts.read_only,
            label: session.label.take(),
            connected: session.connected,
            notices,
        }))
    }

    fn closed(&mut self) {
        let session = &self.session;
        session.gone.store(true, Ordering::Relaxed);
        session.local.remove(session.number);
        if let Some(parts) = session.parts.get() {
            parts.close();
        }
        let label = &*session.label.borrow();
        tracing::debug!(peer = session.link.peer(), label, "disconnected");
    }
}

impl Recipient for Session {
    fn link(&self) -> &Link {
        &self.link
    }

    fn invalidate(&self, messages: &mut Invalidations<'_>, range: Range<usize>) {
        if let Some(Parts { peer, .. }) = self.parts.get()
            && !range.is_empty()
        {
            peer.replies.push(messages.bytes(peer.replies.encoding(), range));
        }
    }

    fn granted(&self, number: TransactionNumber) {
        if let Some(parts) = self.parts.get() {
            parts.votes.granted(number);
        }
    }

    fn finished(&self, number: TransactionNumber, tid: Tid) {
        if let Some(parts) = self.parts.get() {
            parts.votes.finished(number, tid);
        }
    }

    fn finish_failed(&self, number: TransactionNumber, error: &StorageError) {
        if let Some(parts) = self.parts.get() {
            parts.votes.finish_failed(number, error);
        }
    }

    fn expired(&self, number: TransactionNumber) -> bool {
        let Some(parts) = self.parts.get().filter(|parts| parts.votes.expire(number)) else {
            return false;
        };
        tracing::warn!(
            storage = parts.storage,
            peer = self.link.peer(),
            label = *self.label.borrow(),
            transaction = number.0,
            "transaction timeout, disconnecting"
        );
        true
    }

    fn send_info(&self) {
        if let Some(parts) = self.parts.get() {
            send_info(&parts.peer);
        }
    }
}

impl MonitoredSession for Session {
    fn describe(&self) -> SessionReport {
        let parts = self.parts.get();
        SessionReport {
            peer: self.link.peer().to_owned(),
            label: self.label.borrow().clone(),
            storage: parts.map(|parts| parts.storage.clone()),
            read_only: parts.is_some_and(|parts| parts.read_only),
            connected: self.connected,
            unsent_bytes: self.link.output().len() as u64,
            jobs: parts.map_or(0, |parts| parts.peer.jobs.running()),
            iterators: parts.map_or(0, |parts| parts.iterators.len()),
            transaction: parts.and_then(|parts| parts.slot.borrow().report()),
        }
    }

    fn has_transaction(&self) -> bool {
        self.parts.get().is_some_and(|parts| parts.slot.borrow().is_used())
    }
}

impl Session {
    fn new(local: Rc<LocalServer>, link: Link, connected: Instant) -> Rc<Session> {
        Rc::new(Session {
            number: local.next_session(),
            link,
            encoding: Cell::new(None),
            parts: OnceCell::new(),
            label: RefCell::default(),
            connected,
            gone: Arc::default(),
            local,
        })
    }

    /// Makes the parts of a session that has none: it is registered from now on.
    fn add_parts(&self, subscriber: &Rc<StorageSubscriber>, storage: String, read_only: bool) {
        let encoding = self.encoding.get().unwrap_or(self.local.server.config.encoding);
        let registration = Registration {
            link: self.link.clone(),
            encoding,
            subscriber: Rc::clone(subscriber),
            session: self.number,
            storage,
            read_only,
            gone: Arc::clone(&self.gone),
        };
        let _ = self.parts.set(Parts::new(Rc::clone(&self.local), registration));
    }

    fn is_ready(&self) -> bool {
        self.parts.get().is_none_or(Parts::is_ready)
    }

    /// Handles the notices of all commits that the client can know of. One of them may end the
    /// link: the client's transaction has expired. Then no request is handled any more.
    fn catch_up(&self) -> Result<(), CloseReason> {
        if let Some(parts) = self.parts.get() {
            parts.peer.subscriber.catch_up();
        }
        if self.link.has_ended() { Err(CloseReason::Refused) } else { Ok(()) }
    }

    /// Longest frame accepted now: short before the greeting and before registration.
    fn frame_bytes_max(&self) -> u32 {
        match (self.encoding.get(), self.parts.get()) {
            (None, _) => HELLO_BYTES_MAX,
            (Some(_), None) => REGISTRATION_BYTES_MAX,
            (Some(_), Some(_)) => self.local.server.config.frame_bytes_max,
        }
    }

    /// Handles a batch of requests, and counts and times them together.
    fn counted<T>(self: &Rc<Self>, handle: impl FnOnce(&Rc<Session>) -> T) -> T {
        self.local.tally.begin();
        let result = handle(self);
        self.local.tally.end(self.parts.get().map(|parts| parts.peer.statistics().as_ref()));
        result
    }

    fn handle_frames(self: &Rc<Self>, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        let mut consumed = 0;
        while self.is_ready() && !self.link.is_congested() {
            let frame_bytes_max = self.frame_bytes_max();
            if let Some(parts) = self.parts.get() {
                consumed += answer_cached_loads(&parts.peer, &bytes[consumed..], frame_bytes_max);
            }
            let rest = &bytes[consumed..];
            match peek_frame(rest, frame_bytes_max) {
                Ok(Peek::Complete(payload)) => {
                    self.handle_frame(payload, None)?;
                    consumed += HEADER_LENGTH + payload.len();
                }
                Ok(Peek::Missing(missing)) => {
                    return Ok(begun_frame(consumed, rest.len(), missing));
                }
                Err(error) => return Err(self.refuse_frame(rest, &error)),
            }
        }
        Ok(Consumed::Bytes(consumed))
    }

    fn handle_frame(
        self: &Rc<Self>,
        payload: &[u8],
        frame: Option<&Bytes>,
    ) -> Result<(), CloseReason> {
        let Some(encoding) = self.encoding.get() else { return self.handle_hello(payload) };
        if let Some(parts) = self.parts.get()
            && let Some(load) = decode_load_before(encoding, payload)
        {
            load_before(&parts.peer, load.id(), load.oid, load.before);
            return Ok(());
        }
        let message = match decode_message(encoding, payload) {
            Ok(message) if message.is_heartbeat() => return Ok(()),
            Ok(message) => message,
            Err(error) => return self.handle_undecoded(encoding, payload, &error),
        };
        let Message { id, oneway, name, arguments } = message;
        let Some(method) = Method::parse(&name) else {
            return Err(self.refuse(&format!("unknown method {name:.*}", NAME_SHOWN_MAX)));
        };
        if payload.len() > method.bytes_max() {
            let length = payload.len();
            return Err(self.refuse(&format!("{name} with a message of {length} bytes")));
        }
        if (method == Method::Register) == self.parts.get().is_some() {
            return Err(self.refuse(&format!("{name} at the wrong time")));
        }
        let asked = self.local.tally.arrived();
        let reply_to = ReplyTo { id: (!oneway).then_some(id), method, asked };
        let result = match arguments {
            Some(arguments) => self.call(&reply_to, &name, arguments, frame),
            None => Err(Exception::type_error(format!("{name}(): arguments are a sequence"))),
        };
        if !matches!(result, Ok(Reply::Later)) {
            self.local.tally.count(method);
        }
        match (result, &reply_to.id) {
            (Ok(Reply::Value(value)), Some(id)) => self.replies(encoding).put_reply(id, &value),
            (Ok(_), _) => {}
            (Err(exception), Some(id)) => self.replies(encoding).put_error(id, &exception),
            (Err(exception), None) => {
                let text = format!("asynchronous {name}: {}", exception.name);
                return Err(self.refuse(&text));
            }
        }
        Ok(())
    }

    /// Handles a message that cannot be decoded. If it begins a transaction, its vote fails: a
    /// client would begin it again and again if the connection ended.
    fn handle_undecoded(
        &self,
        encoding: Encoding,
        payload: &[u8],
        error: &CodecError,
    ) -> Result<(), CloseReason> {
        if let Some(parts) = self.parts.get().filter(|parts| !parts.read_only)
            && payload.len() <= Method::Begin.bytes_max()
            && let Some(id) = begun_transaction(encoding, payload)
            && parts.stores.begin_refused(id, error).is_ok()
        {
            return Ok(());
        }
        Err(self.refuse(&error.to_string()))
    }

    fn replies(&self, encoding: Encoding) -> Cow<'_, Replies> {
        match self.parts.get() {
            Some(parts) => Cow::Borrowed(&parts.peer.replies),
            None => {
                let gone = Arc::clone(&self.gone);
                Cow::Owned(Replies::new(self.link.clone(), encoding, None, gone))
            }
        }
    }

    fn call(
        self: &Rc<Self>,
        to: &ReplyTo,
        name: &str,
        items: Vec<Value<'_>>,
        frame: Option<&Bytes>,
    ) -> Result<Reply, Exception> {
        let parts = self.parts.get();
        if to.method.writes() && parts.is_some_and(|parts| parts.read_only) {
            return Err(Exception::read_only());
        }
        let mut arguments = Arguments::new(to.method, name, items, frame)?;
        match (to.method, parts) {
            (Method::SetClientLabel, Some(_)) => self.set_label(&mut arguments),
            (_, Some(parts)) => parts.call(to, &mut arguments),
            (_, None) => self.register(&mut arguments),
        }
    }

    fn handle_hello(&self, payload: &[u8]) -> Result<(), CloseReason> {
        match Greeting::from_payload(payload) {
            Ok(Greeting::Session(encoding)) => {
                self.encoding.set(Some(encoding));
                Ok(())
            }
            Ok(Greeting::Monitor) => {
                let status = self.local.server.status_json(self.link.identity());
                put_frame(&self.link, status.as_bytes());
                Err(CloseReason::Done)
            }
            Err(error) => Err(self.refuse(&error.to_string())),
        }
    }

    fn register(self: &Rc<Self>, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let asked = arguments.value();
        let read_only = arguments.value().is_truthy();
        let name = match &asked {
            Value::Dict(_) | Value::List(_) => {
                return Err(Exception::type_error("register(): a storage is named by text"));
            }
            other => other.as_str().unwrap_or_default().to_owned(),
        };
        let Some(subscriber) = self.local.subscriber(&name, self.link.identity()).cloned() else {
            return Err(self.unknown_storage(&name));
        };
        let writable =
            !self.local.server.config.read_only && !subscriber.storage.reader().is_read_only();
        if !read_only && !writable {
            return Err(Exception::read_only());
        }
        if !read_only && self.is_of_python_2(&asked) {
            return Err(self.refuse_writes_of_python_2());
        }
        subscriber.attend();
        let last_seen = subscriber.last_seen();
        // A client that has registered cannot do so again.
        self.add_parts(&subscriber, name.clone(), read_only);
        // From here on the session gets every later commit.
        subscriber.add(self.number, Rc::<Session>::clone(self));
        tracing::debug!(peer = self.link.peer(), storage = name, read_only, "registered");
        Ok(Reply::Value(tid_value(last_seen)))
    }

    /// Whether a storage is named as only a client on Python 2 names it, in pickles.
    fn is_of_python_2(&self, name: &Value<'_>) -> bool {
        self.encoding.get() == Some(Encoding::Pickle) && matches!(name, Value::Bytes(_))
    }

    /// A pickled tid is not the `str` that ZODB expects on Python 2. It would report a commit as
    /// failed that has happened, and the application would repeat it.
    fn refuse_writes_of_python_2(&self) -> Exception {
        self.log_refused(
            Refusal::Protocol,
            "refused",
            "a client on Python 2 can only read in the encoding of this server; start it with \
             --msgpack",
        );
        let text = "clients on Python 2 can only read from this server, unless it is started with \
                    --msgpack";
        Exception::new("ZODB.POSException.ReadOnlyError", text)
    }

    /// The error for an unknown storage, and for one that this client may not use: the client does
    /// not learn that it exists.
    fn unknown_storage(&self, name: &str) -> Exception {
        let name = format!("{name:.*}", NAME_SHOWN_MAX);
        self.link.count_refusal(Refusal::Storage);
        let reason = format!("unknown storage {name:?}, or the client may not use it");
        self.log_refused(Refusal::Storage, "refused", &reason);
        let subject = self.subject();
        Exception::value_error(match subject {
            Some(subject) => format!("unknown storage: {name} (or not for {subject})"),
            None => format!("unknown storage: {name}"),
        })
    }

    fn set_label(&self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let label = arguments.text_bytes()?;
        let label: String = String::from_utf8_lossy(&label).chars().take(LABEL_SHOWN_MAX).collect();
        tracing::debug!(peer = self.link.peer(), label, "labelled");
        self.label.replace(label);
        Ok(Reply::Value(Value::None))
    }

    /// Refuses bytes that are not a frame. Before the greeting they may be of another protocol.
    fn refuse_frame(&self, bytes: &[u8], error: &FrameError) -> CloseReason {
        let foreign = ForeignProtocol::recognise(bytes).filter(|_| self.encoding.get().is_none());
        let Some(foreign) = foreign else { return self.refuse(&error.to_string()) };
        self.link.output().buffer().extend_from_slice(foreign.answer());
        self.refuse(foreign.reason())
    }

    fn refuse(&self, reason: &str) -> CloseReason {
        if self.parts.get().is_some() {
            let label = &*self.label.borrow();
            tracing::warn!(peer = self.link.peer(), label, reason, "disconnecting");
        } else {
            self.log_refused(Refusal::Protocol, "disconnecting", reason);
        }
        CloseReason::Refused
    }

    /// Logs why a peer is refused that is no client yet.
    fn log_refused(&self, refusal: Refusal, what: &'static str, reason: &str) {
        let (peer, subject) = (self.link.peer(), self.subject());
        match self.link.admits_log_of(refusal) {
            true => tracing::warn!(peer, subject, reason, "{what}"),
            false => tracing::debug!(peer, subject, reason, "{what}"),
        }
    }

    /// The subject of the client's certificate, if it has shown one.
    fn subject(&self) -> Option<&str> {
        self.link.identity().map(|identity| identity.subject.as_str())
    }
}

/// What was consumed before a frame that has begun.
fn begun_frame(consumed: usize, arrived: usize, missing: usize) -> Consumed {
    match arrived + missing {
        frame if frame > LARGE_FRAME_BYTES => Consumed::Large { consumed, frame },
        _ => Consumed::Bytes(consumed),
    }
}

/// Sends a frame of the handshake, whose payload is short.
fn put_frame(link: &Link, payload: &[u8]) {
    if let Err(error) = encode_frame(link.output().buffer(), payload) {
        tracing::error!(%error, "cannot answer a handshake");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_large_frame_gets_a_buffer_of_its_own() {
        for (arrived, missing) in [(4, 65_532), (65_535, 1), (0, 4), (10, 10)] {
            let small = begun_frame(7, arrived, missing);
            assert!(matches!(small, Consumed::Bytes(7)), "{arrived} of {missing} more bytes");
        }
        for (arrived, missing, length) in [(4, 65_533, 65_537), (65_536, 1, 65_537)] {
            let large = begun_frame(7, arrived, missing);
            assert!(matches!(large, Consumed::Large { consumed: 7, frame } if frame == length));
        }
    }
}
