//! Properties of the codec: encoded messages decode to the same, and no input causes a panic.

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use super::frame::Frames;
use super::{
    Encoding, Greeting, Message, MessageId, Reply, ServerMessage, decode_load_before,
    decode_message, decode_server_message, encode_oneway, encode_reply, encode_request,
};

const ENCODINGS: [Encoding; 2] = [Encoding::Pickle, Encoding::Msgpack];

/// Values that both encodings preserve.
fn value() -> impl Strategy<Value = Value<'static>> {
    let leaf = prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e300..1e300).prop_map(Value::Float),
        vec(any::<u8>(), 0..300).prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..20).prop_map(Value::Tuple),
            vec((".{0,9}".prop_map(Value::from), inner), 0..20).prop_map(Value::Dict),
        ]
    })
}

fn id() -> impl Strategy<Value = MessageId> {
    prop_oneof![
        any::<u64>().prop_map(MessageId::Number),
        any::<(u64, u64)>().prop_map(|(o, t)| MessageId::Load { oid: Oid(o), before: Tid(t) }),
    ]
}

/// Decodes bytes in every way; only a panic is a failure.
fn read(bytes: &[u8]) {
    for encoding in ENCODINGS {
        let _ = decode_message(encoding, bytes);
        let _ = decode_server_message(encoding, bytes);
        let _ = decode_load_before(encoding, bytes);
    }
    let _ = Greeting::from_payload(bytes);
    let _ = Encoding::from_announcement(bytes);
    let mut frames = Frames::new(bytes, 100);
    while let Ok(Some(_)) = frames.next_frame() {}
    let _ = frames.missing();
}

proptest! {
    #[test]
    fn calls_come_out_as_they_went_in(
        number in 1..u64::MAX,
        oneway: bool,
        name in "[a-zA-Z_]{1,40}",
        arguments in vec(value(), 0..6),
    ) {
        for encoding in ENCODINGS {
            let mut out = BytesMut::new();
            let tuple = Value::Tuple(arguments.clone());
            if oneway {
                encode_oneway(encoding, &mut out, &name, &tuple).unwrap();
            } else {
                encode_request(encoding, &mut out, number, &name, &tuple).unwrap();
            }
            let id = MessageId::Number(if oneway { 0 } else { number });
            let arguments = Some(arguments.clone());
            let message = Message { id, oneway, name: name.as_str().into(), arguments };
            prop_assert_eq!(decode_message(encoding, &out[4..]), Ok(message));
        }
    }

    #[test]
    fn replies_come_out_as_they_went_in(id in id(), result in value()) {
        for encoding in ENCODINGS {
            let mut out = BytesMut::new();
            encode_reply(encoding, &mut out, &id, &result).unwrap();
            let reply = Reply { id: id.clone(), result: Ok(result.clone()) };
            let read = decode_server_message(encoding, &out[4..]);
            prop_assert_eq!(read, Ok(ServerMessage::Reply(reply)));
        }
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }

    #[test]
    fn damaged_messages_do_not_panic(
        arguments in vec(value(), 0..6),
        damage in vec((any::<Index>(), any::<u8>()), 1..5),
    ) {
        for encoding in ENCODINGS {
            let mut out = BytesMut::new();
            encode_request(encoding, &mut out, 1, "storea", &Value::Tuple(arguments.clone()))
                .unwrap();
            for (index, byte) in &damage {
                let index = index.index(out.len());
                out[index] = *byte;
            }
            read(&out);
            read(&out[4..]);
        }
    }
}
