//! Messages of every kind, as values.
//!
//! On the wire all are sequences of four: id, flag, name, arguments. A reply has the name
//! `.reply`, a heartbeat the id -1. Who reads knows which side it is on: a server gets calls
//! only, a client replies and notices.

use std::borrow::Cow;

use bytes::BytesMut;
use zodium_pickle::{Limits, Objects, Value};

use super::writer::{Flag, write_message};
use super::{CodecError, Encoding, MessageId, msgpack};

/// The name of replies and heartbeats.
pub(super) const REPLY: &str = ".reply";

/// What a server accepts. The one class that clients send is `Prefix`, as a value to compare
/// with in the filter of `undoInfo`.
pub const REQUEST_LIMITS: Limits = Limits {
    nesting: 100,
    nodes: 1 << 20,
    objects: Objects::Only(&[("ZopeUndo.Prefix", "Prefix")]),
};

/// What a client accepts: lists of very many oids, and instances within the extension of a
/// transaction, as data.
pub const REPLY_LIMITS: Limits = Limits { nesting: 100, nodes: 1 << 24, objects: Objects::Allowed };

/// A message as a server gets it: a method call or a sign of life.
#[derive(Clone, Debug, PartialEq)]
pub struct Message<'a> {
    /// What the reply must repeat; meaningless in a oneway call.
    pub id: MessageId,
    /// Whether no reply is wanted.
    pub oneway: bool,
    /// The method.
    pub name: Cow<'a, str>,
    /// Its positional arguments; `None` if what was sent is no sequence.
    pub arguments: Option<Vec<Value<'a>>>,
}

/// A message as a client gets it.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerMessage<'a> {
    /// The answer to a request.
    Reply(Reply<'a>),
    /// A notice; the server never asks.
    Notice(Message<'a>),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply<'a> {
    /// The id of the request.
    pub id: MessageId,
    /// What the method returned or raised.
    pub result: Result<Value<'a>, RemoteError<'a>>,
}

/// An exception of the server.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteError<'a> {
    /// The dotted name of its class.
    pub name: Cow<'a, str>,
    /// Its attributes as a dict, or else its arguments as a sequence.
    pub payload: Value<'a>,
}

impl Message<'_> {
    /// Whether this is a sign of life, to be neither called nor answered.
    pub fn is_heartbeat(&self) -> bool {
        self.id == MessageId::Heartbeat
    }
}

/// Reads the payload of a frame that a client sent, within [`REQUEST_LIMITS`]. Bytes and text
/// borrow from it.
pub fn decode_message(encoding: Encoding, payload: &[u8]) -> Result<Message<'_>, CodecError> {
    let parts = Parts::decode(encoding, payload, &REQUEST_LIMITS)?;
    Ok(parts.into_message())
}

/// Reads the payload of a frame that a server sent, within [`REPLY_LIMITS`]. Bytes and text
/// borrow from it.
pub fn decode_server_message(
    encoding: Encoding,
    payload: &[u8],
) -> Result<ServerMessage<'_>, CodecError> {
    let parts = Parts::decode(encoding, payload, &REPLY_LIMITS)?;
    if parts.name == REPLY {
        return parts.into_reply().map(ServerMessage::Reply);
    }
    Ok(ServerMessage::Notice(parts.into_message()))
}

struct Parts<'a> {
    id: MessageId,
    flag: i128,
    name: Cow<'a, str>,
    arguments: Value<'a>,
}

impl<'a> Parts<'a> {
    fn decode(
        encoding: Encoding,
        payload: &'a [u8],
        limits: &Limits,
    ) -> Result<Parts<'a>, CodecError> {
        let (value, length) = match encoding {
            Encoding::Pickle => zodium_pickle::decode(payload, limits)?,
            Encoding::Msgpack => msgpack::decode(payload, limits)?,
        };
        if length < payload.len() {
            return Err(CodecError::TrailingBytes { count: payload.len() - length });
        }
        let parts = value.into_sequence().map(<[Value<'a>; 4]>::try_from);
        let Some(Ok([id, flag, name, arguments])) = parts else {
            return Err(CodecError::NotAMessage { what: "it has not four parts" });
        };
        let Some(flag) = flag.as_int() else {
            return Err(CodecError::NotAMessage { what: "its flag is neither bool nor int" });
        };
        let Some(name) = into_text(name) else {
            return Err(CodecError::NotAMessage { what: "its method is not text" });
        };
        Ok(Parts { id: MessageId::from_value(encoding, &id)?, flag, name, arguments })
    }

    fn into_message(self) -> Message<'a> {
        Message {
            id: self.id,
            oneway: self.flag != 0,
            name: self.name,
            arguments: self.arguments.into_sequence(),
        }
    }

    fn into_reply(self) -> Result<Reply<'a>, CodecError> {
        if self.flag == 0 {
            return Ok(Reply { id: self.id, result: Ok(self.arguments) });
        }
        let parts = self.arguments.into_sequence().map(<[Value<'a>; 2]>::try_from);
        if let Some(Ok([name, payload])) = parts
            && let Some(name) = into_text(name)
        {
            return Ok(Reply { id: self.id, result: Err(RemoteError { name, payload }) });
        }
        Err(CodecError::NotAMessage { what: "its error is not a name with arguments" })
    }
}

fn into_text(value: Value<'_>) -> Option<Cow<'_, str>> {
    match value {
        Value::Str(text) => Some(text),
        // A client on Python 2 sends its native strings.
        Value::Bytes(Cow::Borrowed(bytes)) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        _ => None,
    }
}

/// Appends the reply to a call that succeeded.
pub fn encode_reply(
    encoding: Encoding,
    out: &mut BytesMut,
    id: &MessageId,
    result: &Value<'_>,
) -> Result<(), CodecError> {
    write_message(encoding, out, id, Flag::Result, REPLY, |out| out.value(result))
}

/// Appends the reply to a call that failed. `exception_name` is the dotted name of a class that
/// clients know; `payload` is what makes the exception: a dict for conflict errors, or else a
/// tuple of arguments.
pub fn encode_error(
    encoding: Encoding,
    out: &mut BytesMut,
    id: &MessageId,
    exception_name: &str,
    payload: &Value<'_>,
) -> Result<(), CodecError> {
    write_message(encoding, out, id, Flag::Error, REPLY, |out| {
        out.open_tuple(2);
        out.text(exception_name)?;
        out.value(payload)?;
        out.close_tuple(2);
        Ok(())
    })
}

/// Appends a call that wants no reply. `arguments` is a tuple.
pub fn encode_oneway(
    encoding: Encoding,
    out: &mut BytesMut,
    name: &str,
    arguments: &Value<'_>,
) -> Result<(), CodecError> {
    let id = MessageId::Number(0);
    write_message(encoding, out, &id, Flag::Oneway, name, |out| out.value(arguments))
}

/// Appends a call that wants a reply. `id` is at least 1 and new to the connection; `arguments`
/// is a tuple.
pub fn encode_request(
    encoding: Encoding,
    out: &mut BytesMut,
    id: u64,
    name: &str,
    arguments: &Value<'_>,
) -> Result<(), CodecError> {
    let id = MessageId::Number(id);
    write_message(encoding, out, &id, Flag::Request, name, |out| out.value(arguments))
}

/// Appends a client's sign of life.
pub fn encode_heartbeat(encoding: Encoding, out: &mut BytesMut) {
    out.extend_from_slice(match encoding {
        Encoding::Pickle => b"\0\0\0\x18\x80\x03(J\xff\xff\xff\xffK\0X\x06\0\0\0.replyNt.",
        Encoding::Msgpack => b"\0\0\0\x0b\x94\xff\0\xa6.reply\xc0",
    });
}
