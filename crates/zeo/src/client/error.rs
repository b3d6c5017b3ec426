//! Errors of the client for commands.

use std::io;
use std::time::Duration;

use thiserror::Error;
use zodium_pickle::{Object, Value};
use zodium_tls::HandshakeFailure;

use crate::codec::{CodecError, FrameError, RemoteError};

/// Why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No server listens at the address, or it cannot be reached.
    #[error("cannot connect to {address}: {reason}; is the server running there?")]
    Connect {
        /// The address as given.
        address: String,
        /// The system's error.
        reason: io::Error,
    },
    /// The server did not answer in time.
    #[error("no answer from the server within {} seconds", limit.as_secs_f64())]
    Silent {
        /// How long the client waited.
        limit: Duration,
    },
    /// The server ended the connection.
    #[error("the server closed the connection; see its log for the reason")]
    Closed,
    /// The server sent no greeting in time.
    #[error(
        "no answer from the server within {} seconds; if it speaks TLS, it waits for the client to \
         do so: see --ssl-certificate and --ssl-authenticate",
        limit.as_secs_f64()
    )]
    NoGreeting {
        /// How long the client waited.
        limit: Duration,
    },
    /// The server ended the connection before its greeting.
    #[error(
        "the server closed the connection before it said anything; if it speaks TLS, it waited \
         for the client to do so: see --ssl-certificate and --ssl-authenticate"
    )]
    ClosedUnheard,
    /// The server ended the connection during the TLS handshake.
    #[error(
        "the server closed the connection during the TLS handshake; see its log for the reason"
    )]
    NoHandshake,
    /// TLS failed.
    #[error(transparent)]
    Tls(#[from] HandshakeFailure),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The server sent something that is not a frame.
    #[error("this is not a ZEO server: {0}")]
    Frame(#[from] FrameError),
    /// A message of the server cannot be decoded, or one to it cannot be encoded.
    #[error("the server does not speak ZEO 5 as expected: {0}")]
    Codec(#[from] CodecError),
    /// The answer to `ruok` cannot be parsed.
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
        /// Its text, or else its name and arguments.
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

/// The text of a server's exception, or else its name and arguments.
pub fn exception_text(name: &str, payload: &Value<'_>) -> String {
    match first_text(payload) {
        Some(text) => text.to_owned(),
        None => format!("{name}{}", shown(payload)),
    }
}

/// The text of most exceptions: their only argument, or an attribute.
fn first_text<'v>(payload: &'v Value<'_>) -> Option<&'v str> {
    match payload.as_sequence() {
        Some([only]) => only.as_str(),
        Some(_) => None,
        None => payload.entry("message").or_else(|| payload.entry("_reason"))?.as_str(),
    }
}

/// A value as text for an error message.
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
