//! A connection for commits. Calls without a reply leave with the next request, as Zodium's own
//! clients send them.
//!
//! Requests are sent, and replies decoded, when the caller says so: it may do both with a delay.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::frame::split_frame;
use zodium_zeo::codec::{
    Encoding, MessageId, ServerMessage, decode_server_message, encode_load_before_request,
    encode_oneway, encode_request,
};

use super::delayed::let_pass;
use crate::connection::PATIENCE;
use crate::wire::register;

const READ_BYTES: usize = 64 << 10;
const FRAME_BYTES_MAX: u32 = 4 << 20;
/// The id of the registration.
const FIRST_ID: u64 = 1;

/// A registered client.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    encoding: Encoding,
    input: BytesMut,
    output: BytesMut,
    last_id: u64,
    scratch: Vec<u8>,
}

/// A server's reply.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) id: MessageId,
    pub(super) result: Result<Value<'static>, Raised>,
}

/// An exception of the server.
#[derive(Debug)]
pub(super) struct Raised {
    pub(super) name: String,
    pub(super) payload: String,
}

impl Link {
    pub(super) fn open(address: SocketAddr) -> Result<Link> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut input = BytesMut::new();
        let encoding = register(&stream, &mut input, false).context("the handshake failed")?;
        let (output, scratch) = (BytesMut::new(), vec![0; READ_BYTES]);
        Ok(Link { stream, encoding, input, output, last_id: FIRST_ID, scratch })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// `M5` or `Z5`.
    pub(super) fn wire_name(&self) -> &'static str {
        match self.encoding {
            Encoding::Msgpack => "M5",
            Encoding::Pickle => "Z5",
        }
    }

    /// Buffers a call that has a reply.
    pub(super) fn request(&mut self, method: &str, arguments: &Value<'_>) -> Result<MessageId> {
        self.last_id += 1;
        encode_request(self.encoding, &mut self.output, self.last_id, method, arguments)?;
        Ok(MessageId::Number(self.last_id))
    }

    /// Buffers a call without a reply.
    pub(super) fn tell(&mut self, method: &str, arguments: &Value<'_>) -> Result<()> {
        Ok(encode_oneway(self.encoding, &mut self.output, method, arguments)?)
    }

    /// Buffers a request for the current revision of an object.
    pub(super) fn load(&mut self, oid: Oid) -> Result<MessageId> {
        encode_load_before_request(self.encoding, &mut self.output, oid, Tid::MAX);
        Ok(MessageId::Load { oid, before: Tid::MAX })
    }

    /// Reads once.
    pub(super) fn receive(&mut self) -> Result<&[u8]> {
        let count = match self.stream.read(&mut self.scratch) {
            Ok(0) => bail!("the server closed the connection"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("the server has not answered for {} s", PATIENCE.as_secs())
            }
            read => read.context("cannot receive")?,
        };
        Ok(self.scratch.get(..count).unwrap_or_default())
    }

    /// Calls and waits for the reply, with a delay in each direction; no other request may be
    /// pending.
    pub(super) fn call(
        &mut self,
        method: &str,
        arguments: &Value<'_>,
        delay: Duration,
    ) -> Result<Value<'static>> {
        let id = self.request(method, arguments)?;
        let_pass(delay);
        self.flush()?;
        loop {
            let received = self.receive()?.to_vec();
            if let Some(answer) = self.answers(&received)?.pop() {
                let_pass(delay);
                return answer.expect(&id);
            }
        }
    }

    /// The replies in received bytes; skips notices.
    pub(super) fn answers(&mut self, received: &[u8]) -> Result<Vec<Answer>> {
        self.input.extend_from_slice(received);
        let mut answers = Vec::new();
        while let Some(payload) = split_frame(&mut self.input, FRAME_BYTES_MAX)? {
            answers.extend(decode(self.encoding, &payload)?);
        }
        Ok(answers)
    }

    /// Whether calls are buffered.
    pub(super) fn has_requests(&self) -> bool {
        !self.output.is_empty()
    }

    /// Sends what is buffered.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.stream.write_all(&self.output).context("cannot send")?;
        self.output.clear();
        Ok(())
    }
}

impl Answer {
    /// The result of the request with this id; any other reply is an error.
    pub(super) fn expect(self, id: &MessageId) -> Result<Value<'static>> {
        if self.id != *id {
            bail!("{:?} was answered, but {id:?} was asked", self.id);
        }
        self.result.map_err(|raised| anyhow::anyhow!("{}: {}", raised.name, raised.payload))
    }
}

fn decode(encoding: Encoding, payload: &Bytes) -> Result<Option<Answer>> {
    let ServerMessage::Reply(reply) = decode_server_message(encoding, payload)? else {
        return Ok(None);
    };
    let result = reply.result.map(Value::into_owned).map_err(|error| Raised {
        name: error.name.into_owned(),
        payload: format!("{:?}", error.payload),
    });
    Ok(Some(Answer { id: reply.id, result }))
}
