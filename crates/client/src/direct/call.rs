//! A client session: handshake, registration and calls.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use zodium_pickle::Value;
use zodium_types::Tid;
use zodium_zeo::codec::frame::encode_frame;
use zodium_zeo::codec::{
    CodecError, Encoding, MessageId, ServerMessage, decode_server_message, encode_heartbeat,
    encode_oneway, encode_request,
};

use super::frames::Frames;
use super::{DirectError, Stream};
use crate::Exception;

/// A connection to one storage of a server.
pub struct DirectClient {
    frames: Frames,
    encoding: Encoding,
    /// Longest time that a call waits for its answer.
    limit: Duration,
    last_id: u64,
}

/// A call that was sent and is not answered yet.
#[derive(Debug)]
#[must_use]
pub struct Pending {
    id: u64,
}

impl DirectClient {
    /// Greets the server in the encoding that it announces. From now on each answer is awaited for
    /// at most `limit`.
    pub fn greet(stream: Stream, limit: Duration) -> Result<DirectClient, DirectError> {
        let mut frames = Frames::new(stream);
        let encoding = Encoding::from_announcement(&frames.receive_announcement(limit)?)?;
        let mut greeting = BytesMut::new();
        encode_frame(&mut greeting, encoding.announcement())?;
        frames.send(&greeting, limit)?;
        Ok(DirectClient { frames, encoding, limit, last_id: 0 })
    }

    /// The encoding of the connection.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Registers for a storage, once for each connection; gives its last transaction.
    pub fn register(&mut self, storage: &str, read_only: bool) -> Result<Tid, DirectError> {
        let last = self.call("register", &Value::tuple([storage.into(), read_only.into()]))?;
        match last {
            // A server that has not opened its storage yet answers None.
            Value::None => Ok(Tid::ZERO),
            last => last.as_tid().ok_or_else(|| {
                CodecError::NotAMessage { what: "the answer to register() is not a tid" }.into()
            }),
        }
    }

    /// Calls a method and waits for its answer. `arguments` is a tuple.
    pub fn call(
        &mut self,
        method: &str,
        arguments: &Value<'_>,
    ) -> Result<Value<'static>, DirectError> {
        let pending = self.request(method, arguments)?;
        let limit = self.limit;
        self.answer(&pending, limit)?.ok_or(DirectError::Silent { limit })
    }

    /// Sends a call without waiting for its answer.
    pub fn request(&mut self, method: &str, arguments: &Value<'_>) -> Result<Pending, DirectError> {
        self.last_id += 1;
        let mut message = BytesMut::new();
        encode_request(self.encoding, &mut message, self.last_id, method, arguments)?;
        self.frames.send(&message, self.limit)?;
        Ok(Pending { id: self.last_id })
    }

    /// Waits for the answer to a call; `None` if it does not arrive within `limit`. The caller may
    /// then wait again.
    pub fn answer(
        &mut self,
        pending: &Pending,
        limit: Duration,
    ) -> Result<Option<Value<'static>>, DirectError> {
        let deadline = Instant::now() + limit;
        loop {
            // Notices may come all the time.
            let left = deadline.saturating_duration_since(Instant::now());
            let payload = match self.frames.receive(left) {
                Ok(payload) => payload,
                Err(DirectError::Silent { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let ServerMessage::Reply(reply) = decode_server_message(self.encoding, &payload)?
            else {
                continue;
            };
            if reply.id == MessageId::Number(pending.id) {
                let result = reply.result.map(Value::into_owned);
                return result.map(Some).map_err(|error| Exception::from(error).into());
            }
        }
    }

    /// Sends a call that gets no answer. If it fails, the server closes the connection.
    pub fn tell(&mut self, method: &str, arguments: &Value<'_>) -> Result<(), DirectError> {
        let mut message = BytesMut::new();
        encode_oneway(self.encoding, &mut message, method, arguments)?;
        self.frames.send(&message, self.limit)
    }

    /// Sends a heartbeat, as stock clients do every minute.
    pub fn give_sign_of_life(&mut self) -> Result<(), DirectError> {
        let mut message = BytesMut::new();
        encode_heartbeat(self.encoding, &mut message);
        self.frames.send(&message, self.limit)
    }
}
