//! A connection: the calling thread writes its request, and one of the waiting threads reads the
//! replies.
//!
//! Key decision: no dedicated I/O thread between callers and the socket. The waiting threads take
//! [turns](zodium_transport::Turns) at reading; while none waits, the connector thread reads
//! (`idle.rs`).

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use zodium_pickle::Value;
use zodium_transport::{Patience, TICK, TlsSide, Transport, Turns};
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::frame::encode_frame;
use zodium_zeo::codec::{
    Encoding, LoadReply, encode_heartbeat, encode_load_before_request, encode_oneway,
    encode_request,
};

use crate::input::Input;
use crate::promise::Promise;
use crate::table::{ArrivingBlob, Call, LoadKey, Loaded, Table, Then};
use crate::{ClientError, Revision};

/// Handles incoming messages, in stream order, on the reading thread.
pub(crate) trait Receiver: Send + Sync {
    /// A revision was loaded; `data` does not share the input buffer.
    fn loaded(&self, reply: &LoadReply<'_>, data: &Bytes);
    /// Another client's transaction wrote these objects.
    fn invalidated(&self, tid: Tid, oids: &[Oid]) -> Result<(), ClientError>;
    /// The server sent an update of `get_info`.
    fn info(&self, info: &Value<'_>);
}

/// A connection to a server.
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    pub(crate) encoding: Encoding,
    pub(crate) receiver: Arc<dyn Receiver>,
    /// Locked while requests are written. The buffer that small ones are encoded in.
    output: Mutex<BytesMut>,
    /// Number of reads that returned data. Relaxed: it is only compared with an earlier value.
    pub(crate) heard: AtomicU64,
    /// Locked by the leader.
    pub(crate) reading: Mutex<Reading>,
    pub(crate) table: Mutex<Table>,
    /// Why the connection has ended.
    ended: OnceLock<ClientError>,
    /// Relaxed: a cheap hint for `ended`, which decides.
    has_ended: AtomicBool,
    /// The connector thread, to be woken when the connection ends.
    connector: OnceLock<Thread>,
    /// The threads that wait for replies, and the connector.
    pub(crate) turns: Turns,
}

/// The result of starting a load.
pub(crate) enum Started {
    /// The load is pending; the promise will hold its reply.
    UnderWay(Arc<Promise<Loaded>>),
    /// The revision was in the cache.
    Known(Revision),
}

/// Read state, owned by the leader.
pub(crate) struct Reading {
    pub(crate) input: Input,
    /// Until the connection is established.
    pub(crate) handshake: Option<Handshake>,
}

/// A connection that callers do not use yet.
pub(crate) struct Handshake {
    /// The server must have answered by then.
    pub(crate) deadline: Instant,
    /// Invalidations held back until the client has caught up with what it missed.
    pub(crate) held: Vec<(Tid, Vec<Oid>)>,
}

impl Connection {
    /// Connects and performs the ZEO handshake. Until it is [established](Connection::establish),
    /// all steps together are limited to `limit`, and invalidations are held back. `accepted` is
    /// called when the peer has accepted the connection, and has said nothing yet.
    pub(crate) fn open(
        address: &Address,
        tls: Option<&TlsSide>,
        limit: Duration,
        receiver: Arc<dyn Receiver>,
        patience: Patience,
        accepted: impl FnOnce(),
    ) -> Result<Connection, ClientError> {
        let deadline = Instant::now() + limit;
        let transport = Transport::open(address, tls, limit)?;
        accepted();
        let failed = |error: io::Error| {
            let advice = match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::UnexpectedEof
                    if tls.is_none() =>
                {
                    "; does it speak TLS?"
                }
                _ => "",
            };
            ClientError::disconnected(format!("handshake with {address} failed: {error}{advice}"))
        };
        let mut input = Input::new();
        let encoding = greet(&transport, &mut input, deadline).map_err(failed)?;
        let turns = Turns::new(patience).map_err(failed)?;
        let handshake = Some(Handshake { deadline, held: Vec::new() });
        Ok(Connection {
            transport,
            encoding,
            receiver,
            output: Mutex::default(),
            heard: AtomicU64::new(0),
            reading: Mutex::new(Reading { input, handshake }),
            table: Mutex::default(),
            ended: OnceLock::new(),
            has_ended: AtomicBool::new(false),
            connector: OnceLock::new(),
            turns,
        })
    }

    /// Gives the rest of the handshake this time, however long it has taken so far.
    pub(crate) fn extend_handshake(&self, limit: Duration) {
        if let Some(handshake) = &mut self.reading.lock().handshake {
            handshake.deadline = Instant::now() + limit;
        }
    }

    /// Ends the handshake phase: applies the held-back invalidations later than `known`, and
    /// delivers further ones at once. From now on a reply may take long, as long as the server is
    /// not silent for `silence_max`. The calling thread becomes the connector of this connection.
    pub(crate) fn establish(&self, known: Tid, silence_max: Duration) -> Result<(), ClientError> {
        self.transport.wait_long(Some(TICK), silence_max).map_err(ClientError::disconnected)?;
        let _ = self.connector.set(thread::current());
        let mut reading = self.reading.lock();
        let handshake = reading.handshake.take();
        for (tid, oids) in handshake.map(|handshake| handshake.held).unwrap_or_default() {
            if tid > known {
                self.receiver.invalidated(tid, &oids)?;
            }
        }
        Ok(())
    }

    /// Why the connection has ended; `None` while it is usable.
    pub(crate) fn end_reason(&self) -> Option<&ClientError> {
        if self.has_ended.load(Ordering::Relaxed) { self.ended.get() } else { None }
    }

    /// Calls a method and waits for its reply.
    pub(crate) fn call(
        &self,
        method: &str,
        arguments: &Value<'_>,
    ) -> Result<Value<'static>, ClientError> {
        let promise = self.request(method, arguments, None)?;
        self.wait(&promise)?;
        self.taken(&promise)
    }

    /// Sends a call. If it succeeds, the reading thread runs `then` with the reply before it
    /// handles any later message.
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

    /// Registers a call and appends it to `message`, which the caller [sends](Connection::send).
    pub(crate) fn add_request(
        &self,
        message: &mut BytesMut,
        method: &str,
        arguments: &Value<'_>,
        then: Option<Then>,
    ) -> Result<Arc<Promise<Value<'static>>>, ClientError> {
        let promise = Arc::new(Promise::default());
        let mut table = self.open_table()?;
        let id = table.next_id();
        encode_request(self.encoding, message, id, method, arguments)?;
        table.calls.insert(id, Call { promise: Arc::clone(&promise), then });
        Ok(promise)
    }

    /// Takes the reply of a call whose wait has ended.
    pub(crate) fn taken<T>(&self, promise: &Promise<T>) -> Result<T, ClientError> {
        promise.take().unwrap_or_else(|| Err(ClientError::disconnected("it was not answered")))
    }

    /// Calls a method without a reply.
    pub(crate) fn cast(&self, method: &str, arguments: &Value<'_>) -> Result<(), ClientError> {
        let mut message = BytesMut::new();
        encode_oneway(self.encoding, &mut message, method, arguments)?;
        self.send(&message)
    }

    /// Starts loads, and joins those that are already pending; returns their promises.
    pub(crate) fn start_loads(
        &self,
        keys: &[LoadKey],
        is_known: impl Fn(&LoadKey) -> bool,
    ) -> Result<Vec<Arc<Promise<Loaded>>>, ClientError> {
        let mut message = BytesMut::new();
        let mut promises = Vec::with_capacity(keys.len());
        {
            let mut table = self.open_table()?;
            for key in keys.iter().filter(|key| !is_known(key)) {
                promises.push(Arc::clone(table.loads.entry(*key).or_insert_with(|| {
                    encode_load_before_request(self.encoding, &mut message, key.0, key.1);
                    Arc::new(Promise::default())
                })));
            }
        }
        if !message.is_empty() {
            self.send(&message)?;
        }
        Ok(promises)
    }

    /// Starts a load, unless the same one is already pending.
    ///
    /// `known` looks in the cache: a reply that arrived since the caller looked is there, because
    /// the reader caches a revision before it completes the load.
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
            let promise = Arc::new(Promise::default());
            table.loads.insert(key, Arc::clone(&promise));
            promise
        };
        let mut output = self.output.lock();
        encode_load_before_request(self.encoding, &mut output, key.0, key.1);
        self.write_out(&mut output)?;
        Ok(Started::UnderWay(promise))
    }

    /// Whether this load is pending.
    pub(crate) fn loads(&self, key: &LoadKey) -> bool {
        self.table.lock().loads.contains_key(key)
    }

    /// Number of pending loads.
    pub(crate) fn load_count(&self) -> usize {
        self.table.lock().loads.len()
    }

    /// Registers a file: this blob is written to it until [`Connection::take_blob`].
    pub(crate) fn expect_blob(&self, oid: Oid, serial: Tid, file: File) -> Result<(), ClientError> {
        let blob = ArrivingBlob { file, is_whole: false, failure: None };
        self.open_table()?.blobs.insert((oid, serial), blob);
        Ok(())
    }

    /// Takes the file of a blob back; `None` if the connection has ended in the middle of it.
    pub(crate) fn take_blob(&self, oid: Oid, serial: Tid) -> Option<ArrivingBlob> {
        self.table.lock().blobs.remove(&(oid, serial))
    }

    /// Drops the file of a blob whose fetch is not waited for any more.
    pub(crate) fn abandon_blob(&self, oid: Oid, serial: Tid, answer: Arc<Promise<Value<'static>>>) {
        let mut table = self.table.lock();
        table.blobs.remove(&(oid, serial));
        table.abandoned_blobs.insert((oid, serial), answer);
    }

    /// Waits until no more chunks of an abandoned fetch of a blob can come.
    pub(crate) fn wait_abandoned_blob(&self, oid: Oid, serial: Tid) -> Result<(), ClientError> {
        let answer = self.table.lock().abandoned_blobs.get(&(oid, serial)).cloned();
        if let Some(answer) = answer {
            self.wait(&answer)?;
            self.table.lock().abandoned_blobs.remove(&(oid, serial));
        }
        Ok(())
    }

    /// Sends whole frames.
    pub(crate) fn send(&self, frames: &[u8]) -> Result<(), ClientError> {
        let _output = self.output.lock();
        self.sent(self.transport.send(frames))
    }

    /// Sends a ping, unless another thread is writing: that write is a liveness check of its own.
    pub(crate) fn ping(&self) -> Result<(), ClientError> {
        let Some(mut output) = self.output.try_lock() else { return Ok(()) };
        // Any message counts as a sign of life; no thread waits for this reply.
        self.add_request(&mut output, "ping", &Value::tuple([]), None)?;
        self.write_out(&mut output)
    }

    /// Whether a thread is writing, or waiting for the socket to accept more.
    pub(crate) fn is_writing(&self) -> bool {
        self.output.is_locked()
    }

    /// Sends a heartbeat, unless another thread is writing.
    pub(crate) fn send_heartbeat(&self) -> Result<(), ClientError> {
        let Some(mut output) = self.output.try_lock() else { return Ok(()) };
        encode_heartbeat(self.encoding, &mut output);
        self.write_out(&mut output)
    }

    fn write_out(&self, output: &mut BytesMut) -> Result<(), ClientError> {
        let written = self.transport.send(output);
        output.clear();
        self.sent(written)
    }

    fn sent(&self, written: io::Result<()>) -> Result<(), ClientError> {
        written.map_err(|error| {
            let error = ClientError::disconnected(error);
            self.end(error.clone());
            error
        })
    }

    /// Waits until a promise is complete; reads for all threads if there is no other leader. Fails
    /// if the caller is told to stop waiting, or is called by the reader.
    pub(crate) fn wait<T>(&self, promise: &Promise<T>) -> Result<(), ClientError> {
        match self.is_read_here() && !promise.is_complete() {
            true => Err(ClientError::Nested),
            false => Ok(self.turns.wait(self, promise, None)?),
        }
    }

    /// Ends the connection and fails all pending requests; the first reason counts.
    pub(crate) fn end(&self, reason: ClientError) {
        if self.ended.set(reason.clone()).is_err() {
            return;
        }
        self.has_ended.store(true, Ordering::Relaxed);
        self.transport.shut_down();
        let (calls, loads) = {
            let mut table = self.table.lock();
            table.is_over = true;
            (std::mem::take(&mut table.calls), std::mem::take(&mut table.loads))
        };
        calls.into_values().for_each(|call| call.promise.complete(Err(reason.clone())));
        loads.into_values().for_each(|promise| promise.complete(Err(reason.clone())));
        if let Some(connector) = self.connector.get() {
            connector.unpark();
        }
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

/// Answers the server's protocol announcement with the same protocol.
fn greet(transport: &Transport, input: &mut Input, deadline: Instant) -> io::Result<Encoding> {
    let encoding = loop {
        if let Some(payload) = input.next_frame()? {
            let known = Encoding::from_announcement(payload);
            break known.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        if transport.receive_by(&mut input.buffer, Some(deadline))? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let mut greeting = BytesMut::new();
    encode_frame(&mut greeting, encoding.announcement()).map_err(io::Error::other)?;
    transport.send_by(&greeting, Some(deadline))?;
    Ok(encoding)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use rustls_pki_types::ServerName;
    use zodium_zeo::codec::decode_message;
    use zodium_zeo::codec::frame::split_frame;

    use super::*;
    use crate::tls_peers::{accept, with_tls};

    const LIMIT: Duration = Duration::from_secs(20);
    const ENCODING: Encoding = Encoding::Msgpack;

    struct Deaf;

    impl Receiver for Deaf {
        fn loaded(&self, _: &LoadReply<'_>, _: &Bytes) {}

        fn invalidated(&self, _: Tid, _: &[Oid]) -> Result<(), ClientError> {
            Ok(())
        }

        fn info(&self, _: &Value<'_>) {}
    }

    /// Opens a connection to `server`, which gets the other end.
    fn open<T: Send>(
        tls: Option<&TlsSide>,
        server: impl FnOnce(UnixStream) -> T + Send,
    ) -> (Result<Connection, ClientError>, T) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo");
        let listener = UnixListener::bind(&path).unwrap();
        thread::scope(|scope| {
            let served = scope.spawn(|| server(listener.accept().unwrap().0));
            let (address, patience) = (Address::Unix(path), Patience::new(None));
            let opened = Connection::open(&address, tls, LIMIT, Arc::new(Deaf), patience, || ());
            (opened, served.join().unwrap())
        })
    }

    /// A connection in its handshake, and the server's end.
    fn greeted() -> (Connection, UnixStream) {
        let (opened, peer) = open(None, |mut peer| {
            let mut greeting = BytesMut::new();
            encode_frame(&mut greeting, ENCODING.announcement()).unwrap();
            peer.write_all(&greeting).unwrap();
            let mut answer = vec![0; greeting.len()];
            peer.read_exact(&mut answer).unwrap();
            assert_eq!(answer, greeting);
            peer
        });
        (opened.unwrap(), peer)
    }

    #[test]
    fn a_server_that_leaves_before_its_greeting_may_want_tls_only_if_there_is_none() {
        let (plain, ()) = open(None, drop);
        let plain = plain.err().unwrap().to_string();
        assert!(plain.ends_with("does it speak TLS?"), "{plain}");
        let (config, server) = with_tls();
        let side = TlsSide { config, name: Some(ServerName::try_from("localhost").unwrap()) };
        let (secured, ()) = open(Some(&side), |socket| drop(accept(server, socket)));
        let secured = secured.err().unwrap().to_string();
        assert!(secured.contains("handshake with") && !secured.contains("TLS"), "{secured}");
    }

    #[test]
    fn a_handshake_that_is_extended_has_the_whole_time_again() {
        let (connection, _peer) = greeted();
        let left = || {
            let reading = connection.reading.lock();
            reading.handshake.as_ref().map(|it| it.deadline.duration_since(Instant::now()))
        };
        assert!(left().unwrap() <= LIMIT);
        connection.extend_handshake(3 * LIMIT);
        assert!((2 * LIMIT..=3 * LIMIT).contains(&left().unwrap()));
        connection.establish(Tid(1), LIMIT).unwrap();
        connection.extend_handshake(3 * LIMIT);
        assert_eq!(left(), None, "it is over");
    }

    #[test]
    fn a_sign_of_life_is_sent_unless_another_thread_sends_something() {
        let (connection, mut peer) = greeted();
        let writing = connection.output.lock();
        connection.send_heartbeat().unwrap();
        connection.ping().unwrap();
        drop(writing);
        connection.ping().unwrap();
        connection.send_heartbeat().unwrap();
        connection.end(ClientError::Closed);
        let mut sent = Vec::new();
        peer.read_to_end(&mut sent).unwrap();
        let mut sent = BytesMut::from(&sent[..]);
        let mut next = || split_frame(&mut sent, 1000).unwrap().map(|frame| frame.to_vec());
        let ping = next().unwrap();
        assert_eq!(decode_message(ENCODING, &ping).unwrap().name, "ping");
        assert!(decode_message(ENCODING, &next().unwrap()).unwrap().is_heartbeat());
        assert_eq!(next(), None);
    }
}
