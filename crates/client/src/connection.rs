//! A connection: requests go out from the thread that makes them, answers are read by one of
//! those who wait.
//!
//! Key decision: no thread of its own between callers and the socket. The first who waits for an
//! answer **leads**: it reads and hands out what comes, for all, until its own answer is there;
//! then another one leads. While nobody waits for anything the connector reads (`idle.rs`).

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use zodium_pickle::Value;
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::frame::encode_frame;
use zodium_zeo::codec::{
    Encoding, LoadReply, encode_heartbeat, encode_load_before_request, encode_oneway,
    encode_request,
};

use crate::input::Input;
use crate::interrupt::TICK;
use crate::promise::Promise;
use crate::table::{Call, LoadKey, Loaded, Role, Table, Then};
use crate::transport::{TlsSide, Transport};
use crate::{ClientError, Interrupt, Revision};

/// A buffer for requests that has grown beyond this is not kept.
const OUTPUT_KEPT_BYTES_MAX: usize = 1 << 20;

/// What is done with what comes, in the order in which it comes, by whoever reads.
pub(crate) trait Receiver: Send + Sync {
    /// A revision was loaded; the data are a copy of their own.
    fn loaded(&self, reply: &LoadReply<'_>, data: &Bytes);
    /// Somebody committed.
    fn invalidated(&self, tid: Tid, oids: &[Oid]);
    /// The server tells its figures.
    fn info(&self, info: &Value<'_>);
}

/// A connection on which no request has been answered yet, or many.
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    pub(crate) encoding: Encoding,
    pub(crate) receiver: Arc<dyn Receiver>,
    /// Held while a request is written; the buffer to make it in.
    output: Mutex<BytesMut>,
    /// Tells who waits when to stop.
    interrupt: Option<Arc<dyn Interrupt>>,
    /// How often something came. Relaxed: only compared with what it was a while ago.
    pub(crate) heard: AtomicU64,
    /// Held by who leads.
    pub(crate) reading: Mutex<Reading>,
    pub(crate) table: Mutex<Table>,
    /// Why it is of no more use.
    ended: OnceLock<ClientError>,
    /// Relaxed: only spares a look at `ended`, which is what counts.
    has_ended: AtomicBool,
    /// Whom to tell that it has ended.
    connector: OnceLock<Thread>,
    /// Calls the connector away from the socket: it waits at the second, the first is written to.
    pub(crate) call_away: (UnixStream, UnixStream),
}

/// A load that was asked for.
pub(crate) enum Started {
    /// The answer will be here.
    UnderWay(Arc<Promise<Loaded>>),
    /// It was there already.
    Known(Revision),
}

/// The incoming side.
pub(crate) struct Reading {
    pub(crate) input: Input,
    /// Commits of others that wait until what was missed before is known.
    pub(crate) held: Option<Vec<(Tid, Vec<Oid>)>>,
}

impl Connection {
    /// Connects and greets. Until it is [established](Connection::establish), nothing takes longer
    /// than `limit`, and what others commit is kept back.
    pub(crate) fn open(
        address: &Address,
        tls: Option<&TlsSide>,
        limit: Duration,
        receiver: Arc<dyn Receiver>,
        interrupt: Option<Arc<dyn Interrupt>>,
    ) -> Result<Connection, ClientError> {
        let transport = Transport::open(address, tls, limit)?;
        let failed = |error: io::Error| {
            let advice = match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::UnexpectedEof if tls.is_none() => {
                    "; does it speak TLS?"
                }
                _ => "",
            };
            ClientError::disconnected(format!("{address} does not greet: {error}{advice}"))
        };
        let mut input = Input::new();
        let encoding = greet(&transport, &mut input).map_err(failed)?;
        let call_away = UnixStream::pair().map_err(failed)?;
        call_away.0.set_nonblocking(true).map_err(failed)?;
        call_away.1.set_nonblocking(true).map_err(failed)?;
        Ok(Connection {
            transport,
            encoding,
            receiver,
            output: Mutex::default(),
            interrupt,
            heard: AtomicU64::new(0),
            reading: Mutex::new(Reading { input, held: Some(Vec::new()) }),
            table: Mutex::default(),
            ended: OnceLock::new(),
            has_ended: AtomicBool::new(false),
            connector: OnceLock::new(),
            call_away,
        })
    }

    /// From now on answers may take as long as the server is not silent for `silence_max`, and
    /// commits of others are told: those that came already, and are later than `known`, at once.
    /// The calling thread keeps it.
    pub(crate) fn establish(&self, known: Tid, silence_max: Duration) -> Result<(), ClientError> {
        self.transport.wait_long(silence_max).map_err(ClientError::disconnected)?;
        let _ = self.connector.set(thread::current());
        let mut reading = self.reading.lock();
        for (tid, oids) in reading.held.take().unwrap_or_default() {
            if tid > known {
                self.receiver.invalidated(tid, &oids);
            }
        }
        Ok(())
    }

    /// Why it has ended, if it has.
    pub(crate) fn end_reason(&self) -> Option<&ClientError> {
        if self.has_ended.load(Ordering::Relaxed) { self.ended.get() } else { None }
    }

    /// Calls a method, and waits for its answer.
    pub(crate) fn call(
        &self,
        method: &str,
        arguments: &Value<'_>,
    ) -> Result<Value<'static>, ClientError> {
        let promise = self.request(method, arguments, None)?;
        self.wait(&promise)?;
        self.taken(&promise)
    }

    /// Calls a method. `then` is run by whoever reads the answer, before anything that comes after
    /// it has an effect, if the method raises nothing.
    pub(crate) fn request(
        &self,
        method: &str,
        arguments: &Value<'_>,
        then: Option<Then>,
    ) -> Result<Arc<Promise<Value<'static>>>, ClientError> {
        let mut message = BytesMut::new();
        let promise = self.add_request(&mut message, method, arguments, then)?;
        self.send(&message)?;
        Ok(promise)
    }

    /// Appends a call to what is to be [sent](Connection::send).
    pub(crate) fn add_request(
        &self,
        message: &mut BytesMut,
        method: &str,
        arguments: &Value<'_>,
        then: Option<Then>,
    ) -> Result<Arc<Promise<Value<'static>>>, ClientError> {
        let promise = Arc::new(Promise::new());
        let mut table = self.open_table()?;
        let id = table.next_id();
        encode_request(self.encoding, message, id, method, arguments)?;
        table.calls.insert(id, Call { promise: Arc::clone(&promise), then });
        Ok(promise)
    }

    /// The answer to a call that was waited for.
    pub(crate) fn taken<T>(&self, promise: &Promise<T>) -> Result<T, ClientError> {
        promise.take().unwrap_or_else(|| Err(ClientError::disconnected("it was not answered")))
    }

    /// Calls a method that is not answered.
    pub(crate) fn cast(&self, method: &str, arguments: &Value<'_>) -> Result<(), ClientError> {
        let mut message = BytesMut::new();
        encode_oneway(self.encoding, &mut message, method, arguments)?;
        self.send(&message)
    }

    /// Asks for revisions, each once however many want it; where the answers will be.
    pub(crate) fn start_loads(
        &self,
        keys: &[LoadKey],
    ) -> Result<Vec<Arc<Promise<Loaded>>>, ClientError> {
        let mut message = BytesMut::new();
        let mut promises = Vec::with_capacity(keys.len());
        {
            let mut table = self.open_table()?;
            for key in keys {
                promises.push(Arc::clone(table.loads.entry(*key).or_insert_with(|| {
                    encode_load_before_request(self.encoding, &mut message, key.0, key.1);
                    Arc::new(Promise::new())
                })));
            }
        }
        if !message.is_empty() {
            self.send(&message)?;
        }
        Ok(promises)
    }

    /// Asks for a revision, unless that is under way; where the answer will be.
    ///
    /// An answer that came since the caller looked is what `known` finds: it is remembered before
    /// the load is over.
    pub(crate) fn start_load(
        &self,
        key: LoadKey,
        known: impl FnOnce() -> Option<Revision>,
    ) -> Result<Started, ClientError> {
        let promise = {
            let mut table = self.open_table()?;
            if let Some(promise) = table.loads.get(&key) {
                return Ok(Started::UnderWay(Arc::clone(promise)));
            }
            if let Some(revision) = known() {
                return Ok(Started::Known(revision));
            }
            let promise = Arc::new(Promise::new());
            table.loads.insert(key, Arc::clone(&promise));
            promise
        };
        let mut output = self.output.lock();
        encode_load_before_request(self.encoding, &mut output, key.0, key.1);
        self.write_out(&mut output)?;
        Ok(Started::UnderWay(promise))
    }

    /// Whether a load is under way.
    pub(crate) fn loads(&self, key: &LoadKey) -> bool {
        self.table.lock().loads.contains_key(key)
    }

    /// How many loads are under way.
    pub(crate) fn load_count(&self) -> usize {
        self.table.lock().loads.len()
    }

    /// From now until the file is taken back, chunks of that blob go into it.
    pub(crate) fn expect_blob(&self, oid: Oid, serial: Tid, file: File) -> Result<(), ClientError> {
        self.open_table()?.blobs.insert((oid, serial), file);
        Ok(())
    }

    /// The file of a blob.
    pub(crate) fn take_blob(&self, oid: Oid, serial: Tid) -> Option<File> {
        self.table.lock().blobs.remove(&(oid, serial))
    }

    /// Writes whole frames.
    pub(crate) fn send(&self, frames: &[u8]) -> Result<(), ClientError> {
        let _output = self.output.lock();
        self.sent(self.transport.send(frames))
    }

    /// Asks the server for a sign of life, unless somebody is writing anyway: a server that takes
    /// what is written is watched by that.
    pub(crate) fn ping(&self) -> Result<(), ClientError> {
        let Some(mut output) = self.output.try_lock() else { return Ok(()) };
        // Whatever comes is a sign of life; nobody waits for this answer.
        self.add_request(&mut output, "ping", &Value::tuple([]), None)?;
        self.write_out(&mut output)
    }

    /// Whether somebody is writing, or waits for the socket to take more.
    pub(crate) fn is_writing(&self) -> bool {
        self.output.is_locked()
    }

    /// A sign of life, unless somebody is writing anyway.
    pub(crate) fn send_heartbeat(&self) -> Result<(), ClientError> {
        let Some(mut output) = self.output.try_lock() else { return Ok(()) };
        encode_heartbeat(self.encoding, &mut output);
        self.write_out(&mut output)
    }

    fn write_out(&self, output: &mut BytesMut) -> Result<(), ClientError> {
        let written = self.transport.send(output);
        output.clear();
        if output.capacity() > OUTPUT_KEPT_BYTES_MAX {
            *output = BytesMut::new();
        }
        self.sent(written)
    }

    fn sent(&self, written: io::Result<()>) -> Result<(), ClientError> {
        written.map_err(|error| {
            let error = ClientError::disconnected(error);
            self.end(error.clone());
            error
        })
    }

    /// Waits until a promise is filled, reading for all when nobody else does. An error: the caller is
    /// to stop waiting.
    pub(crate) fn wait<T>(&self, promise: &Promise<T>) -> Result<(), ClientError> {
        if promise.is_complete() {
            return Ok(());
        }
        let mut has_parked = false;
        let mut waited = Ok(());
        let mut next_look = None;
        while !promise.is_complete() {
            let role = self.table.lock().take_role();
            match role {
                Role::Leader { wakes_connector } => {
                    if wakes_connector {
                        self.wake_connector();
                    }
                    self.lead(&|| promise.is_complete());
                }
                Role::Follower => {
                    next_look.get_or_insert_with(|| Instant::now() + TICK);
                    let is_first = !std::mem::replace(&mut has_parked, true);
                    if !is_first || promise.wake_on_completion() {
                        self.park();
                    }
                }
            }
            if !promise.is_complete() && self.is_interrupted(&mut next_look) {
                waited = Err(ClientError::Interrupted);
                break;
            }
        }
        if has_parked {
            self.table.lock().leave();
        }
        waited
    }

    /// Until somebody has something for the calling thread, or it is to look for itself.
    fn park(&self) {
        if self.may_stop() { thread::park_timeout(TICK) } else { thread::park() }
    }

    /// Whether the calling thread may be told to stop waiting.
    pub(crate) fn may_stop(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|interrupt| interrupt.may_stop())
    }

    /// Whether the calling thread is to stop waiting: it looks once a tick at most, and holds
    /// nothing then.
    fn is_interrupted(&self, next_look: &mut Option<Instant>) -> bool {
        let Some(interrupt) = self.interrupt.as_ref().filter(|one| one.may_stop()) else {
            return false;
        };
        let now = Instant::now();
        if next_look.is_some_and(|next_look| now < next_look) {
            return false;
        }
        *next_look = Some(now + TICK);
        interrupt.stops()
    }

    /// Ends it for all; the first reason counts.
    pub(crate) fn end(&self, reason: ClientError) {
        if self.ended.set(reason.clone()).is_err() {
            return;
        }
        self.has_ended.store(true, Ordering::Relaxed);
        self.transport.shut_down();
        let (calls, loads) = {
            let mut table = self.table.lock();
            table.is_over = true;
            table.blobs.clear();
            (std::mem::take(&mut table.calls), std::mem::take(&mut table.loads))
        };
        calls.into_values().for_each(|call| call.promise.complete(Err(reason.clone())));
        loads.into_values().for_each(|promise| promise.complete(Err(reason.clone())));
        if let Some(connector) = self.connector.get() {
            connector.unpark();
        }
        self.wake_connector();
    }

    fn wake_connector(&self) {
        // When the pipe is full it has been called often enough.
        let _ = (&self.call_away.0).write(&[1]);
    }

    fn open_table(&self) -> Result<parking_lot::MutexGuard<'_, Table>, ClientError> {
        let table = self.table.lock();
        if !table.is_over {
            return Ok(table);
        }
        let reason = self.ended.get().cloned();
        Err(reason.unwrap_or_else(|| ClientError::disconnected("it has ended")))
    }
}

/// Answers the server's announcement with the same.
fn greet(transport: &Transport, input: &mut Input) -> io::Result<Encoding> {
    let encoding = loop {
        if let Some(payload) = input.next_frame()? {
            let known = Encoding::from_announcement(payload);
            break known.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        if transport.receive(input)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let mut greeting = BytesMut::new();
    encode_frame(&mut greeting, encoding.announcement()).map_err(io::Error::other)?;
    transport.send(&greeting)?;
    Ok(encoding)
}
