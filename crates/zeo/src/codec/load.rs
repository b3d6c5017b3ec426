//! `loadBefore` and its reply, without building values: the most frequent messages.
//!
//! Stock clients write the request in one form only, which is matched as a template. Other forms
//! go through [`super::decode_message`]. A reply can be written in two parts around the data, so
//! that large data are sent without a copy.

use bytes::{BufMut, BytesMut};
use zodium_types::{Oid, Tid};

use super::frame::write_frame_start;
use super::message::REPLY;
use super::template::Template;
use super::writer::{Flag, Writer};
use super::{CodecError, Encoding, MessageId};

/// A request for the revision of an object before a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadBefore {
    /// The object.
    pub oid: Oid,
    /// The revision wanted is the last one before this transaction.
    pub before: Tid,
}

impl LoadBefore {
    /// The id of the request, which the reply repeats.
    pub fn id(&self) -> MessageId {
        MessageId::Load { oid: self.oid, before: self.before }
    }
}

/// The id is the pair of arguments, so oid and tid come twice.
const PICKLE_REQUEST: Template<63, 4> = Template::new(
    b"\x80\x03(C\x08........C\x08........\x86\x89X\x0a\0\0\0loadBefore\
      C\x08........C\x08........\x86t.",
);
const MSGPACK_REQUEST: Template<55, 4> = Template::new(
    b"\x94\x92\xc4\x08........\xc4\x08........\xc2\xaaloadBefore\
      \x92\xc4\x08........\xc4\x08........",
);

/// A reply up to the length of its data, and its end after the data of a current revision.
const PICKLE_REPLY_HEAD: Template<37, 2> =
    Template::new(b"\x80\x03(C\x08........C\x08........\x86K\0X\x06\0\0\0.reply");
const PICKLE_REPLY_TAIL: Template<14, 1> = Template::new(b"C\x08........N\x87t.");
const MSGPACK_REPLY_HEAD: Template<31, 2> =
    Template::new(b"\x94\x92\xc4\x08........\xc4\x08........\0\xa6.reply\x93");
const MSGPACK_REPLY_TAIL: Template<11, 1> = Template::new(b"\xc4\x08........\xc0");

/// Recognises a `loadBefore` as stock clients write it, with the arguments as its id. `None` only
/// means that the message must be decoded in full.
#[inline]
pub fn decode_load_before(encoding: Encoding, payload: &[u8]) -> Option<LoadBefore> {
    match encoding {
        Encoding::Pickle => recognise(&PICKLE_REQUEST, payload),
        Encoding::Msgpack => recognise(&MSGPACK_REQUEST, payload),
    }
}

#[inline]
fn recognise<const LENGTH: usize>(
    request: &Template<LENGTH, 4>,
    payload: &[u8],
) -> Option<LoadBefore> {
    let payload = payload.try_into().ok()?;
    let (oid, before) = (request.value(0, payload), request.value(1, payload));
    (request.filled([oid, before, oid, before]) == *payload)
        .then_some(LoadBefore { oid: Oid(oid), before: Tid(before) })
}

/// Appends the frame of a request, as stock clients write it.
pub fn encode_load_before_request(encoding: Encoding, out: &mut BytesMut, oid: Oid, before: Tid) {
    let values = [oid.0, before.0, oid.0, before.0];
    let mut put = |payload: &[u8]| {
        out.put_u32(payload.len() as u32);
        out.put_slice(payload);
    };
    match encoding {
        Encoding::Pickle => put(&PICKLE_REQUEST.filled(values)),
        Encoding::Msgpack => put(&MSGPACK_REQUEST.filled(values)),
    }
}

/// Appends the frame of a reply: the revision's data, the transaction that wrote it, and the
/// one that wrote the next revision, if there is one.
pub fn encode_load_reply(
    encoding: Encoding,
    out: &mut BytesMut,
    id: &MessageId,
    data: &[u8],
    start: Tid,
    end: Option<Tid>,
) -> Result<(), CodecError> {
    out.reserve(data.len() + 96);
    load_reply_head(encoding, out, id, data.len(), end)?;
    out.put_slice(data);
    load_reply_tail(encoding, out, start, end);
    Ok(())
}

/// Appends the part of a reply before the data. Exactly `data_length` bytes of data must follow,
/// and then the tail with the same `end`.
pub fn load_reply_head(
    encoding: Encoding,
    out: &mut BytesMut,
    id: &MessageId,
    data_length: usize,
    end: Option<Tid>,
) -> Result<(), CodecError> {
    let following = data_length + tail_length(encoding, end);
    write_frame_start(out, following, |out| write_head(encoding, out, id, data_length))
}

/// Appends the part of a reply after the data.
pub fn load_reply_tail(encoding: Encoding, out: &mut BytesMut, start: Tid, end: Option<Tid>) {
    if end.is_none() {
        return match encoding {
            Encoding::Pickle => out.put_slice(&PICKLE_REPLY_TAIL.filled([start.0])),
            Encoding::Msgpack => out.put_slice(&MSGPACK_REPLY_TAIL.filled([start.0])),
        };
    }
    let mut writer = Writer::new(encoding, out);
    writer.tid(start);
    match end {
        Some(end) => writer.tid(end),
        None => writer.none(),
    }
    writer.close_tuple(3);
    writer.close();
}

/// The number of bytes that [`load_reply_tail`] appends.
fn tail_length(encoding: Encoding, end: Option<Tid>) -> usize {
    let id_length = 10;
    let end_length = if end.is_some() { id_length } else { 1 };
    let closing_length = match encoding {
        Encoding::Pickle => 3,
        Encoding::Msgpack => 0,
    };
    id_length + end_length + closing_length
}

fn write_head(
    encoding: Encoding,
    out: &mut BytesMut,
    id: &MessageId,
    data_length: usize,
) -> Result<(), CodecError> {
    if let MessageId::Load { oid, before } = id {
        match encoding {
            Encoding::Pickle => out.put_slice(&PICKLE_REPLY_HEAD.filled([oid.0, before.0])),
            Encoding::Msgpack => out.put_slice(&MSGPACK_REPLY_HEAD.filled([oid.0, before.0])),
        }
        return Writer::new(encoding, out).bytes_header(data_length);
    }
    let mut writer = Writer::new(encoding, out);
    writer.open();
    id.write(&mut writer)?;
    writer.flag(Flag::Result);
    writer.text(REPLY)?;
    writer.open_tuple(3);
    writer.bytes_header(data_length)
}

#[cfg(test)]
mod tests {
    use super::super::{decode_message, decode_server_message, test_frame};
    use super::*;

    const OID: Oid = Oid(0x0102_0304_0506_0708);
    const START: Tid = Tid(0x040d_2966_6566_0688);
    const END: Tid = Tid(0x040d_2966_6bae_9faa);
    const ENCODINGS: [Encoding; 2] = [Encoding::Msgpack, Encoding::Pickle];

    // `ZEO.asyncio.marshal` 6.2.
    const REQUESTS: [&str; 2] = [
        "9492c4080102030405060708c4087fffffffffffffffc2aa6c6f61644265666f726592c40801020304050607\
         08c4087fffffffffffffff",
        "8003284308010203040506070843087fffffffffffffff8689580a0000006c6f61644265666f726543080102\
         03040506070843087fffffffffffffff86742e",
    ];
    const REPLIES: [&str; 2] = [
        "9492c4080102030405060708c4087fffffffffffffff00a62e7265706c7993c40464617461c408040d296665\
         660688c0",
        "8003284308010203040506070843087fffffffffffffff864b0058060000002e7265706c7943046461746143\
         08040d2966656606884e87742e",
    ];

    fn id() -> MessageId {
        MessageId::Load { oid: OID, before: Tid::MAX }
    }

    #[test]
    fn the_request_of_a_stock_client_is_recognised_and_written() {
        for (encoding, golden) in ENCODINGS.into_iter().zip(REQUESTS) {
            let golden = test_frame(golden);
            let load = LoadBefore { oid: OID, before: Tid::MAX };
            assert_eq!(load.id(), id());
            assert_eq!(decode_load_before(encoding, &golden[4..]), Some(load));
            let mut out = BytesMut::new();
            encode_load_before_request(encoding, &mut out, OID, Tid::MAX);
            assert_eq!(out, golden);
        }
    }

    #[test]
    fn a_request_that_differs_in_any_byte_is_recognised_only_as_what_it_says() {
        for (encoding, golden) in ENCODINGS.into_iter().zip(REQUESTS) {
            let golden = test_frame(golden);
            let golden = &golden[4..];
            for index in 0..golden.len() {
                let mut other = golden.to_vec();
                other[index] ^= 1;
                // The id and the arguments now differ, or the template does.
                assert_eq!(decode_load_before(encoding, &other), None, "byte {index}");
                assert_eq!(decode_load_before(encoding, &golden[..index]), None);
            }
            assert_eq!(decode_load_before(encoding, &[golden, b"."].concat()), None);
        }
        let other = test_frame(REQUESTS[0]);
        assert_eq!(decode_load_before(Encoding::Pickle, &other[4..]), None);
    }

    #[test]
    fn the_short_cut_and_the_decoder_agree() {
        for (encoding, golden) in ENCODINGS.into_iter().zip(REQUESTS) {
            let golden = test_frame(golden);
            let message = decode_message(encoding, &golden[4..]).unwrap();
            assert_eq!((message.id, &*message.name, message.oneway), (id(), "loadBefore", false));
            let arguments = message.arguments.unwrap();
            assert_eq!(arguments[0].as_oid(), Some(OID));
            assert_eq!(arguments[1].as_tid(), Some(Tid::MAX));
        }
    }

    #[test]
    fn a_reply_is_byte_identical_to_that_of_the_stock_server() {
        for (encoding, golden) in ENCODINGS.into_iter().zip(REPLIES) {
            let mut out = BytesMut::new();
            encode_load_reply(encoding, &mut out, &id(), b"data", START, None).unwrap();
            assert_eq!(out, test_frame(golden));
        }
    }

    #[test]
    fn a_reply_in_halves_is_the_message_that_encode_reply_writes() {
        for encoding in ENCODINGS {
            for length in [0, 1, 255, 256, 65_535, 65_536, 100_000] {
                for (id, end) in [(id(), None), (MessageId::Number(9), Some(END))] {
                    let data = vec![7; length];
                    let result = zodium_pickle::Value::tuple([
                        data.clone().into(),
                        START.into(),
                        end.into(),
                    ]);
                    let mut expected = BytesMut::new();
                    super::super::encode_reply(encoding, &mut expected, &id, &result).unwrap();
                    let mut out = BytesMut::from(&b"before"[..]);
                    encode_load_reply(encoding, &mut out, &id, &data, START, end).unwrap();
                    assert_eq!(out[6..], expected, "{encoding:?} {length} {end:?}");
                    assert!(decode_server_message(encoding, &expected[4..]).is_ok());
                }
            }
        }
    }

    #[test]
    fn data_that_fit_no_frame_leave_the_buffer_as_it_was() {
        let length = u32::MAX as usize - 10;
        for encoding in ENCODINGS {
            let mut out = BytesMut::from(&b"before"[..]);
            let result = load_reply_head(encoding, &mut out, &id(), length, None);
            assert!(matches!(result, Err(CodecError::MessageTooLong { .. })));
            assert_eq!(&out[..], b"before");
        }
    }
}
