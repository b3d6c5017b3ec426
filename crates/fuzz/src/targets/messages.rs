//! Messages in both encodings, as a server and as a client read them.
//!
//! A decoded message can be encoded, and decodes to the same again. Each encoding can express the
//! messages of the other. The fast path for loads agrees with the decoder.

use bytes::BytesMut;
use zodium_pickle::Value;
use zodium_zeo::codec::frame::{Frames, HEADER_LENGTH};
use zodium_zeo::codec::{
    Encoding, Message, MessageId, ServerMessage, decode_load_before, decode_message,
    decode_server_message, encode_error, encode_load_before_request, encode_oneway, encode_reply,
    encode_request,
};

use super::values::{has_nan, is_beyond_limits, plain};
use super::{Target, linear};

/// Memory of a million values, the most that a request may contain.
const VALUES_BYTES_MAX: usize = 192 << 20;
/// A reply may contain 16 times as many.
const REPLY_VALUES_BYTES_MAX: usize = 16 * VALUES_BYTES_MAX;

pub(super) const REQUESTS_Z5: Target = Target {
    name: "requests-z5",
    seeds: || payloads(&[include_bytes!("../../corpus/requests.z5")], hostile_pickles()),
    check: |input| check_request(Encoding::Pickle, input),
    memory_bytes_max: |length| VALUES_BYTES_MAX + linear(length),
};

pub(super) const REQUESTS_M5: Target = Target {
    name: "requests-m5",
    seeds: || payloads(&[include_bytes!("../../corpus/requests.m5")], hostile_msgpack()),
    check: |input| check_request(Encoding::Msgpack, input),
    memory_bytes_max: |length| VALUES_BYTES_MAX + linear(length),
};

pub(super) const REPLIES_Z5: Target = Target {
    name: "replies-z5",
    seeds: || payloads(&[include_bytes!("../../corpus/replies.z5")], hostile_pickles()),
    check: |input| check_server_message(Encoding::Pickle, input),
    memory_bytes_max: |length| REPLY_VALUES_BYTES_MAX + linear(length),
};

pub(super) const REPLIES_M5: Target = Target {
    name: "replies-m5",
    seeds: || payloads(&[include_bytes!("../../corpus/replies.m5")], hostile_msgpack()),
    check: |input| check_server_message(Encoding::Msgpack, input),
    memory_bytes_max: |length| REPLY_VALUES_BYTES_MAX + linear(length),
};

pub(super) const LOADS: Target = Target {
    name: "loads",
    seeds: load_seeds,
    check: check_load,
    memory_bytes_max: |length| VALUES_BYTES_MAX + linear(length),
};

/// The payloads of recorded frames, and further ones.
fn payloads(streams: &[&[u8]], more: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut payloads = more;
    for stream in streams {
        let mut frames = Frames::new(stream, 1 << 20);
        while let Ok(Some(payload)) = frames.next_frame() {
            payloads.push(payload.to_vec());
        }
    }
    payloads
}

/// A message around a hostile value.
fn hostile_pickles() -> Vec<Vec<u8>> {
    let inner: [&[u8]; 10] = [
        b"cos\nsystem\n(X\x02\0\0\0idtR",
        b"(S'id'\nios\nsystem\n",
        b"(cos\nsystem\nX\x02\0\0\0ido",
        b"\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R",
        b"\x82\x01",
        b"\x84\x01\0\0\0",
        b"X\x01\0\0\0xQ",
        b"P0\n",
        b"\x80\x04]\x94(h\0h\0h\0e",
        b"((((((((((((((((tttttttttttttttt",
    ];
    let message =
        |value: &&[u8]| [b"\x80\x03(K\x05\x89X\x04\0\0\0ping(".as_slice(), value, b"tt."].concat();
    inner.iter().map(message).collect()
}

fn hostile_msgpack() -> Vec<Vec<u8>> {
    let inner: [&[u8]; 6] = [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc7\x08\x01abcdefgh",
        b"\x91\x91\x91\x91\x91\x91\x91\x91\xc0",
        b"\x81\xc4\x01a\xcb\x7f\xf8\0\0\0\0\0\0",
    ];
    let message = |value: &&[u8]| [b"\x94\x05\xc2\xa4ping\x91".as_slice(), value].concat();
    inner.iter().map(message).collect()
}

fn load_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (index, encoding) in [Encoding::Pickle, Encoding::Msgpack].into_iter().enumerate() {
        for (oid, before) in [(0, 1), (0x0102_0304_0506_0708, i64::MAX as u64), (u64::MAX, 0)] {
            let mut out = BytesMut::new();
            let (oid, before) = (zodium_types::Oid(oid), zodium_types::Tid(before));
            encode_load_before_request(encoding, &mut out, oid, before);
            seeds.push([&[index as u8][..], &out[HEADER_LENGTH..]].concat());
        }
    }
    seeds
}

fn check_request(encoding: Encoding, input: &[u8]) {
    let Ok(message) = decode_message(encoding, input) else { return };
    let Some(arguments) = message.arguments.clone() else { return };
    let arguments = Value::Tuple(arguments);
    if has_nan(&arguments) {
        return;
    }
    for other in [encoding, other_encoding(encoding)] {
        let Some(written) = write_message(other, &message, &arguments) else { continue };
        let again = decode_message(other, &written[HEADER_LENGTH..]);
        let Ok(again) = again else {
            assert!(is_beyond_limits(&arguments), "what was understood is refused: {again:?}");
            continue;
        };
        assert_eq!(again.name, message.name);
        assert_eq!(again.oneway, message.oneway);
        let again = again.arguments.map(|values| plain(&Value::Tuple(values)));
        assert_eq!(again, Some(plain(&arguments)));
    }
}

fn check_server_message(encoding: Encoding, input: &[u8]) {
    let Ok(message) = decode_server_message(encoding, input) else { return };
    let ServerMessage::Reply(reply) = message else { return };
    let mut out = BytesMut::new();
    let written = match &reply.result {
        Ok(value) if has_nan(value) => return,
        Ok(value) => encode_reply(encoding, &mut out, &reply.id, value),
        Err(error) if has_nan(&error.payload) => return,
        Err(error) => encode_error(encoding, &mut out, &reply.id, &error.name, &error.payload),
    };
    if written.is_err() {
        // A pickle can express values that msgpack cannot.
        assert_eq!(out.len(), 0, "what cannot be written leaves nothing");
        return;
    }
    match decode_server_message(encoding, &out[HEADER_LENGTH..]) {
        Ok(again) => {
            let ServerMessage::Reply(again) = again else {
                assert_eq!(again, ServerMessage::Reply(reply), "a reply became a notice");
                return;
            };
            assert_eq!(again.id, reply.id);
            assert_eq!(
                again.result.map(|value| plain(&value)).map_err(|error| plain(&error.payload)),
                reply.result.map(|value| plain(&value)).map_err(|error| plain(&error.payload))
            );
        }
        Err(error) => {
            let value = match &reply.result {
                Ok(value) => value,
                Err(error) => &error.payload,
            };
            assert!(is_beyond_limits(value), "what was understood is refused: {error}");
        }
    }
}

/// The first byte selects the encoding.
fn check_load(input: &[u8]) {
    let Some((first, payload)) = input.split_first() else { return };
    let encoding = if first & 1 == 0 { Encoding::Pickle } else { Encoding::Msgpack };
    let Some(load) = decode_load_before(encoding, payload) else { return };
    let message = decode_message(encoding, payload);
    let Ok(message) = message else {
        assert!(message.is_ok(), "the short cut takes what the decoder refuses: {message:?}");
        return;
    };
    assert_eq!((message.id, &*message.name, message.oneway), (load.id(), "loadBefore", false));
    let arguments = message.arguments.unwrap_or_default();
    assert_eq!(arguments.len(), 2);
    assert_eq!(arguments[0].as_oid(), Some(load.oid));
    assert_eq!(arguments[1].as_tid(), Some(load.before));
}

fn write_message(
    encoding: Encoding,
    message: &Message<'_>,
    arguments: &Value<'_>,
) -> Option<BytesMut> {
    let mut out = BytesMut::new();
    let written = match (&message.id, message.oneway) {
        (_, true) => encode_oneway(encoding, &mut out, &message.name, arguments),
        (MessageId::Number(id), false) => {
            encode_request(encoding, &mut out, *id, &message.name, arguments)
        }
        _ => return None,
    };
    written.ok().map(|()| out)
}

fn other_encoding(encoding: Encoding) -> Encoding {
    match encoding {
        Encoding::Pickle => Encoding::Msgpack,
        Encoding::Msgpack => Encoding::Pickle,
    }
}
