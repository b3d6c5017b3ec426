//! The server's end of a connection, which sends and expects what a test tells it to.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tempfile::TempDir;
use zodium_client::{Client, ClientError, Options, Watcher};
use zodium_pickle::Value;
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::frame::{encode_frame, split_frame};
use zodium_zeo::codec::{
    Encoding, Message, MessageId, decode_message, encode_error, encode_invalidation,
    encode_load_reply, encode_oneway, encode_reply,
};

pub(crate) const ENCODING: Encoding = Encoding::Msgpack;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// A message that has not arrived by then is taken not to come.
pub(crate) const SILENCE: Duration = Duration::from_millis(200);

/// The server's end of a connection.
pub(crate) struct Peer {
    stream: UnixStream,
    input: BytesMut,
}

impl Peer {
    /// Waits for a client, and performs the handshake.
    pub(crate) fn accept(listener: &UnixListener) -> Peer {
        let (stream, _) = listener.accept().unwrap();
        let mut peer = Peer { stream, input: BytesMut::new() };
        let mut greeting = BytesMut::new();
        encode_frame(&mut greeting, ENCODING.announcement()).unwrap();
        peer.send(&greeting);
        assert_eq!(peer.frame(PATIENCE).unwrap(), ENCODING.announcement());
        peer
    }

    /// Waits for a client, and accepts its registration.
    pub(crate) fn admitted(listener: &UnixListener, last: Tid) -> Peer {
        let mut peer = Peer::accept(listener);
        peer.admit(last, |_| ());
        peer
    }

    /// Accepts the client's registration, after sending `meanwhile`.
    pub(crate) fn admit(&mut self, last: Tid, meanwhile: impl FnOnce(&mut Peer)) {
        self.admit_with(Value::dict::<&str>([]), last, meanwhile);
    }

    /// As [`Peer::admit`], as a server of this info.
    pub(crate) fn admit_with(
        &mut self,
        info: Value<'_>,
        last: Tid,
        meanwhile: impl FnOnce(&mut Peer),
    ) {
        let register = self.expect("register");
        self.reply(&register, last.into());
        meanwhile(self);
        let asked = self.expect("get_info");
        self.reply(&asked, info);
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads the next request, which must be this one.
    pub(crate) fn expect(&mut self, name: &str) -> MessageId {
        self.asked(name).0
    }

    /// Like [`Peer::expect`], with the arguments of the request.
    pub(crate) fn asked(&mut self, name: &str) -> (MessageId, Vec<Value<'static>>) {
        let frame = self.frame(PATIENCE).unwrap_or_else(|| panic!("no {name} comes"));
        let Message { id, name: found, arguments, .. } = decode_message(ENCODING, &frame).unwrap();
        assert_eq!(found, name);
        (id, arguments.unwrap_or_default().into_iter().map(Value::into_owned).collect())
    }

    /// Reads at least so many bytes, whatever they are, a part each millisecond.
    pub(crate) fn read_slowly(&mut self, mut bytes: usize) {
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = [0; 4096];
        while bytes > 0 {
            thread::sleep(Duration::from_millis(1));
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the client has closed the connection");
            self.input.extend_from_slice(&buffer[..count]);
            bytes = bytes.saturating_sub(count);
        }
    }

    pub(crate) fn reply(&mut self, id: &MessageId, value: Value<'_>) {
        self.send(&reply(id, &value));
    }

    pub(crate) fn fail(&mut self, id: &MessageId, exception: &str) {
        self.send(&failure(id, exception));
    }

    /// Calls a method of the client, which does not reply.
    pub(crate) fn tell(&mut self, name: &str, arguments: &Value<'_>) {
        let mut out = BytesMut::new();
        encode_oneway(ENCODING, &mut out, name, arguments).unwrap();
        self.send(&out);
    }

    pub(crate) fn reply_load(&mut self, id: &MessageId, data: &[u8], serial: Tid) {
        self.reply_load_until(id, data, serial, None);
    }

    /// Like [`Peer::reply_load`], for a revision that another one follows.
    pub(crate) fn reply_load_until(
        &mut self,
        id: &MessageId,
        data: &[u8],
        serial: Tid,
        end: Option<Tid>,
    ) {
        let mut out = BytesMut::new();
        encode_load_reply(ENCODING, &mut out, id, data, serial, end).unwrap();
        self.send(&out);
    }

    pub(crate) fn invalidate(&mut self, tid: Tid, oids: &[Oid]) {
        let mut out = BytesMut::new();
        encode_invalidation(ENCODING, &mut out, tid, oids).unwrap();
        self.send(&out);
    }

    /// Asserts that the client sends nothing for a while.
    pub(crate) fn expect_silence(&mut self) {
        if let Some(frame) = self.frame(SILENCE) {
            panic!("{:?}", decode_message(ENCODING, &frame).unwrap());
        }
    }

    /// Asserts that the client closes the connection.
    pub(crate) fn expect_end(&mut self) {
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(self.stream.read(&mut [0; 64]).unwrap(), 0);
    }

    pub(crate) fn frame(&mut self, patience: Duration) -> Option<Bytes> {
        self.stream.set_read_timeout(Some(patience)).unwrap();
        loop {
            if let Some(frame) = split_frame(&mut self.input, 1 << 24).unwrap() {
                return Some(frame.to_vec().into());
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("the client has closed the connection"),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// An answer, to be sent together with others.
pub(crate) fn reply(id: &MessageId, value: &Value<'_>) -> BytesMut {
    let mut out = BytesMut::new();
    encode_reply(ENCODING, &mut out, id, value).unwrap();
    out
}

/// Like [`reply`], an exception.
pub(crate) fn failure(id: &MessageId, exception: &str) -> BytesMut {
    let mut out = BytesMut::new();
    encode_error(ENCODING, &mut out, id, exception, &Value::tuple([])).unwrap();
    out
}

/// The calls that a client made to its watcher.
#[derive(Default)]
pub(crate) struct Log(pub(crate) Mutex<Vec<(Tid, Vec<Oid>)>>);

/// The tid that stands for "everything may be stale".
pub(crate) const ALL: Tid = Tid::MAX;

impl Watcher for Log {
    fn invalidated(&self, tid: Tid, oids: &[Oid]) -> Result<(), ClientError> {
        self.0.lock().push((tid, oids.to_vec()));
        Ok(())
    }

    fn all_invalidated(&self) -> Result<(), ClientError> {
        self.0.lock().push((ALL, Vec::new()));
        Ok(())
    }
}

/// Runs a script of the server in parallel with the client.
pub(crate) fn play(
    script: impl FnOnce(&UnixListener) + Send,
    act: impl FnOnce(&Arc<Client>, &Log),
) {
    play_waiting(PATIENCE, script, act);
}

/// Like [`play`], with a client whose calls wait this long for a connection.
pub(crate) fn play_waiting(
    wait_timeout: Duration,
    script: impl FnOnce(&UnixListener) + Send,
    act: impl FnOnce(&Arc<Client>, &Log),
) {
    play_with(|options| Options { wait_timeout, ..options }, script, act);
}

/// Like [`play`], with a client that has other options.
pub(crate) fn play_with(
    options: impl FnOnce(Options) -> Options,
    script: impl FnOnce(&UnixListener) + Send,
    act: impl FnOnce(&Arc<Client>, &Log),
) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("zeo");
    let listener = UnixListener::bind(&path).unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| script(&listener));
        let log = Arc::new(Log::default());
        let watcher = Some(Arc::clone(&log) as Arc<dyn Watcher>);
        let usual = Options::new(Address::Unix(path.clone()));
        let usual = Options { watcher, wait_timeout: PATIENCE, ..usual };
        let client = Arc::new(Client::connect(options(usual)).unwrap());
        act(&client, &log);
        server.join().unwrap();
        client.close();
    });
}

pub(crate) fn wait_until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !what() {
        assert!(Instant::now() < deadline, "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}
