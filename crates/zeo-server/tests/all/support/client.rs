//! A client that can send anything: calls are buffered, sent at once, and answered by id.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::frame::{encode_frame, split_frame};
use zodium_zeo::codec::{
    Encoding, Message, MessageId, ServerMessage, decode_server_message, encode_heartbeat,
    encode_load_before_request, encode_oneway, encode_request,
};

use super::Difference;

/// A server that sends nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two pieces of a split request.
const PIECE_PAUSE: Duration = Duration::from_micros(50);
const FRAME_BYTES_MAX: u32 = 64 << 20;

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Value(Value<'static>),
    /// The name of an exception.
    Error(String),
    /// The connection was closed.
    Closed,
}

pub(crate) struct Client {
    stream: UnixStream,
    encoding: Encoding,
    input: BytesMut,
    output: BytesMut,
    last_id: u64,
    answers: HashMap<MessageId, Answer>,
    /// Other clients' commits, in the order of arrival.
    pub(crate) invalidations: VecDeque<(Tid, BTreeSet<Oid>)>,
    /// The arguments of the last exception.
    pub(crate) refusal: Value<'static>,
    /// The other notices, by name and arguments.
    pub(crate) notices: Vec<(String, Vec<Value<'static>>)>,
    closed: bool,
}

impl Client {
    /// Connects and performs the handshake.
    pub(crate) fn connect(socket: &Path) -> Result<Client, Difference> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Client {
            stream,
            encoding: Encoding::Pickle,
            input: BytesMut::new(),
            output: BytesMut::new(),
            last_id: 0,
            answers: HashMap::new(),
            invalidations: VecDeque::new(),
            refusal: Value::None,
            notices: Vec::new(),
            closed: false,
        };
        let announced = loop {
            if let Some(frame) = split_frame(&mut client.input, FRAME_BYTES_MAX)? {
                break frame;
            }
            client.read()?;
        };
        client.encoding = Encoding::from_announcement(&announced)?;
        encode_frame(&mut client.output, &announced)?;
        Ok(client)
    }

    /// Connects and registers.
    pub(crate) fn register(socket: &Path) -> Result<Client, Difference> {
        let mut client = Client::connect(socket)?;
        match client.ask("register", ["1".into(), false.into()])? {
            Answer::Value(_) => Ok(client),
            other => Err(Difference { what: format!("register: {other:?}") }),
        }
    }

    /// Buffers a call; returns the id of its reply.
    pub(crate) fn call<const N: usize>(
        &mut self,
        name: &str,
        arguments: [Value<'_>; N],
    ) -> Result<MessageId, Difference> {
        self.last_id += 1;
        let arguments = Value::tuple(arguments);
        encode_request(self.encoding, &mut self.output, self.last_id, name, &arguments)?;
        Ok(MessageId::Number(self.last_id))
    }

    /// Buffers a load as stock clients encode it. The same load must not be pending.
    pub(crate) fn load(&mut self, oid: Oid, before: Tid) -> MessageId {
        encode_load_before_request(self.encoding, &mut self.output, oid, before);
        MessageId::Load { oid, before }
    }

    /// Sends a heartbeat, which a server takes without a word.
    pub(crate) fn beat(&mut self) -> Result<(), Difference> {
        encode_heartbeat(self.encoding, &mut self.output);
        self.send()
    }

    /// Buffers a call without a reply.
    pub(crate) fn tell<const N: usize>(
        &mut self,
        name: &str,
        arguments: [Value<'_>; N],
    ) -> Result<(), Difference> {
        Ok(encode_oneway(self.encoding, &mut self.output, name, &Value::tuple(arguments))?)
    }

    /// Sends the buffered calls.
    pub(crate) fn send(&mut self) -> Result<(), Difference> {
        let output = std::mem::take(&mut self.output);
        match self.stream.write_all(&output) {
            // The next read reports it too.
            Err(error) if is_closing(error.kind()) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Sends the buffered calls in pieces with these ends, with a pause after each piece so that it
    /// is read alone.
    pub(crate) fn send_pieces(&mut self, ends: &[usize]) -> Result<(), Difference> {
        let output = std::mem::take(&mut self.output);
        let mut from = 0;
        for end in ends.iter().copied().chain([output.len()]) {
            self.stream.write_all(&output[from..end])?;
            from = end;
            std::thread::sleep(PIECE_PAUSE);
        }
        Ok(())
    }

    /// Number of buffered bytes.
    pub(crate) fn gathered_bytes(&self) -> usize {
        self.output.len()
    }

    /// Calls and waits for the reply.
    pub(crate) fn ask<const N: usize>(
        &mut self,
        name: &str,
        arguments: [Value<'_>; N],
    ) -> Result<Answer, Difference> {
        let id = self.call(name, arguments)?;
        self.send()?;
        self.answer(&id)
    }

    /// Buffers the begin of a transaction without metadata.
    pub(crate) fn begin(&mut self, number: u64) -> Result<(), Difference> {
        let empty = || Value::from(b"");
        let extension = Value::dict::<&str>([]);
        let arguments = [number.into(), empty(), empty(), extension, Value::None, " ".into()];
        self.tell("tpc_begin", arguments)
    }

    /// Buffers a store within a transaction.
    pub(crate) fn store(
        &mut self,
        number: u64,
        oid: Oid,
        serial: Tid,
        data: &[u8],
    ) -> Result<(), Difference> {
        self.tell("storea", [oid.into(), serial.into(), data.into(), number.into()])
    }

    /// Votes for a transaction and finishes it, which must both succeed without conflicts.
    pub(crate) fn commit(&mut self, number: u64) -> Result<Tid, Difference> {
        let voted = self.ask("vote", [number.into()])?;
        let finished = self.ask("tpc_finish", [number.into()])?;
        match (&voted, &finished) {
            (Answer::Value(conflicts), Answer::Value(tid))
                if conflicts.as_sequence().is_some_and(<[_]>::is_empty) =>
            {
                tid.as_tid().ok_or(Difference { what: format!("the tid is {tid:?}") })
            }
            _ => Err(Difference { what: format!("voted: {voted:?}, finished: {finished:?}") }),
        }
    }

    /// Whether the reply to a call has come with those that were waited for.
    pub(crate) fn has_answer(&self, id: &MessageId) -> bool {
        self.answers.contains_key(id)
    }

    /// Waits for the reply to a call that was sent.
    pub(crate) fn answer(&mut self, id: &MessageId) -> Result<Answer, Difference> {
        loop {
            if let Some(answer) = self.answers.remove(id) {
                return Ok(answer);
            }
            if self.closed {
                return Ok(Answer::Closed);
            }
            self.take_messages()?;
        }
    }

    /// Reads until the server closes; replies that arrive meanwhile are kept.
    pub(crate) fn wait_closed(&mut self) -> Result<(), Difference> {
        while !self.closed {
            self.take_messages()?;
        }
        Ok(())
    }

    /// Waits, without a request, until it was told of a commit.
    pub(crate) fn wait_told(&mut self) -> Result<Tid, Difference> {
        loop {
            if let Some((tid, _)) = self.invalidations.pop_front() {
                return Ok(tid);
            }
            self.take_messages()?;
        }
    }

    /// Whether there is a reply that was not asked for.
    pub(crate) fn has_unasked(&self) -> bool {
        !self.answers.is_empty()
    }

    fn take_messages(&mut self) -> Result<(), Difference> {
        self.read()?;
        while let Some(frame) = split_frame(&mut self.input, FRAME_BYTES_MAX)? {
            match decode_server_message(self.encoding, &frame)? {
                ServerMessage::Reply(reply) => {
                    let answer = match reply.result {
                        Ok(value) => Answer::Value(value.into_owned()),
                        Err(error) => {
                            self.refusal = error.payload.into_owned();
                            Answer::Error(error.name.into_owned())
                        }
                    };
                    if self.answers.insert(reply.id.clone(), answer).is_some() {
                        let what = format!("{:?} was answered twice", reply.id);
                        return Err(Difference { what });
                    }
                }
                ServerMessage::Notice(notice) if notice.name == "invalidateTransaction" => {
                    self.invalidations.extend(invalidation(notice));
                }
                ServerMessage::Notice(Message { name, arguments, .. }) => {
                    let arguments = arguments.unwrap_or_default().into_iter();
                    let arguments = arguments.map(Value::into_owned).collect();
                    self.notices.push((name.into_owned(), arguments));
                }
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Difference> {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.closed = true,
            Ok(count) => self.input.extend_from_slice(&buffer[..count]),
            Err(error) if is_closing(error.kind()) => self.closed = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn is_closing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

fn invalidation(notice: Message<'_>) -> Option<(Tid, BTreeSet<Oid>)> {
    let arguments = notice.arguments?;
    let oids = arguments.get(1)?.as_sequence()?.iter().filter_map(Value::as_oid).collect();
    Some((arguments.first()?.as_tid()?, oids))
}
