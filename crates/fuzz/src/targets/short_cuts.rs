//! What is read of a message without decoding it: replies to loads, and the id of the transaction
//! that a message begins although it cannot be decoded.

use bytes::BytesMut;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::frame::HEADER_LENGTH;
use zodium_zeo::codec::{
    Encoding, MessageId, Reply, ServerMessage, begun_transaction, decode_load_reply,
    decode_message, decode_server_message, encode_load_reply, encode_request,
};

use super::messages::{REQUESTS_M5, REQUESTS_Z5};
use super::{Target, linear};

/// Memory of a million values, the most that a request may contain.
const VALUES_BYTES_MAX: usize = 192 << 20;
/// A reply may contain 16 times as many.
const REPLY_VALUES_BYTES_MAX: usize = 16 * VALUES_BYTES_MAX;

pub(super) const LOAD_REPLIES: Target = Target {
    name: "load-replies",
    seeds: load_replies,
    check: check_load_reply,
    memory_bytes_max: |length| REPLY_VALUES_BYTES_MAX + linear(length),
};

pub(super) const BEGUN: Target = Target {
    name: "begun-transactions",
    seeds: begun,
    check: check_begun,
    memory_bytes_max: |length| VALUES_BYTES_MAX + linear(length),
};

/// The first byte selects the encoding.
fn split(input: &[u8]) -> Option<(Encoding, &[u8])> {
    let (first, payload) = input.split_first()?;
    Some((if first & 1 == 0 { Encoding::Pickle } else { Encoding::Msgpack }, payload))
}

fn load_replies() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let id = MessageId::Load { oid: Oid(0x0102_0304_0506_0708), before: Tid::MAX };
    for (index, encoding) in [Encoding::Pickle, Encoding::Msgpack].into_iter().enumerate() {
        for (length, end) in [(0, None), (1, Some(Tid(9))), (255, None), (300, Some(Tid::MAX))] {
            let mut out = BytesMut::new();
            let data = vec![b'x'; length];
            if encode_load_reply(encoding, &mut out, &id, &data, Tid(8), end).is_ok() {
                seeds.push([&[index as u8][..], &out[HEADER_LENGTH..]].concat());
            }
        }
    }
    seeds
}

fn begun() -> Vec<Vec<u8>> {
    let of = |first: u8, seeds: Vec<Vec<u8>>| {
        seeds.into_iter().map(move |seed| [&[first][..], &seed].concat())
    };
    of(0, (REQUESTS_Z5.seeds)()).chain(of(1, (REQUESTS_M5.seeds)())).collect()
}

/// The short cut takes only what the decoder understands, and finds the same.
fn check_load_reply(input: &[u8]) {
    let Some((encoding, payload)) = split(input) else { return };
    let Some(found) = decode_load_reply(encoding, payload) else { return };
    let decoded = decode_server_message(encoding, payload);
    let Ok(ServerMessage::Reply(Reply { id, result: Ok(value) })) = &decoded else {
        unreachable!("to the decoder it is {decoded:?}");
    };
    assert_eq!(*id, MessageId::Load { oid: found.oid, before: found.before });
    let parts = value.as_sequence().unwrap_or_default();
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[0].as_bytes(), Some(found.data));
    assert_eq!(parts[1].as_tid(), Some(found.serial));
    assert_eq!(parts[2].as_tid(), found.end);
}

/// It finds the id in each message of this kind, as our encoder writes it.
fn check_begun(input: &[u8]) {
    let Some((encoding, payload)) = split(input) else { return };
    let _ = begun_transaction(encoding, payload);
    let Ok(message) = decode_message(encoding, payload) else { return };
    let Some(arguments) = message.arguments.filter(|values| values.len() == 6) else { return };
    let Some(id @ Value::Int(_)) = arguments.first().cloned() else { return };
    let mut out = BytesMut::new();
    let written = encode_request(encoding, &mut out, 1, "tpc_begin", &Value::Tuple(arguments));
    if written.is_ok() {
        assert_eq!(begun_transaction(encoding, &out[HEADER_LENGTH..]), Some(id));
    }
}
