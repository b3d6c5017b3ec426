//! A client that can say anything: calls are gathered, sent at once, and answered by id.

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
    Encoding, Message, MessageId, ServerMessage, decode_server_message, encode_load_before_request,
    encode_oneway, encode_request,
};

use super::Difference;

/// A server that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two pieces of what is sent piecewise.
const PIECE_PAUSE: Duration = Duration::from_micros(50);
const FRAME_BYTES_MAX: u32 = 64 << 20;

/// What a call came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Value(Value<'static>),
    /// The name of an exception.
    Error(String),
    /// The connection was closed.
    Closed,
}

pub(super) struct Client {
    stream: UnixStream,
    encoding: Encoding,
    input: BytesMut,
    output: BytesMut,
    last_id: u64,
    answers: HashMap<MessageId, Answer>,
    /// Of other clients' commits, in the order they came.
    pub(super) invalidations: VecDeque<(Tid, BTreeSet<Oid>)>,
    closed: bool,
}

impl Client {
    /// Connects and shakes hands.
    pub(super) fn connect(socket: &Path) -> Result<Client, Difference> {
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
    pub(super) fn register(socket: &Path) -> Result<Client, Difference> {
        let mut client = Client::connect(socket)?;
        match client.ask("register", ["1".into(), false.into()])? {
            Answer::Value(_) => Ok(client),
            other => Err(Difference { what: format!("register: {other:?}") }),
        }
    }

    /// Gathers a call; its reply is to be asked for by what this gives.
    pub(super) fn call<const N: usize>(
        &mut self,
        name: &str,
        arguments: [Value<'_>; N],
    ) -> Result<MessageId, Difference> {
        self.last_id += 1;
        let arguments = Value::tuple(arguments);
        encode_request(self.encoding, &mut self.output, self.last_id, name, &arguments)?;
        Ok(MessageId::Number(self.last_id))
    }

    /// Gathers a load as stock clients write it. The same one must not be under way already.
    pub(super) fn load(&mut self, oid: Oid, before: Tid) -> MessageId {
        encode_load_before_request(self.encoding, &mut self.output, oid, before);
        MessageId::Load { oid, before }
    }

    /// Gathers a call that wants no reply.
    pub(super) fn tell<const N: usize>(
        &mut self,
        name: &str,
        arguments: [Value<'_>; N],
    ) -> Result<(), Difference> {
        Ok(encode_oneway(self.encoding, &mut self.output, name, &Value::tuple(arguments))?)
    }

    /// Sends what was gathered.
    pub(super) fn send(&mut self) -> Result<(), Difference> {
        let output = std::mem::take(&mut self.output);
        match self.stream.write_all(&output) {
            // What is to be read says it too.
            Err(error) if is_closing(error.kind()) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Sends what was gathered in pieces that end there, each after the one before had the time to
    /// be read.
    pub(super) fn send_pieces(&mut self, ends: &[usize]) -> Result<(), Difference> {
        let output = std::mem::take(&mut self.output);
        let mut from = 0;
        for end in ends.iter().copied().chain([output.len()]) {
            self.stream.write_all(&output[from..end])?;
            from = end;
            std::thread::sleep(PIECE_PAUSE);
        }
        Ok(())
    }

    /// Bytes that were gathered.
    pub(super) fn gathered_bytes(&self) -> usize {
        self.output.len()
    }

    /// Calls and waits.
    pub(super) fn ask<const N: usize>(
        &mut self,
        name: &str,
        arguments: [Value<'_>; N],
    ) -> Result<Answer, Difference> {
        let id = self.call(name, arguments)?;
        self.send()?;
        self.answer(&id)
    }

    /// Waits for the reply to a call that was sent.
    pub(super) fn answer(&mut self, id: &MessageId) -> Result<Answer, Difference> {
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

    /// Reads until the server closes; what comes meanwhile are answers.
    pub(super) fn wait_closed(&mut self) -> Result<(), Difference> {
        while !self.closed {
            self.take_messages()?;
        }
        Ok(())
    }

    /// Whether every reply was asked for.
    pub(super) fn has_unasked(&self) -> bool {
        !self.answers.is_empty()
    }

    fn take_messages(&mut self) -> Result<(), Difference> {
        self.read()?;
        while let Some(frame) = split_frame(&mut self.input, FRAME_BYTES_MAX)? {
            match decode_server_message(self.encoding, &frame)? {
                ServerMessage::Reply(reply) => {
                    let answer = match reply.result {
                        Ok(value) => Answer::Value(value.into_owned()),
                        Err(error) => Answer::Error(error.name.into_owned()),
                    };
                    if self.answers.insert(reply.id.clone(), answer).is_some() {
                        let what = format!("{:?} was answered twice", reply.id);
                        return Err(Difference { what });
                    }
                }
                ServerMessage::Notice(notice) => {
                    self.invalidations.extend(invalidation(notice));
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
    if notice.name != "invalidateTransaction" {
        return None;
    }
    let arguments = notice.arguments?;
    let oids = arguments.get(1)?.as_sequence()?.iter().filter_map(Value::as_oid).collect();
    Some((arguments.first()?.as_tid()?, oids))
}
