//! Puts replies and messages into a session's output.

use zodium_net::CloseReason;
use zodium_pickle::Value;

use super::exception::Exception;
use super::session::{ReplyTo, Session};
use crate::codec::{CodecError, MessageId, encode_error, encode_oneway, encode_reply};

impl Session {
    /// Answers a request that was not answered at once, and counts its duration.
    pub(crate) fn reply(&self, to: &ReplyTo, value: &Value<'_>) {
        self.note_answered(to);
        if let Some(id) = &to.id {
            self.put_reply(id, value);
        }
    }

    /// As [`Session::reply`], with an error. An asynchronous call has no reply, so its error ends
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
        if let Some(subscriber) = self.subscriber() {
            subscriber.statistics.requests(to.method).record(to.asked.elapsed());
        }
    }

    pub(crate) fn put_reply(&self, id: &MessageId, value: &Value<'_>) {
        let encoded = encode_reply(self.encoding(), self.link.output().buffer(), id, value);
        if let Err(error) = encoded {
            // The value cannot be encoded, for example an extension with a date in msgpack.
            self.put_error(id, &Exception::value_error(error.to_string()));
        }
    }

    pub(crate) fn put_error(&self, id: &MessageId, exception: &Exception) {
        let Exception { name, payload } = exception;
        if let Some(subscriber) = self.subscriber() {
            subscriber.statistics.count_error(name);
        }
        let mut output = self.link.output();
        let encoded = encode_error(self.encoding(), output.buffer(), id, name, payload);
        drop(output);
        self.check_sent(encoded);
    }

    /// Replies with the result of a job.
    pub(crate) fn reply_result(&self, to: &ReplyTo, result: Result<Value<'_>, Exception>) {
        match result {
            Ok(value) => self.reply(to, &value),
            Err(exception) => self.reply_error(to, &exception),
        }
    }

    /// Sends the size of the database to the client.
    pub(crate) fn send_info(&self) {
        let Some(subscriber) = self.subscriber() else { return };
        let file = subscriber.storage.reader();
        let info = Value::dict([
            ("length", Value::Int(file.object_count().into())),
            ("size", Value::Int(file.size().into())),
        ]);
        let mut output = self.link.output();
        let arguments = Value::tuple([info]);
        let encoded = encode_oneway(self.encoding(), output.buffer(), "info", &arguments);
        drop(output);
        self.check_sent(encoded);
    }

    /// Disconnects a client that could not be sent a necessary message; it will reconnect.
    pub(crate) fn check_sent(&self, encoded: Result<(), CodecError>) {
        if let Err(error) = encoded {
            tracing::error!(peer = self.link.peer(), %error, "cannot answer, disconnecting");
            self.link.close(CloseReason::Refused);
        }
    }
}
