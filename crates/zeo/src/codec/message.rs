//! Messages of all kinds, as values.
//!
//! On the wire all are sequences of four: id, flag, name, arguments. A reply has the name
//! `.reply`, a heartbeat the id -1. A server receives only calls and heartbeats, a client only
//! replies and notices.

use std::borrow::Cow;

use bytes::BytesMut;
use zodium_pickle::{Argument, Disassembler, Instruction, Limits, Objects, Value, opcode};

use super::writer::{Flag, write_message};
use super::{CodecError, Encoding, MessageId, msgpack};

/// The name of replies and heartbeats.
pub(super) const REPLY: &str = ".reply";
/// The method that begins a transaction.
const BEGIN: &str = "tpc_begin";

/// Limits of the messages that a server accepts.
///
/// `Prefix` is a value for comparison in the filter of `undoInfo`. `dict` is called to make an
/// extension that is an instance of a subclass of dict. The others are values in an extension.
pub const REQUEST_LIMITS: Limits = Limits {
    nesting: 100,
    nodes: 1 << 20,
    objects: Objects::Only(&[
        ("ZopeUndo.Prefix", "Prefix"),
        ("builtins", "dict"),
        ("__builtin__", "dict"),
        ("builtins", "set"),
        ("builtins", "frozenset"),
        ("builtins", "bytearray"),
        ("builtins", "complex"),
    ]),
};

/// Limits of the messages that a client accepts: lists of very many oids, and instances in the
/// extension of a transaction, as data.
pub const REPLY_LIMITS: Limits = Limits { nesting: 100, nodes: 1 << 24, objects: Objects::Allowed };

/// A message that a server receives: a method call or a heartbeat.
#[derive(Clone, Debug, PartialEq)]
pub struct Message<'a> {
    /// The id that the reply repeats; meaningless in a oneway call.
    pub id: MessageId,
    /// Whether the call gets no reply.
    pub oneway: bool,
    /// The method.
    pub name: Cow<'a, str>,
    /// Its positional arguments; `None` if they are not a sequence.
    pub arguments: Option<Vec<Value<'a>>>,
}

/// A message that a client receives.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerMessage<'a> {
    /// The answer to a request.
    Reply(Reply<'a>),
    /// A notice; a server sends no requests.
    Notice(Message<'a>),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply<'a> {
    /// The id of the request.
    pub id: MessageId,
    /// The value or the exception of the method.
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
    /// Whether this is a heartbeat, which is ignored.
    pub fn is_heartbeat(&self) -> bool {
        self.id == MessageId::Heartbeat
    }
}

/// Decodes a frame's payload from a client, within [`REQUEST_LIMITS`]. Bytes and text borrow from
/// it.
pub fn decode_message(encoding: Encoding, payload: &[u8]) -> Result<Message<'_>, CodecError> {
    let parts = Parts::decode(encoding, payload, &REQUEST_LIMITS)?;
    Ok(parts.into_message())
}

/// The id of the transaction that a message begins, although its further arguments cannot be
/// decoded: an instance that [`REQUEST_LIMITS`] refuse, say, or text with surrogates.
pub fn begun_transaction(encoding: Encoding, payload: &[u8]) -> Option<Value<'static>> {
    match encoding {
        Encoding::Pickle => begun_in_pickle(payload),
        Encoding::Msgpack => begun_in_msgpack(payload),
    }
}

/// The id is the first number behind the method, which is the first text.
fn begun_in_pickle(payload: &[u8]) -> Option<Value<'static>> {
    let (mut is_begin, mut id) = (None, None);
    let mut visit = |instruction: &Instruction<'_>| match &instruction.argument {
        Argument::Utf8(name) if is_begin.is_none() => is_begin = Some(*name == BEGIN.as_bytes()),
        Argument::Value(number) if is_begin == Some(true) && id.is_none() => {
            let is_memo = matches!(instruction.code, opcode::BINPUT | opcode::LONG_BINPUT);
            id = (!is_memo).then(|| number.clone().into_owned());
        }
        _ => {}
    };
    // An error is beyond the id, or there is none.
    let _ = Disassembler::new(payload).pickle(&mut visit);
    id
}

fn begun_in_msgpack(payload: &[u8]) -> Option<Value<'static>> {
    fn next<'a>(rest: &mut &'a [u8]) -> Option<Value<'a>> {
        let (value, length) = msgpack::decode(rest, &REQUEST_LIMITS).ok()?;
        *rest = rest.get(length..)?;
        Some(value)
    }
    // An array of four parts, the last of which is an array of six arguments.
    let mut parts = payload.strip_prefix(&[0x94])?;
    let [_id, _flag, name] = [next(&mut parts)?, next(&mut parts)?, next(&mut parts)?];
    let mut arguments = parts.strip_prefix(&[0x96])?;
    let id = next(&mut arguments)?;
    (name.as_str() == Some(BEGIN)).then(|| id.into_owned())
}

/// Decodes a frame's payload from a server, within [`REPLY_LIMITS`]. Bytes and text borrow from it.
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
            return Err(CodecError::NotAMessage { what: "it does not have four parts" });
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
        // A client on Python 2 sends native strings, which are bytes.
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

/// Appends the reply to a call that failed.
///
/// `exception_name` is the dotted name of a class that clients know. `payload` has its attributes
/// as a dict for conflict errors, and its arguments as a tuple for all others.
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

/// Appends a call without a reply. `arguments` is a tuple.
pub fn encode_oneway(
    encoding: Encoding,
    out: &mut BytesMut,
    name: &str,
    arguments: &Value<'_>,
) -> Result<(), CodecError> {
    let id = MessageId::Number(0);
    write_message(encoding, out, &id, Flag::Oneway, name, |out| out.value(arguments))
}

/// Appends a call with a reply. `id` is at least 1 and new on the connection; `arguments` is a
/// tuple.
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

/// Appends a client's heartbeat.
pub fn encode_heartbeat(encoding: Encoding, out: &mut BytesMut) {
    out.extend_from_slice(match encoding {
        Encoding::Pickle => b"\0\0\0\x18\x80\x03(J\xff\xff\xff\xffK\0X\x06\0\0\0.replyNt.",
        Encoding::Msgpack => b"\0\0\0\x0b\x94\xff\0\xa6.reply\xc0",
    });
}

#[cfg(test)]
mod tests {
    use zodium_types::{Oid, Tid};

    use super::super::Encoding::{Msgpack, Pickle};
    use super::super::test_frame;
    use super::*;

    const OID: Oid = Oid(0x0102_0304_0506_0708);
    const TID: Tid = Tid(0x040d_2966_6566_0688);
    const LATER: Tid = Tid(0x040d_2966_6bae_9faa);
    const TRANSACTION: u64 = 0x7f28_1a44_2010;

    /// The frame that `write` makes, in msgpack and as a pickle.
    fn frames(
        write: impl Fn(Encoding, &mut BytesMut) -> Result<(), CodecError>,
    ) -> (BytesMut, BytesMut) {
        let [msgpack, pickle] = [Msgpack, Pickle].map(|encoding| {
            let mut out = BytesMut::new();
            write(encoding, &mut out).unwrap();
            out
        });
        (msgpack, pickle)
    }

    fn goldens(msgpack: &str, pickle: &str) -> (BytesMut, BytesMut) {
        (test_frame(msgpack), test_frame(pickle))
    }

    fn payload(frame: &[u8]) -> &[u8] {
        &frame[4..]
    }

    #[test]
    fn a_begin_is_known_by_its_id_although_its_extension_cannot_be_decoded() {
        // Text with a surrogate in both; msgpack's keys are no integers.
        let surrogate = b"\x80\x03(K\0\x88X\x09\0\0\0tpc_begin(J\x07\x01\0\0C\0C\0}\
            X\x01\0\0\0aX\x03\0\0\0\xed\xa0\x80sNX\x01\0\0\0 tt.";
        let memoized = b"\x80\x03(K\0\x88X\x09\0\0\0tpc_beginq\0(J\x07\x01\0\0C\0q\x01X";
        let key = b"\x94\0\xc3\xa9tpc_begin\x96\xcd\x01\x07\xc4\0\xc4\0\x81\x11\xc0\xc0\xa1 ";
        for (encoding, payload) in [(Pickle, &surrogate[..]), (Pickle, memoized), (Msgpack, key)] {
            assert!(decode_message(encoding, payload).is_err());
            assert_eq!(begun_transaction(encoding, payload), Some(0x107.into()));
        }
        let other_key = b"\x94\0\xc3\xa9tpc_abort\x96\xcd\x01\x07\xc4\0\xc4\0\x81\x11\xc0\xc0\xa1 ";
        assert_eq!(begun_transaction(Msgpack, other_key), None);
        let other = b"\x80\x03(K\0\x88X\x09\0\0\0tpc_abort(J\x07\x01\0\0X\x09\0\0\0tpc_beginK\x01";
        assert_eq!(begun_transaction(Pickle, other), None);
        for encoding in [Pickle, Msgpack] {
            assert_eq!(begun_transaction(encoding, b""), None);
        }
    }

    fn load() -> MessageId {
        MessageId::Load { oid: OID, before: Tid::MAX }
    }

    /// Requests as `ZEO.asyncio.marshal` 6.2 writes them.
    fn requests() -> Vec<((BytesMut, BytesMut), Message<'static>)> {
        let call = |id, oneway, name: &'static str, arguments: Vec<Value<'static>>| Message {
            id,
            oneway,
            name: name.into(),
            arguments: Some(arguments),
        };
        let number = MessageId::Number;
        let none = Value::None;
        vec![
            (
                goldens(
                    "9401c2a8726567697374657292a13100",
                    "8003284b0189580800000072656769737465725801000000314b0086742e",
                ),
                call(number(1), false, "register", vec!["1".into(), 0.into()]),
            ),
            (
                goldens(
                    "9492c4080102030405060708c4087fffffffffffffffc2aa6c6f61644265666f726592c40801\
                     02030405060708c4087fffffffffffffff",
                    "8003284308010203040506070843087fffffffffffffff8689580a0000006c6f61644265666f\
                     72654308010203040506070843087fffffffffffffff86742e",
                ),
                call(load(), false, "loadBefore", vec![OID.into(), Tid::MAX.into()]),
            ),
            (
                goldens(
                    "9400c3a97470635f626567696e96cf00007f281a442010c40175c4016481a16b01c0a120",
                    "8003284b008858090000007470635f626567696e288a061020441a287f4301754301647d5801\
                     0000006b4b01734e58010000002074742e",
                ),
                call(
                    number(0),
                    true,
                    "tpc_begin",
                    vec![
                        TRANSACTION.into(),
                        b"u".into(),
                        b"d".into(),
                        Value::dict([("k", 1.into())]),
                        none,
                        " ".into(),
                    ],
                ),
            ),
            (
                goldens(
                    "9400c3a673746f72656194c4080102030405060708c408040d296665660688c40464617461cf\
                     00007f281a442010",
                    "8003284b0088580600000073746f72656128430801020304050607084308040d296665660688\
                     4304646174618a061020441a287f74742e",
                ),
                call(
                    number(0),
                    true,
                    "storea",
                    vec![OID.into(), TID.into(), b"data".into(), TRANSACTION.into()],
                ),
            ),
            (
                goldens(
                    "94cd012cc2a4766f746591cfffffffffffffffff",
                    "8003284d2c01895804000000766f74658a09ffffffffffffffff0085742e",
                ),
                call(number(300), false, "vote", vec![u64::MAX.into()]),
            ),
            (
                goldens(
                    "9405c2a8756e646f496e666f9300ec81a9757365725f6e616d65c40178",
                    "8003284b05895808000000756e646f496e666f4b004aecffffff7d5809000000757365725f6e\
                     616d654301787387742e",
                ),
                call(
                    number(5),
                    false,
                    "undoInfo",
                    vec![0.into(), (-20).into(), Value::dict([("user_name", b"x".into())])],
                ),
            ),
            (
                goldens(
                    "94ce80000000c2a470696e6790",
                    "8003288a05000000800089580400000070696e6729742e",
                ),
                call(number(1 << 31), false, "ping", vec![]),
            ),
        ]
    }

    #[test]
    fn requests_of_stock_clients_are_understood() {
        for ((msgpack, pickle), message) in requests() {
            assert_eq!(decode_message(Msgpack, payload(&msgpack)), Ok(message.clone()));
            assert_eq!(decode_message(Pickle, payload(&pickle)), Ok(message));
        }
    }

    #[test]
    fn requests_are_byte_identical_to_those_of_stock_clients() {
        for (golden, message) in requests() {
            let arguments = Value::Tuple(message.arguments.unwrap());
            let written = frames(|encoding, out| match &message.id {
                MessageId::Number(0) => encode_oneway(encoding, out, &message.name, &arguments),
                MessageId::Number(id) => {
                    encode_request(encoding, out, *id, &message.name, &arguments)
                }
                id => write_message(encoding, out, id, Flag::Request, &message.name, |out| {
                    out.value(&arguments)
                }),
            });
            assert_eq!(written, golden, "{}", message.name);
        }
    }

    #[test]
    fn a_heartbeat_is_that_of_stock_clients_and_recognised() {
        let written = frames(|encoding, out| {
            encode_heartbeat(encoding, out);
            Ok(())
        });
        let golden =
            goldens("94ff00a62e7265706c79c0", "8003284affffffff4b0058060000002e7265706c794e742e");
        assert_eq!(written, golden);
        assert!(decode_message(Msgpack, payload(&written.0)).unwrap().is_heartbeat());
        assert!(decode_message(Pickle, payload(&written.1)).unwrap().is_heartbeat());
    }

    /// Messages of a server, as `ZEO.asyncio.marshal` 6.2 writes them.
    fn replies() -> Vec<((BytesMut, BytesMut), Reply<'static>)> {
        let serials = Value::tuple([TID.into(), LATER.into()]);
        vec![
            (
                goldens(
                    "940100a62e7265706c79c408040d296665660688",
                    "8003284b014b0058060000002e7265706c794308040d296665660688742e",
                ),
                Reply { id: MessageId::Number(1), result: Ok(TID.into()) },
            ),
            (
                goldens(
                    "9492c4080102030405060708c4087fffffffffffffff00a62e7265706c79c0",
                    "8003284308010203040506070843087fffffffffffffff864b0058060000002e7265706c794e\
                     742e",
                ),
                Reply { id: load(), result: Ok(Value::None) },
            ),
            (
                goldens(
                    "9492c4080102030405060708c4087fffffffffffffff02a62e7265706c7992bd5a4f44422e50\
                     4f53457863657074696f6e2e504f534b65794572726f7291c4080102030405060708",
                    "8003284308010203040506070843087fffffffffffffff864b0258060000002e7265706c7958\
                     1d0000005a4f44422e504f53457863657074696f6e2e504f534b65794572726f724308010203\
                     04050607088586742e",
                ),
                Reply {
                    id: load(),
                    result: Err(RemoteError {
                        name: "ZODB.POSException.POSKeyError".into(),
                        payload: Value::tuple([OID.into()]),
                    }),
                },
            ),
            (
                goldens(
                    "940702a62e7265706c7992bf5a4f44422e504f53457863657074696f6e2e436f6e666c696374\
                     4572726f7284a76d657373616765b7646174616261736520636f6e666c696374206572726f72\
                     a36f6964c4080102030405060708aa636c6173735f6e616d65c0a773657269616c7392c40804\
                     0d296665660688c408040d29666bae9faa",
                    "8003284b074b0258060000002e7265706c79581f0000005a4f44422e504f5345786365707469\
                     6f6e2e436f6e666c6963744572726f727d2858070000006d6573736167655817000000646174\
                     616261736520636f6e666c696374206572726f7258030000006f696443080102030405060708\
                     580a000000636c6173735f6e616d654e580700000073657269616c734308040d296665660688\
                     4308040d29666bae9faa867586742e",
                ),
                Reply {
                    id: MessageId::Number(7),
                    result: Err(RemoteError {
                        name: "ZODB.POSException.ConflictError".into(),
                        payload: Value::dict([
                            ("message", "database conflict error".into()),
                            ("oid", OID.into()),
                            ("class_name", Value::None),
                            ("serials", serials),
                        ]),
                    }),
                },
            ),
            (
                goldens(
                    "940702a62e7265706c7992bf5a4f44422e504f53457863657074696f6e2e526561644f6e6c79\
                     4572726f7290",
                    "8003284b074b0258060000002e7265706c79581f0000005a4f44422e504f5345786365707469\
                     6f6e2e526561644f6e6c794572726f722986742e",
                ),
                Reply {
                    id: MessageId::Number(7),
                    result: Err(RemoteError {
                        name: "ZODB.POSException.ReadOnlyError".into(),
                        payload: Value::tuple([]),
                    }),
                },
            ),
            (
                goldens(
                    "94ce0001117000a62e7265706c799185a474696d65cb41d964df49600000a9757365725f6e61\
                     6d65c40175ab6465736372697074696f6ec400a3746964c408040d296665660688a473697a65\
                     d0d8",
                    "8003284a701101004b0058060000002e7265706c795d7d28580400000074696d654741d964df\
                     496000005809000000757365725f6e616d65430175580b0000006465736372697074696f6e43\
                     0058030000007469644308040d296665660688580400000073697a654ad8ffffff7561742e",
                ),
                Reply {
                    id: MessageId::Number(70_000),
                    result: Ok(Value::list([Value::dict([
                        ("time", 1_704_164_645.5.into()),
                        ("user_name", b"u".into()),
                        ("description", b"".into()),
                        ("tid", TID.into()),
                        ("size", (-40).into()),
                    ])])),
                },
            ),
        ]
    }

    #[test]
    fn replies_are_byte_identical_to_those_of_the_stock_server() {
        for (golden, Reply { id, result }) in replies() {
            let written = frames(|encoding, out| match &result {
                Ok(value) => encode_reply(encoding, out, &id, value),
                Err(RemoteError { name, payload }) => {
                    encode_error(encoding, out, &id, name, payload)
                }
            });
            assert_eq!(written, golden, "{result:?}");
        }
    }

    #[test]
    fn replies_of_the_stock_server_are_understood() {
        for ((msgpack, pickle), reply) in replies() {
            let mut as_tuples = reply.clone();
            if let Ok(Value::List(items)) = as_tuples.result {
                as_tuples.result = Ok(Value::Tuple(items));
            }
            let read = decode_server_message(Msgpack, payload(&msgpack));
            assert_eq!(read, Ok(ServerMessage::Reply(as_tuples)));
            let read = decode_server_message(Pickle, payload(&pickle));
            assert_eq!(read, Ok(ServerMessage::Reply(reply)));
        }
    }

    #[test]
    fn a_notice_is_byte_identical_to_that_of_the_stock_server_and_understood() {
        let sizes = Value::dict([("length", 1.into()), ("size", 314.into())]);
        let arguments = Value::tuple([sizes]);
        let written = frames(|encoding, out| encode_oneway(encoding, out, "info", &arguments));
        let golden = goldens(
            "9400c3a4696e666f9182a66c656e67746801a473697a65cd013a",
            "8003284b00885804000000696e666f7d2858060000006c656e6774684b01580400000073697a654d3a01\
             7585742e",
        );
        assert_eq!(written, golden);
        let notice = ServerMessage::Notice(Message {
            id: MessageId::Number(0),
            oneway: true,
            name: "info".into(),
            arguments: arguments.into_sequence(),
        });
        assert_eq!(decode_server_message(Msgpack, payload(&golden.0)), Ok(notice.clone()));
        assert_eq!(decode_server_message(Pickle, payload(&golden.1)), Ok(notice));
    }

    #[test]
    fn a_prefix_to_compare_with_is_let_through_and_a_foreign_class_named() {
        let undo_info = |class: &str| {
            [
                b"\x80\x03(K\x05\x89X\x08\0\0\0undoInfoK\0K\x01}X\x04\0\0\0pathc",
                class.as_bytes(),
                b")\x81}X\x04\0\0\0path](X\0\0\0\0X\x01\0\0\0aesbs\x87t.",
            ]
            .concat()
        };
        let prefix = undo_info("ZopeUndo.Prefix\nPrefix\n");
        let arguments = decode_message(Pickle, &prefix).unwrap().arguments.unwrap();
        let object = arguments[2].entry("path").and_then(Value::as_object).unwrap();
        let path = Value::list(["".into(), "a".into()]);
        assert_eq!(object.state, Some(Value::dict([("path", path)])));

        let error = decode_message(Pickle, &undo_info("os\nsystem\n")).unwrap_err();
        assert!(error.to_string().contains("os.system"), "{error}");
    }

    #[test]
    fn a_python_2_client_may_send_its_native_strings() {
        let message = b"\x80\x02(K\x01I00\nU\x08registerU\x011K\0\x86t.";
        let message = decode_message(Pickle, message).unwrap();
        assert_eq!((&*message.name, message.oneway), ("register", false));
        assert_eq!(message.arguments, Some(vec![b"1".into(), 0.into()]));
        let load = b"\x80\x02(U\x08\x01\x02\x03\x04\x05\x06\x07\x08U\x08\x7f\xff\xff\xff\xff\xff\
            \xff\xff\x86K\0U\x04pingNt.";
        assert_eq!(
            decode_message(Pickle, load).map(|message| message.id),
            Ok(super::tests::load())
        );
    }

    #[test]
    fn any_id_is_repeated_as_it_came() {
        for (msgpack, pickle) in [
            (&b"\xa3abc"[..], &b"X\x03\0\0\0abc"[..]),
            (b"\xfe", b"J\xfe\xff\xff\xff"),
            (b"\x92\x01\xc0", b"K\x01N\x86"),
            (b"\xcb\x3f\xf8\0\0\0\0\0\0", b"G\x3f\xf8\0\0\0\0\0\0"),
            (
                b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
                b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0",
            ),
        ] {
            let parts: [(Encoding, [&[u8]; 4]); 2] = [
                (Msgpack, [b"\x94", msgpack, b"\xc2\xa4ping\x90", b"\0\xa6.reply\xc0"]),
                (
                    Pickle,
                    [b"\x80\x03(", pickle, b"\x89X\x04\0\0\0ping)t.", b"K\0X\x06\0\0\0.replyNt."],
                ),
            ];
            for (encoding, [start, id, end, reply_end]) in parts {
                let request = [start, id, end].concat();
                let message = decode_message(encoding, &request).unwrap();
                let mut out = BytesMut::new();
                encode_reply(encoding, &mut out, &message.id, &Value::None).unwrap();
                assert_eq!(payload(&out), [start, id, reply_end].concat());
            }
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for message in [
            &b"\x93\x01\xc2\xa4ping"[..],
            b"\x95\x01\xc2\xa4ping\x90\xc0",
            b"\x01",
            b"\x94\x01\xa1x\xa4ping\x90",
            b"\x94\x01\xc2\x07\x90",
            b"\x94\x01\xc2\xa4ping\x90\x90",
            b"",
        ] {
            assert!(decode_message(Msgpack, message).is_err(), "{message:?}");
        }
        let trailing = b"\x80\x03(K\x01\x89X\x04\0\0\0ping)t.\0\0";
        assert_eq!(decode_message(Pickle, trailing), Err(CodecError::TrailingBytes { count: 2 }));
        let message = decode_message(Msgpack, b"\x94\x01\xc2\xa4ping\xc0").unwrap();
        assert_eq!(message.arguments, None);
    }

    #[test]
    fn deep_nesting_and_huge_lengths_are_refused_in_both_encodings() {
        for (encoding, start, open) in
            [(Pickle, &b"\x80\x03("[..], &b"("[..]), (Msgpack, b"\x94", b"\x91")]
        {
            let deep = [start, &open.repeat(1 << 20)].concat();
            assert!(decode_message(encoding, &deep).is_err());
        }
        for (encoding, long) in [
            (Pickle, &b"\x80\x03(B\xff\xff\xff\xff"[..]),
            (Pickle, b"\x80\x03(X\xff\xff\xff\xff"),
            (Pickle, b"\x80\x03(\x8b\xff\xff\xff\x7f"),
            (Msgpack, b"\x94\xc6\xff\xff\xff\xff"),
            (Msgpack, b"\xdd\xff\xff\xff\xff"),
            (Msgpack, b"\x94\x01\xc2\xa1x\xdf\xff\xff\xff\xff"),
        ] {
            assert!(decode_message(encoding, long).is_err());
        }
    }

    #[test]
    fn what_msgpack_cannot_say_leaves_the_buffer_as_it_was() {
        let huge = Value::from_twos_complement(&[1; 20]);
        let keyed = Value::Dict(vec![(1.into(), Value::None)]);
        for value in [huge, keyed, Value::Int(1 << 64), Value::Persistent(Box::new(Value::None))] {
            let mut out = BytesMut::from(&b"before"[..]);
            let id = MessageId::Number(1);
            let result = encode_reply(Msgpack, &mut out, &id, &Value::list([0.into(), value]));
            assert!(matches!(result, Err(CodecError::NotEncodable { .. })));
            assert_eq!(&out[..], b"before");
        }
    }
}
