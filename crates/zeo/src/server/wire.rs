//! Putting replies and messages into a session's output.

use zodium_pickle::Value;

use super::exception::Exception;
use super::session::{ReplyTo, Session};
use crate::codec::{encode_error, encode_oneway, encode_reply};

impl Session {
    pub(crate) fn reply(&self, to: &ReplyTo, value: &Value<'_>) {
        if let Some(id) = &to.0 {
            encode_reply(self.encoding(), self.link.output().buffer(), id, value);
        }
    }

    pub(crate) fn reply_error(&self, to: &ReplyTo, exception: &Exception) {
        if let Some(id) = &to.0 {
            let mut output = self.link.output();
            encode_error(
                self.encoding(),
                output.buffer(),
                id,
                exception.name,
                &exception.payload,
            );
        }
    }

    /// Replies with what a job has found.
    pub(crate) fn reply_result(&self, to: &ReplyTo, result: Result<Value<'_>, Exception>) {
        match result {
            Ok(value) => self.reply(to, &value),
            Err(exception) => self.reply_error(to, &exception),
        }
    }

    /// Tells the client the size of the database.
    pub(crate) fn send_info(&self) {
        let Some(hub) = self.hub() else { return };
        let file = hub.storage.file();
        let info = Value::dict([
            ("length", Value::Int(file.object_count().into())),
            ("size", Value::Int(file.size().into())),
        ]);
        let mut output = self.link.output();
        encode_oneway(self.encoding(), output.buffer(), "info", &Value::tuple([info]));
    }
}
