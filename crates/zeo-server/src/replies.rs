//! Puts replies and messages into a session's output.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use zodium_net::{CloseReason, Link};
use zodium_pickle::Value;
use zodium_types::Oid;

use crate::call::Method;
use crate::exception::Exception;
use crate::statistics::Statistics;
use zodium_zeo::codec::{
    CodecError, Encoding, MessageId, encode_error, encode_oneway, encode_reply,
};

/// Size from which on messages for many sessions are shared between them instead of copied.
const SHARED_BYTES_MIN: usize = 4096;

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

/// The output of a session, in the encoding of its client.
#[derive(Clone)]
pub(crate) struct Replies {
    link: Link,
    encoding: Encoding,
    /// Known once the client has registered.
    statistics: Option<Arc<Statistics>>,
    /// Whether the connection has ended; replies then reach no client, and are not counted.
    gone: Arc<AtomicBool>,
}

impl Replies {
    pub(crate) fn new(
        link: Link,
        encoding: Encoding,
        statistics: Option<Arc<Statistics>>,
        gone: Arc<AtomicBool>,
    ) -> Replies {
        Replies { link, encoding, statistics, gone }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    fn statistics(&self) -> Option<&Statistics> {
        self.statistics.as_deref().filter(|_| !self.gone.load(Ordering::Relaxed))
    }

    /// Answers a request that was not answered at once, and counts its duration.
    pub(crate) fn reply(&self, to: &ReplyTo, value: &Value<'_>) {
        self.note_answered(to);
        if let Some(id) = &to.id {
            self.put_reply(id, value);
        }
    }

    /// As [`Replies::reply`], with an error. An asynchronous call has no reply, so its error ends
    /// the connection.
    pub(crate) fn reply_error(&self, to: &ReplyTo, exception: &Exception) {
        self.note_answered(to);
        match &to.id {
            Some(id) => self.put_error(id, exception),
            None => {
                let (peer, method, error) = (self.link.peer(), to.method, exception.name);
                tracing::warn!(peer, ?method, error, "an asynchronous call failed, disconnecting");
                self.link.close(CloseReason::Refused);
            }
        }
    }

    fn note_answered(&self, to: &ReplyTo) {
        if let Some(statistics) = self.statistics() {
            statistics.requests(to.method).record(to.asked.elapsed());
        }
    }

    /// Counts a load that waited for the disk; its reply follows.
    pub(crate) fn note_cold_load(&self, asked: Instant) {
        if let Some(statistics) = self.statistics() {
            let took = asked.elapsed();
            statistics.requests(Method::LoadBefore).record(took);
            statistics.cold_loads.record(took);
        }
    }

    pub(crate) fn put_reply(&self, id: &MessageId, value: &Value<'_>) {
        let encoded = encode_reply(self.encoding, self.link.output().buffer(), id, value);
        if let Err(error) = encoded {
            // The value cannot be encoded, for example an extension with a date in msgpack.
            self.put_error(id, &Exception::value_error(error.to_string()));
        }
    }

    pub(crate) fn put_error(&self, id: &MessageId, exception: &Exception) {
        let Exception { name, payload } = exception;
        if let Some(statistics) = self.statistics() {
            statistics.count_error(name);
        }
        let mut output = self.link.output();
        let encoded = encode_error(self.encoding, output.buffer(), id, name, payload);
        drop(output);
        self.check_sent(encoded);
    }

    pub(crate) fn missing_key(&self, id: &MessageId, oid: Oid) {
        self.put_error(id, &Exception::missing_key(oid));
    }

    /// Replies with the result of a job.
    pub(crate) fn reply_result(&self, to: &ReplyTo, result: Result<Value<'_>, Exception>) {
        match result {
            Ok(value) => self.reply(to, &value),
            Err(exception) => self.reply_error(to, &exception),
        }
    }

    /// Sends the reply to a call that was answered with [`Reply::Later`].
    pub(crate) fn reply_late(&self, to: &ReplyTo, reply: Result<Reply, Exception>) {
        match reply {
            Ok(Reply::Value(value)) => self.reply(to, &value),
            Ok(Reply::Later) => {}
            Err(exception) => self.reply_error(to, &exception),
        }
    }

    /// Sends a message that is no reply, and gets none.
    pub(crate) fn put_oneway(&self, method: &str, arguments: &Value<'_>) {
        let mut output = self.link.output();
        let encoded = encode_oneway(self.encoding, output.buffer(), method, arguments);
        drop(output);
        self.check_sent(encoded);
    }

    /// Sends messages that many sessions get, encoded once for all of them.
    pub(crate) fn push(&self, messages: Result<Bytes, CodecError>) {
        let bytes = match messages {
            Ok(bytes) => bytes,
            Err(error) => return self.check_sent(Err(error)),
        };
        let length = bytes.len();
        if length < SHARED_BYTES_MIN {
            self.link.output().buffer().extend_from_slice(&bytes);
        } else {
            self.link.output().push(bytes);
        }
        self.link.note_push(length);
    }

    /// Disconnects a client that could not be sent a necessary message; it will reconnect.
    pub(crate) fn check_sent(&self, encoded: Result<(), CodecError>) {
        if let Err(error) = encoded {
            tracing::error!(peer = self.link.peer(), %error, "cannot answer, disconnecting");
            self.link.close(CloseReason::Refused);
        }
    }
}
