//! What can go wrong between a command and a server.

use std::io;
use std::time::Duration;

use thiserror::Error;
use zodium_pickle::{Object, Value};
use zodium_tls::HandshakeFailure;

use crate::codec::{CodecError, FrameError, RemoteError};

/// Why a call was not answered with a value.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody listens there, or it cannot be reached.
    #[error("cannot connect to {address}: {reason}; is the server running there?")]
    Connect {
        /// The address as given.
        address: String,
        /// The system's answer.
        reason: io::Error,
    },
    /// The server did not say anything in time.
    #[error("no answer from the server within {} seconds", limit.as_secs_f64())]
    Silent {
        /// How long was waited.
        limit: Duration,
    },
    /// The server ended the connection.
    #[error("the server closed the connection; its log says why")]
    Closed,
    /// The server let the client wait from the start.
    #[error(
        "no answer from the server within {} seconds; if it speaks TLS, it waits for the client to \
         do so: see --ssl-certificate and --ssl-authenticate",
        limit.as_secs_f64()
    )]
    NoGreeting {
        /// How long was waited.
        limit: Duration,
    },
    /// The server ended the connection before it said anything.
    #[error(
        "the server closed the connection before it said anything; if it speaks TLS, it waited \
         for the client to do so: see --ssl-certificate and --ssl-authenticate"
    )]
    ClosedUnheard,
    /// The server ended the connection before TLS was agreed upon.
    #[error("the server closed the connection in the midst of the TLS handshake; its log says why")]
    NoHandshake,
    /// TLS, or a certificate.
    #[error(transparent)]
    Tls(#[from] HandshakeFailure),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// What the server sent is no frame.
    #[error("this is no ZEO server: {0}")]
    Frame(#[from] FrameError),
    /// What the server sent, or what was to be sent, is no message.
    #[error("the server does not speak ZEO 5 as we do: {0}")]
    Codec(#[from] CodecError),
    /// The answer to `ruok` is no status of storages.
    #[error("the server's status cannot be read: {what}")]
    Status {
        /// What is wrong with it.
        what: String,
    },
    /// The method raised an exception.
    #[error("{text}")]
    Raised {
        /// The dotted name of the exception's class.
        name: String,
        /// What it says, or else its name and arguments.
        text: String,
    },
}

impl ClientError {
    pub(super) fn raised(error: &RemoteError<'_>) -> ClientError {
        let name = error.name.to_string();
        let text = exception_text(&name, &error.payload);
        ClientError::Raised { name, text }
    }
}

/// What an exception of a server says, or else its name and arguments.
pub fn exception_text(name: &str, payload: &Value<'_>) -> String {
    match first_text(payload) {
        Some(text) => text.to_owned(),
        None => format!("{name}{}", shown(payload)),
    }
}

/// What most exceptions have to say: their only argument, or an attribute for it.
fn first_text<'v>(payload: &'v Value<'_>) -> Option<&'v str> {
    match payload.as_sequence() {
        Some([only]) => only.as_str(),
        Some(_) => None,
        None => payload.entry("message").or_else(|| payload.entry("_reason"))?.as_str(),
    }
}

/// A value for people.
fn shown(value: &Value<'_>) -> String {
    let all = |items: &[Value<'_>]| items.iter().map(shown).collect::<Vec<_>>().join(", ");
    match value {
        Value::None => "None".to_owned(),
        Value::Bytes(bytes) => format!("b\"{}\"", bytes.escape_ascii()),
        Value::Str(text) => format!("{text:?}"),
        Value::Dict(entries) => {
            let entries =
                entries.iter().map(|(key, value)| format!("{}={}", shown(key), shown(value)));
            format!("({})", entries.collect::<Vec<_>>().join(", "))
        }
        value => match (value.as_int(), value.as_float(), value.as_sequence()) {
            (Some(number), ..) => number.to_string(),
            (_, Some(number), _) => number.to_string(),
            (.., Some(items)) => format!("({})", all(items)),
            _ => value.as_object().and_then(Object::class).map_or_else(
                || format!("<{}>", value.kind()),
                |class| format!("<{}.{}>", class.module(), class.name()),
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &'static str, payload: Value<'static>) -> String {
        ClientError::raised(&RemoteError { name: name.into(), payload }).to_string()
    }

    #[test]
    fn exceptions_say_what_they_have_to_say() {
        let payload = Value::tuple(["unknown storage: 2".into()]);
        assert_eq!(text("builtins.ValueError", payload), "unknown storage: 2");
        let conflict = Value::dict([("message", "database conflict error".into())]);
        assert_eq!(text("ZODB.POSException.ConflictError", conflict), "database conflict error");
    }

    #[test]
    fn exceptions_without_a_text_are_told_by_name_and_arguments() {
        let oid = Value::tuple([Value::from(b"\0\x01"), 7.into()]);
        assert_eq!(text("m.E", oid), "m.E(b\"\\x00\\x01\", 7)");
        assert_eq!(text("m.ReadOnlyError", Value::tuple([])), "m.ReadOnlyError()");
    }
}
