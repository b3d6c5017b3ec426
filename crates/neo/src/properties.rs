//! Properties of the codec: messages decode to what was encoded, and no input causes a panic.

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::messages::{AddObject, AnswerObject, AskStoreObject};
use crate::samples::Choices;
use crate::{
    DATA_BYTES_MAX, GREETING, Kind, MESSAGE_BYTES_MAX, Message, MessageIds, Packet, Scan, Scanner,
    encode, read_greeting,
};

fn encoded(id: u32, message: &Message<'_>) -> BytesMut {
    let mut out = BytesMut::new();
    encode(id, message.clone(), &mut out).unwrap();
    out
}

/// The message at the beginning of a buffer, and its length.
fn decoded(buffer: &[u8]) -> Option<(Packet<'_>, usize)> {
    let Ok(Scan::Complete(frame)) = Scanner::default().scan(buffer) else { return None };
    Packet::decode(frame).ok().map(|packet| (packet, frame.bytes().len()))
}

fn code() -> impl Strategy<Value = u16> {
    (0..Message::ALL.len()).prop_map(|index| Message::ALL[index].0)
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..1500)
}

/// Decodes bytes in every way; what decodes must encode to a form that decodes to the same.
fn read(bytes: &[u8]) {
    let _ = read_greeting(bytes);
    if let Some((packet, _)) = decoded(bytes) {
        let again = encoded(packet.id, &packet.message);
        let (other, length) = decoded(&again).unwrap();
        assert_eq!(length, again.len());
        // A float may be NaN, which differs from itself.
        assert_eq!(format!("{other:?}"), format!("{packet:?}"));
        assert_eq!(encoded(other.id, &other.message), again);
    }
}

proptest! {
    #[test]
    fn every_message_comes_out_as_it_went_in(id in any::<u32>(), choices in choices()) {
        for (code, name, kind) in Message::ALL {
            let message = Message::sample(*code, &mut Choices::new(&choices)).unwrap();
            prop_assert_eq!((message.code(), message.name()), (*code, *name));
            prop_assert_eq!(message.kind(), *kind);
            let bytes = encoded(id, &message);
            let (packet, length) = decoded(&bytes).unwrap();
            prop_assert_eq!(length, bytes.len());
            prop_assert_eq!(packet, Packet { id, message });
        }
    }

    #[test]
    fn a_stream_in_pieces_gives_the_same_messages(
        codes in vec(code(), 0..20),
        choices in vec(any::<u8>(), 0..100),
        pieces in vec(1..300_usize, 1..20),
    ) {
        let mut ids = MessageIds::default();
        let mut messages = Vec::new();
        let mut stream = BytesMut::new();
        for code in codes {
            let message = Message::sample(code, &mut Choices::new(&choices)).unwrap();
            encode(ids.take(), message.clone(), &mut stream).unwrap();
            messages.push(message);
        }
        let (mut scanner, mut buffer, mut needed) = (Scanner::default(), Vec::new(), 0);
        let mut found = Vec::new();
        let mut pieces = pieces.iter().cycle();
        while !stream.is_empty() {
            let piece = stream.split_to(stream.len().min(*pieces.next().unwrap()));
            buffer.extend_from_slice(&piece);
            // The scanner never asks for more than the message has.
            while buffer.len() >= needed {
                match scanner.scan(&buffer).unwrap() {
                    Scan::Need(length) => {
                        prop_assert!(length > buffer.len());
                        needed = length;
                    }
                    Scan::Complete(frame) => {
                        let packet = Packet::decode(frame).unwrap();
                        prop_assert_eq!(packet.id as usize, found.len());
                        found.push(format!("{:?}", packet.message));
                        let length = frame.bytes().len();
                        buffer.drain(..length);
                        needed = 0;
                    }
                }
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(found, messages.iter().map(|m| format!("{m:?}")).collect::<Vec<_>>());
    }

    #[test]
    fn every_truncation_needs_more(code in code(), choices in vec(any::<u8>(), 0..60)) {
        let message = Message::sample(code, &mut Choices::new(&choices)).unwrap();
        let bytes = encoded(7, &message);
        // Long messages are long because of their data: their ends are enough.
        let short = bytes.len().min(400);
        let lengths = (0..short).chain(bytes.len().saturating_sub(400).max(short)..bytes.len());
        for length in lengths {
            let scan = Scanner::default().scan(&bytes[..length]);
            match scan {
                Ok(Scan::Need(needed)) => prop_assert!(length < needed && needed <= bytes.len()),
                other => prop_assert!(false, "{:?} at {} of {}", other, length, bytes.len()),
            }
        }
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in vec(any::<u8>(), 0..400)) {
        read(&bytes);
        read(&[&b"\x93\0"[..], &bytes].concat());
    }

    #[test]
    fn no_change_of_a_message_causes_a_panic(
        code in code(),
        choices in vec(any::<u8>(), 0..200),
        changes in vec((any::<Index>(), any::<u8>(), 0..4), 1..4),
    ) {
        let message = Message::sample(code, &mut Choices::new(&choices)).unwrap();
        let mut bytes = encoded(7, &message).to_vec();
        for (place, byte, kind) in changes {
            let at = place.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes[at] ^= 1 << (byte & 7),
                2 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        read(&bytes);
    }
}

#[test]
fn a_message_that_peers_refuse_leaves_no_trace() {
    let data = vec![0; MESSAGE_BYTES_MAX - 20];
    let oid = zodium_types::Oid(1);
    let tid = zodium_types::Tid(2);
    let store = |data| crate::messages::AddObject {
        oid,
        serial: tid,
        compression: 0,
        checksum: crate::Checksum::ZERO,
        data,
        data_serial: None,
    };
    let mut out = BytesMut::from(&GREETING[..]);
    let error = encode(0, store(&data), &mut out).unwrap_err();
    assert_eq!((error.message, &out[..]), ("AddObject", &GREETING[..]));
    encode(0, store(&data[..data.len() - 60]), &mut out).unwrap();
    assert!(decoded(&out[GREETING.len()..]).is_some());
}

#[test]
fn every_message_has_room_for_the_longest_data() {
    let (data, checksum) = (&vec![0; DATA_BYTES_MAX][..], crate::Checksum::ZERO);
    let (oid, tid) = (zodium_types::Oid(u64::MAX), zodium_types::Tid(u64::MAX));
    let (serial, compression, data_serial) = (tid, 255, Some(tid));
    let messages: [Message<'_>; 3] = [
        AskStoreObject { oid, serial, compression, checksum, data, data_serial, ttid: Some(tid) }
            .into(),
        AnswerObject {
            oid,
            serial,
            next_serial: Some(tid),
            compression: Some(compression),
            checksum,
            data,
            data_serial,
        }
        .into(),
        AddObject { oid, serial, compression, checksum, data, data_serial }.into(),
    ];
    for message in messages {
        assert_eq!(encode(u32::MAX, message, &mut BytesMut::new()), Ok(()));
    }
}

#[test]
fn messages_that_outlive_their_connection_are_few_requests() {
    let outliving = Message::ALL.iter().filter(|(code, _, kind)| {
        let message = Message::sample(*code, &mut Choices::new(&[])).unwrap();
        matches!(kind, Kind::Request | Kind::Command) && message.outlives_connection()
    });
    assert_eq!(outliving.count(), 6);
}
