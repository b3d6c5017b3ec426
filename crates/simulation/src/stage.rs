//! The server of the simulation by hand: a test decides what happens next, where the simulation
//! leaves it to chance.
//!
//! Nothing runs by itself. A test makes a worker look at its connections or its notices, runs a job
//! that would wait for the disk, or runs a round of the log writer.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use zodium_disk::{FaultyDisk, ManualClock};
use zodium_engine::{Config as StorageConfig, Database};
use zodium_filestorage::OpenOptions;
use zodium_net::Limits;
use zodium_pickle::Value;
use zodium_storage::StorageError;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::frame::{HEADER_LENGTH, Peek, encode_frame, peek_frame};
use zodium_zeo::codec::{
    CodecError, Encoding, MessageId, Reply, ServerMessage, decode_server_message,
    encode_load_before_request, encode_oneway, encode_request,
};
use zodium_zeo_server::Config;

use crate::pipe::Pipe;
use crate::server::{STORAGE_NAME, Server, Setting, open_options};

/// 2026, in nanoseconds since the Unix epoch.
const BEGIN: u64 = 1_767_225_600_000_000_000;
const ENCODING: Encoding = Encoding::Msgpack;
const FRAME_BYTES_MAX: u32 = 1 << 24;

/// Options of a stage.
pub struct StageOptions {
    /// The blob directory, if any.
    pub blob_directory: Option<&'static str>,
    /// Quota of the data file.
    pub quota_bytes: Option<u64>,
    /// After this time a vote without a finish expires, if at all.
    pub transaction_timeout: Option<Duration>,
    /// Limits of links.
    pub limits: Limits,
    /// Most bytes in transit from the server.
    pub window: usize,
}

impl Default for StageOptions {
    fn default() -> StageOptions {
        let limits = Limits { handshake_time_max: Duration::MAX, ..Limits::default() };
        StageOptions {
            blob_directory: None,
            quota_bytes: None,
            transaction_timeout: None,
            limits,
            window: 1 << 24,
        }
    }
}

/// A server with two workers.
pub struct Stage {
    server: Server,
    clock: Arc<ManualClock>,
    window: usize,
    peers: Cell<u64>,
}

/// A message of the server to a speaker.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// The reply to a request: a value, or the name of an exception.
    Answer(MessageId, Result<Value<'static>, String>),
    /// The invalidation by another client's commit.
    Invalidation(Tid, Vec<Oid>),
    /// Another message that is no reply.
    Notice(String),
}

/// A client that sends what the test tells it to.
pub struct Speaker {
    pipe: Pipe,
    input: BytesMut,
    last_id: u64,
    /// All messages received, in order.
    pub said: Vec<Said>,
}

impl Stage {
    /// Opens or creates `Data.fs` on a disk, and serves it.
    pub fn start(disk: &FaultyDisk, options: StageOptions) -> Result<Stage, StorageError> {
        let StageOptions { blob_directory, quota_bytes, transaction_timeout, limits, window } =
            options;
        let setting = Setting {
            open: OpenOptions {
                blob_directory: blob_directory.map(Into::into),
                cache_bytes: 1 << 20,
                quota_bytes,
                ..open_options()
            },
            storage: StorageConfig {
                pack_gc: false,
                pack_keep_old: false,
                reopening: None,
                transaction_timeout,
                ..StorageConfig::default()
            },
            zeo: Config {
                encoding: ENCODING,
                frame_bytes_max: FRAME_BYTES_MAX,
                read_only: false,
                notice_interval: Duration::ZERO,
            },
            limits,
            workers: 2,
        };
        let clock = Arc::new(ManualClock::at(BEGIN));
        let its_clock = Arc::<ManualClock>::clone(&clock);
        let server = Server::start(disk.clone(), its_clock, &setting)?;
        Ok(Stage { server, clock, window, peers: Cell::new(0) })
    }

    /// The served storage.
    pub fn storage(&self) -> &Arc<Database> {
        &self.server.storage
    }

    /// Advances the server's clock.
    pub fn let_pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Connects to a worker; only the server's announcement has arrived.
    pub fn connect_without_greeting(&self, worker: usize) -> Result<Speaker, CodecError> {
        let (pipe, end) = Pipe::new(self.window);
        self.peers.set(self.peers.get() + 1);
        self.server.accept(worker, end, format!("speaker {}", self.peers.get()));
        let mut speaker = Speaker { pipe, input: BytesMut::new(), last_id: 0, said: Vec::new() };
        self.run(worker);
        let mut greeting = BytesMut::new();
        encode_frame(&mut greeting, ENCODING.announcement())?;
        speaker.pipe.deliver_replies(greeting.len(), &mut speaker.input);
        speaker.input.clear();
        Ok(speaker)
    }

    /// Connects to a worker, with the handshake done.
    pub fn connect(&self, worker: usize) -> Result<Speaker, CodecError> {
        let speaker = self.connect_without_greeting(worker)?;
        let mut greeting = BytesMut::new();
        encode_frame(&mut greeting, ENCODING.announcement())?;
        speaker.send(&greeting);
        Ok(speaker)
    }

    /// Connects to a worker and registers; nothing is pending afterwards.
    pub fn register(&self, worker: usize, read_only: bool) -> Result<Speaker, CodecError> {
        let mut speaker = self.connect(worker)?;
        speaker.ask_to_register(read_only)?;
        self.settle();
        speaker.listen()?;
        speaker.said.clear();
        Ok(speaker)
    }

    /// Runs a worker's connections.
    pub fn run(&self, worker: usize) {
        while self.server.run_connections(worker) {}
    }

    /// Runs a worker's pending notices.
    pub fn run_notices(&self, worker: usize) {
        while self.server.run_notices(worker) {}
    }

    /// One round of the log writer; returns how many transactions it wrote or tried to write.
    pub fn write(&self) -> usize {
        self.server.write()
    }

    /// Number of jobs waiting for a blocking thread.
    pub fn jobs(&self) -> usize {
        self.server.jobs()
    }

    /// Runs the oldest job; its result is not handled yet.
    pub fn run_job(&self) {
        self.server.take_job(0)();
    }

    /// Runs everything until only clients can make progress.
    pub fn settle(&self) {
        loop {
            self.server.drain();
            if self.server.write() == 0 {
                return;
            }
        }
    }
}

impl Speaker {
    /// Calls `register`; the reply is the last tid.
    pub fn ask_to_register(&mut self, read_only: bool) -> Result<MessageId, CodecError> {
        self.ask("register", [STORAGE_NAME.into(), read_only.into()])
    }

    /// Calls a method; the call has arrived at the server, but is not handled yet.
    pub fn ask<const N: usize>(
        &mut self,
        name: &str,
        arguments: [Value<'_>; N],
    ) -> Result<MessageId, CodecError> {
        self.last_id += 1;
        let mut out = BytesMut::new();
        encode_request(ENCODING, &mut out, self.last_id, name, &Value::tuple(arguments))?;
        self.send(&out);
        Ok(MessageId::Number(self.last_id))
    }

    /// Calls a method without a reply.
    pub fn tell<const N: usize>(
        &mut self,
        name: &str,
        arguments: [Value<'_>; N],
    ) -> Result<(), CodecError> {
        let mut out = BytesMut::new();
        encode_oneway(ENCODING, &mut out, name, &Value::tuple(arguments))?;
        self.send(&out);
        Ok(())
    }

    /// Requests revisions with one message each; all arrive together.
    pub fn load(&mut self, loads: &[(Oid, Tid)]) {
        let mut out = BytesMut::new();
        for (oid, before) in loads {
            encode_load_before_request(ENCODING, &mut out, *oid, *before);
        }
        self.send(&out);
    }

    /// Begins a transaction with these stores.
    pub fn store(&mut self, name: u64, objects: &[(Oid, Tid, &[u8])]) -> Result<(), CodecError> {
        self.begin(name)?;
        for (oid, serial, data) in objects {
            let data = Value::Bytes((*data).into());
            self.tell("storea", [(*oid).into(), (*serial).into(), data, name.into()])?;
        }
        Ok(())
    }

    /// Begins a transaction.
    pub fn begin(&mut self, name: u64) -> Result<(), CodecError> {
        let empty = || Value::Bytes(b"".into());
        let extension = Value::dict::<&str>([]);
        self.tell("tpc_begin", [name.into(), empty(), empty(), extension, Value::None, " ".into()])
    }

    /// Receives all messages that have arrived.
    pub fn listen(&mut self) -> Result<(), CodecError> {
        self.pipe.deliver_replies(usize::MAX, &mut self.input);
        while let Ok(Peek::Complete(payload)) = peek_frame(&self.input, FRAME_BYTES_MAX) {
            let length = HEADER_LENGTH + payload.len();
            self.said.push(match decode_server_message(ENCODING, payload)? {
                ServerMessage::Reply(Reply { id, result }) => {
                    let result = result.map(Value::into_owned);
                    Said::Answer(id, result.map_err(|error| error.name.into_owned()))
                }
                ServerMessage::Notice(notice) => {
                    let arguments = notice.arguments.unwrap_or_default();
                    match (&*notice.name, arguments.as_slice()) {
                        ("invalidateTransaction", [tid, oids]) => {
                            let oids = oids.as_sequence().unwrap_or_default().iter();
                            let oids = oids.filter_map(Value::as_oid).collect();
                            Said::Invalidation(tid.as_tid().unwrap_or_default(), oids)
                        }
                        (name, _) => Said::Notice(name.to_owned()),
                    }
                }
            });
            self.input.advance(length);
        }
        Ok(())
    }

    /// The reply to a request, if it has arrived.
    pub fn answer(&mut self, id: &MessageId) -> Option<Result<Value<'static>, String>> {
        self.listen().ok()?;
        self.said.iter().find_map(|said| match said {
            Said::Answer(answered, result) if answered == id => Some(result.clone()),
            _ => None,
        })
    }

    /// Disconnects without a message.
    pub fn hang_up(&self) {
        self.pipe.reset(0);
    }

    /// Whether the server has closed the connection and all its messages have arrived.
    pub fn is_over(&self) -> bool {
        self.pipe.is_over()
    }

    /// Sends bytes and delivers them.
    pub fn send(&self, bytes: &[u8]) {
        self.pipe.send(bytes);
        self.pipe.deliver_requests(usize::MAX);
    }
}
