//! A session of one client: handshake, registration, and dispatch of messages to methods.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::Semaphore;
use zodium_engine::Storage;
use zodium_engine::commit::TransactionNumber;
use zodium_net::{CloseReason, Consumed, Link};
use zodium_pickle::Value;
use zodium_storage::StorageError;
use zodium_types::{Oid, Tid};

use super::blob_download::Downloads;
use super::blob_upload::Upload;
use super::call::{Arguments, Method};
use super::exception::Exception;
use super::foreign_protocol::ForeignProtocol;
use super::iterators::Iterators;
use super::jobs::{ANSWERING_MAX, JOBS_MAX};
use super::service::LocalServer;
use super::subscriber::{EncodedInvalidation, StorageSubscriber};
use super::transaction::{OpenTransaction, TransactionState};
use crate::codec::frame::{FrameError, HEADER_LENGTH, Peek, encode_frame, peek_frame};
use crate::codec::{Encoding, Greeting, Message, MessageId, decode_load_before, decode_message};

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

/// Size from which on invalidations are shared between sessions instead of copied.
const SHARED_BYTES_MIN: usize = 4096;

/// A shared handle to a session, which the link, the subscriber and jobs hold.
#[derive(Clone)]
pub struct SessionHandle {
    pub(crate) session: Rc<RefCell<Session>>,
    link: Link,
}

pub(crate) struct Session {
    pub(crate) local: Rc<LocalServer>,
    pub(crate) link: Link,
    pub(crate) number: u64,
    /// Known once the client has answered the greeting.
    pub(crate) encoding: Option<Encoding>,
    pub(crate) registration: Option<Registration>,
    pub(crate) transaction: Option<OpenTransaction>,
    pub(crate) iterators: Iterators,
    /// Requests in progress on blocking threads.
    pub(crate) jobs: usize,
    /// Places for requests whose answers may be large.
    pub(crate) answering: Arc<Semaphore>,
    /// Whether data of the open transaction are being written to a spool file.
    pub(crate) spilling: bool,
    /// The blob that is being received, and the number of blobs received so far.
    pub(crate) upload: Option<Upload>,
    pub(crate) uploads: u64,
    pub(crate) downloads: Downloads,
    /// Votes begun so far; distinguishes their jobs.
    pub(crate) attempts: u64,
    label: String,
    pub(crate) connected: Instant,
    closed: bool,
    /// As `closed`, for jobs. Relaxed: it only lets them end earlier.
    pub(crate) gone: Arc<AtomicBool>,
}

pub(crate) struct Registration {
    pub(crate) subscriber: Rc<StorageSubscriber>,
    pub(crate) name: String,
    pub(crate) read_only: bool,
}

/// The result of a method.
pub(crate) enum Reply {
    Value(Value<'static>),
    /// The reply will be sent later.
    Later,
}

/// The request that a later reply belongs to.
#[derive(Clone)]
pub(crate) struct ReplyTo {
    /// The id of the request; asynchronous calls get no reply.
    pub(crate) id: Option<MessageId>,
    pub(crate) method: Method,
    pub(crate) asked: Instant,
}

/// The context of a message: the request to answer, and the buffer of the message if it has one
/// of its own.
pub(crate) struct Context<'a> {
    pub(crate) handle: &'a SessionHandle,
    pub(crate) reply_to: ReplyTo,
    pub(crate) frame: Option<&'a Bytes>,
}

impl SessionHandle {
    pub(crate) fn open(local: Rc<LocalServer>, link: Link, number: u64) -> SessionHandle {
        put_frame(&link, local.server.config.encoding.announcement());
        let session = Session {
            local,
            link: link.clone(),
            number,
            encoding: None,
            registration: None,
            transaction: None,
            iterators: Iterators::default(),
            jobs: 0,
            answering: Arc::new(Semaphore::new(ANSWERING_MAX)),
            spilling: false,
            upload: None,
            uploads: 0,
            downloads: Downloads::default(),
            attempts: 0,
            label: String::new(),
            connected: Instant::now(),
            closed: false,
            gone: Arc::default(),
        };
        SessionHandle { session: Rc::new(RefCell::new(session)), link }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    fn catch_up(&self) {
        let subscriber = self.session.borrow().subscriber().cloned();
        if let Some(subscriber) = subscriber {
            subscriber.catch_up();
        }
    }

    pub(crate) fn invalidate(&self, message: &mut EncodedInvalidation<'_>) {
        let session = self.session.borrow();
        let Some(encoding) = session.encoding else { return };
        let bytes = match message.bytes(encoding) {
            Ok(bytes) => bytes,
            Err(error) => return session.check_sent(Err(error.clone())),
        };
        if bytes.len() < SHARED_BYTES_MIN {
            self.link.output().buffer().extend_from_slice(bytes);
        } else {
            self.link.output().push(bytes.clone());
        }
        self.link.note_push(bytes.len());
    }

    pub(crate) fn granted(&self, number: TransactionNumber) {
        self.session.borrow_mut().granted(self, number);
        self.link.wake();
    }

    pub(crate) fn finished(&self, number: TransactionNumber, tid: Tid) {
        self.session.borrow_mut().finished(number, tid);
    }

    pub(crate) fn finish_failed(&self, number: TransactionNumber, error: &Arc<StorageError>) {
        self.session.borrow_mut().finish_failed(number, error);
        self.link.wake();
    }

    pub(crate) fn expired(&self, number: TransactionNumber) {
        let session = self.session.borrow();
        tracing::warn!(
            peer = self.link.peer(),
            label = session.label,
            transaction = number.0,
            "transaction timeout, disconnecting"
        );
        if let Some(registration) = &session.registration {
            registration.subscriber.statistics.expired.add(1);
            registration.subscriber.disconnect(self);
        }
    }

    pub(crate) fn send_info(&self) {
        self.session.borrow().send_info();
        self.link.wake();
    }
}

impl zodium_net::Session for SessionHandle {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        self.catch_up();
        self.session.borrow_mut().counted(|session| session.handle_frames(self, bytes))
    }

    fn received_large(&mut self, frame: Bytes) -> Result<(), CloseReason> {
        self.catch_up();
        let payload = frame.slice(HEADER_LENGTH..);
        let mut session = self.session.borrow_mut();
        session.counted(|session| session.handle_frame(self, &payload, Some(&payload)))
    }

    fn is_ready(&self) -> bool {
        self.session.borrow().is_ready()
    }

    fn is_established(&self) -> bool {
        self.session.borrow().registration.is_some()
    }

    fn is_busy(&self) -> bool {
        self.session.borrow().is_busy()
    }

    fn closed(&mut self) {
        let mut session = self.session.borrow_mut();
        session.closed = true;
        session.gone.store(true, Ordering::Relaxed);
        session.drop_transaction();
        session.iterators.clear();
        session.downloads = Downloads::default();
        let number = session.number;
        session.local.sessions.borrow_mut().remove(&number);
        if let Some(registration) = session.registration.take() {
            registration.subscriber.remove(number);
        }
        tracing::debug!(peer = self.link.peer(), label = session.label, "disconnected");
    }
}

impl Session {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn is_ready(&self) -> bool {
        let memory = self.link.memory();
        let takes_chunks = self.upload.as_ref().is_none_or(|upload| upload.is_ready(memory));
        self.jobs + self.iterators.waiting() < JOBS_MAX && !self.spilling && takes_chunks
    }

    /// Whether a finish is in progress, which is answered before the server stops.
    fn is_busy(&self) -> bool {
        let state = self.transaction.as_ref().map(|transaction| &transaction.state);
        matches!(state, Some(TransactionState::Finishing { .. }))
    }

    /// The client's name for itself.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The subscriber of the session's storage; `None` before registration.
    pub(crate) fn subscriber(&self) -> Option<&Rc<StorageSubscriber>> {
        self.registration.as_ref().map(|registration| &registration.subscriber)
    }

    pub(crate) fn storage(&self) -> Option<Arc<Storage>> {
        self.subscriber().map(|subscriber| Arc::clone(&subscriber.storage))
    }

    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding.unwrap_or(self.local.server.config.encoding)
    }

    /// Longest frame accepted now: short before the greeting and before registration.
    pub(crate) fn frame_bytes_max(&self) -> u32 {
        match (self.encoding, &self.registration) {
            (None, _) => HELLO_BYTES_MAX,
            (Some(_), None) => REGISTRATION_BYTES_MAX,
            (Some(_), Some(_)) => self.local.server.config.frame_bytes_max,
        }
    }

    /// Handles a batch of requests, and counts and times them together.
    fn counted<T>(&mut self, handle: impl FnOnce(&mut Session) -> T) -> T {
        self.local.tally.begin();
        let result = handle(self);
        self.local.tally.end(self.subscriber().map(|subscriber| subscriber.statistics.as_ref()));
        result
    }

    fn handle_frames(
        &mut self,
        handle: &SessionHandle,
        bytes: &[u8],
    ) -> Result<Consumed, CloseReason> {
        let mut consumed = 0;
        while self.is_ready() && !self.link.is_congested() {
            consumed += self.answer_cached_loads(&bytes[consumed..]);
            let rest = &bytes[consumed..];
            match peek_frame(rest, self.frame_bytes_max()) {
                Ok(Peek::Complete(payload)) => {
                    self.handle_frame(handle, payload, None)?;
                    consumed += HEADER_LENGTH + payload.len();
                }
                Ok(Peek::Missing(missing)) if rest.len() + missing > LARGE_FRAME_BYTES => {
                    return Ok(Consumed::Large { consumed, frame: rest.len() + missing });
                }
                Ok(Peek::Missing(_)) => break,
                Err(error) => return Err(self.refuse_frame(rest, &error)),
            }
        }
        Ok(Consumed::Bytes(consumed))
    }

    fn handle_frame(
        &mut self,
        handle: &SessionHandle,
        payload: &[u8],
        frame: Option<&Bytes>,
    ) -> Result<(), CloseReason> {
        let Some(encoding) = self.encoding else { return self.handle_hello(payload) };
        if self.registration.is_some()
            && let Some(load) = decode_load_before(encoding, payload)
        {
            self.load_before(handle, load.id(), load.oid, load.before);
            return Ok(());
        }
        let message = match decode_message(encoding, payload) {
            Ok(message) if message.is_heartbeat() => return Ok(()),
            Ok(message) => message,
            Err(error) => return Err(self.refuse(&error.to_string())),
        };
        let Message { id, oneway, name, arguments } = message;
        let Some(method) = Method::parse(&name) else {
            return Err(self.refuse(&format!("unknown method {name:.*}", NAME_SHOWN_MAX)));
        };
        if payload.len() > method.bytes_max() {
            let length = payload.len();
            return Err(self.refuse(&format!("{name} with a message of {length} bytes")));
        }
        if (method == Method::Register) == self.registration.is_some() {
            return Err(self.refuse(&format!("{name} at the wrong time")));
        }
        let asked = self.local.tally.arrived();
        let reply_to = ReplyTo { id: (!oneway).then_some(id), method, asked };
        let context = Context { handle, reply_to: reply_to.clone(), frame };
        let result = match arguments {
            Some(arguments) => self.call(&context, method, &name, arguments),
            None => Err(Exception::type_error(format!("{name}(): arguments are a sequence"))),
        };
        if !matches!(result, Ok(Reply::Later)) {
            self.local.tally.count(method);
        }
        match (result, &reply_to.id) {
            (Ok(Reply::Value(value)), Some(id)) => self.put_reply(id, &value),
            (Ok(_), _) => {}
            (Err(exception), Some(id)) => self.put_error(id, &exception),
            (Err(exception), None) => {
                let text = format!("asynchronous {name}: {}", exception.name);
                return Err(self.refuse(&text));
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        context: &Context<'_>,
        method: Method,
        name: &str,
        items: Vec<Value<'_>>,
    ) -> Result<Reply, Exception> {
        if method.writes() && self.registration.as_ref().is_some_and(|r| r.read_only) {
            return Err(Exception::read_only());
        }
        let mut arguments = Arguments::new(method, name, items)?;
        let arguments = &mut arguments;
        match method {
            Method::Register => self.register(context, arguments),
            Method::GetInfo => self.info(),
            Method::LastTransaction => self.last_transaction(),
            Method::GetInvalidations => self.invalidations(context, arguments),
            Method::LoadBefore => {
                let (oid, before) = (arguments.oid()?, arguments.tid()?);
                let Some(id) = context.reply_to.id.clone() else {
                    return Ok(Reply::Value(Value::None));
                };
                self.load_before(context.handle, id, oid, before);
                Ok(Reply::Later)
            }
            Method::LoadSerial => self.load_serial(context, arguments),
            Method::GetTid => self.current_tid(context, arguments),
            Method::History => self.history(context, arguments),
            Method::NewOids => self.new_oids(arguments),
            Method::NewOid => Err(Exception::new(
                "builtins.AttributeError",
                "'new_oid' is not served, call 'new_oids'",
            )),
            Method::Ping => Ok(Reply::Value(Value::None)),
            Method::ServerStatus => self.server_status(),
            Method::SetClientLabel => self.set_label(arguments),
            Method::RecordIternext => self.next_object(context, arguments),
            Method::Begin => self.begin(arguments),
            Method::Store => self.store(context, arguments),
            Method::Delete => self.delete(arguments),
            Method::CheckCurrent => self.check_current(arguments),
            Method::Restore => self.restore(context, arguments),
            Method::Undo => self.undo(arguments),
            Method::BlobStart => self.blob_start(),
            Method::BlobChunk => self.blob_chunk(context, arguments),
            Method::BlobEnd => self.blob_end(context, arguments),
            Method::BlobShared => self.blob_shared(context, arguments),
            Method::SendBlob => self.send_blob(context, arguments),
            Method::Vote => self.vote(context, arguments),
            Method::Finish => self.finish(context, arguments),
            Method::Abort => self.abort(context, arguments),
            Method::UndoLog => self.undo_log(context, arguments),
            Method::UndoInfo => self.undo_info(context, arguments),
            Method::Pack => self.pack(context, arguments),
            Method::IteratorStart => self.iterator_start(context, arguments),
            Method::IteratorNext => self.iterator_next(context, arguments),
            Method::IteratorRecordStart => self.iterator_record_start(context, arguments),
            Method::IteratorRecordNext => self.iterator_record_next(context, arguments),
            Method::IteratorGc => self.iterator_gc(arguments),
            Method::IteratorRead => self.iterator_read(context, arguments),
            Method::ObjectsRead => self.read_objects(context, arguments),
        }
    }

    fn handle_hello(&mut self, payload: &[u8]) -> Result<(), CloseReason> {
        match Greeting::from_payload(payload) {
            Ok(Greeting::Session(encoding)) => {
                self.encoding = Some(encoding);
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

    fn register(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
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
        // The client may know of later commits from another worker. With an older last tid it would
        // take this for a server that has lost them.
        subscriber.catch_up();
        let last_seen = subscriber.last_seen();
        // From here on the session gets every later commit.
        subscriber.add(self.number, context.handle.clone());
        tracing::debug!(peer = self.link.peer(), storage = name, read_only, "registered");
        self.registration = Some(Registration { subscriber, name, read_only });
        Ok(Reply::Value(super::exception::tid_value(last_seen)))
    }

    /// The error for an unknown storage, and for one that this client may not use: the client does
    /// not learn that it exists.
    fn unknown_storage(&self, name: &str) -> Exception {
        let subject = self.link.identity().map(|identity| identity.subject.as_str());
        let peer = self.link.peer();
        let name = format!("{name:.*}", NAME_SHOWN_MAX);
        tracing::info!(
            peer,
            subject,
            storage = name,
            "refused: unknown storage, or the client may not use it"
        );
        Exception::value_error(match subject {
            Some(subject) => format!("unknown storage: {name} (or not for {subject})"),
            None => format!("unknown storage: {name}"),
        })
    }

    fn set_label(&mut self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let label = arguments.text_bytes()?;
        self.label = String::from_utf8_lossy(&label).chars().take(LABEL_SHOWN_MAX).collect();
        tracing::debug!(peer = self.link.peer(), label = self.label, "labelled");
        Ok(Reply::Value(Value::None))
    }

    /// Refuses bytes that are not a frame. Before the greeting they may be of another protocol.
    fn refuse_frame(&self, bytes: &[u8], error: &FrameError) -> CloseReason {
        let foreign = ForeignProtocol::recognise(bytes).filter(|_| self.encoding.is_none());
        let Some(foreign) = foreign else { return self.refuse(&error.to_string()) };
        self.link.output().buffer().extend_from_slice(foreign.answer());
        self.refuse(foreign.reason())
    }

    fn refuse(&self, reason: &str) -> CloseReason {
        tracing::warn!(peer = self.link.peer(), label = self.label, reason, "disconnecting");
        CloseReason::Refused
    }

    pub(crate) fn missing_key(&self, id: &MessageId, oid: Oid) {
        self.put_error(id, &Exception::missing_key(oid));
    }
}

/// Sends a frame of the handshake, whose payload is short.
fn put_frame(link: &Link, payload: &[u8]) {
    if let Err(error) = encode_frame(link.output().buffer(), payload) {
        tracing::error!(%error, "cannot answer a handshake");
    }
}
