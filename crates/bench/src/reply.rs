//! Recognises the reply to a load by comparison with the expected one.
//!
//! The generator knows each object's length and transaction, so it need not decode replies. It
//! encodes the expected reply without the data, and compares. Only a reply that differs is decoded,
//! to find out whether it is wrong.

use anyhow::{Result, bail, ensure};
use bytes::BytesMut;
use thiserror::Error;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::frame::HEADER_LENGTH;
use zodium_zeo::codec::{
    Encoding, MessageId, Reply, ServerMessage, decode_server_message, load_reply_head,
    load_reply_tail,
};

use crate::dataset::{Dataset, WrongData};
use crate::verifier::Verifier;

/// Placeholders for the fields that differ between replies of one length; nothing else looks like
/// them.
const OID: Oid = Oid(0x1bad_1dea_5eed_c0de);
const START: Tid = Tid(0x2bad_1dea_5eed_c0de);

/// The expected replies with data of one length, without the data.
#[derive(Debug)]
pub(crate) struct ReplyTemplate {
    encoding: Encoding,
    data_length: usize,
    head: BytesMut,
    oid_offset: usize,
    tail: BytesMut,
    start_offset: usize,
}

/// An unexpected message.
#[derive(Debug, Error)]
pub(crate) enum WrongReply {
    #[error("the server answered a load with {name}: {payload:?}")]
    Exception { name: String, payload: String },
    #[error("the reply to a load has another id: {0:?}")]
    Id(MessageId),
    #[error("object {0} was answered, which was not asked for")]
    NotAsked(Oid),
    #[error("object {oid} is said to be of {got:?}, but is of {stored}")]
    Revision { oid: Oid, stored: Tid, got: [Option<Tid>; 2] },
    #[error("the reply to a load is no data and two transaction ids")]
    Form,
    #[error(transparent)]
    Data(#[from] WrongData),
}

impl ReplyTemplate {
    pub(crate) fn new(encoding: Encoding) -> Result<ReplyTemplate> {
        let mut template = ReplyTemplate {
            encoding,
            data_length: usize::MAX,
            head: BytesMut::new(),
            oid_offset: 0,
            tail: BytesMut::new(),
            start_offset: 0,
        };
        template.make(0)?;
        Ok(template)
    }

    /// The data of a payload that is exactly as expected; `None` only means that it must be
    /// decoded.
    pub(crate) fn data<'p>(
        &mut self,
        payload: &'p [u8],
        dataset: &Dataset,
        oid: Oid,
    ) -> Result<Option<&'p [u8]>> {
        let length = dataset.length(oid);
        if length != self.data_length {
            self.make(length)?;
        }
        put(&mut self.head, self.oid_offset, oid.to_bytes());
        put(&mut self.tail, self.start_offset, dataset.tid(oid).to_bytes());
        let data = payload.strip_prefix(&self.head[..]);
        Ok(data.and_then(|data| data.strip_suffix(&self.tail[..])))
    }

    fn make(&mut self, length: usize) -> Result<()> {
        let id = MessageId::Load { oid: OID, before: Tid::MAX };
        self.head.clear();
        load_reply_head(self.encoding, &mut self.head, &id, length, None)?;
        let _ = self.head.split_to(HEADER_LENGTH);
        self.tail.clear();
        load_reply_tail(self.encoding, &mut self.tail, START, None);
        self.oid_offset = find(&self.head, OID.to_bytes())?;
        self.start_offset = find(&self.tail, START.to_bytes())?;
        self.data_length = length;
        Ok(())
    }
}

/// Decodes a payload and checks all of it. `None` for a notice, which needs no reply.
pub(crate) fn decode_reply(
    encoding: Encoding,
    payload: &[u8],
    dataset: &Dataset,
    verifier: &mut Verifier,
) -> Result<Option<Oid>> {
    let Reply { id, result } = match decode_server_message(encoding, payload)? {
        ServerMessage::Reply(reply) => reply,
        ServerMessage::Notice(_) => return Ok(None),
    };
    let result = result.map_err(|error| WrongReply::Exception {
        name: error.name.into_owned(),
        payload: format!("{:?}", error.payload),
    })?;
    let oid = match id {
        MessageId::Load { oid, before: Tid::MAX } => oid,
        id => bail!(WrongReply::Id(id)),
    };
    let parts = result.into_sequence().map(<[Value<'_>; 3]>::try_from);
    let Some(Ok([Value::Bytes(data), start, end])) = parts else { bail!(WrongReply::Form) };
    let (stored, got) = (dataset.tid(oid), [start.as_tid(), end.as_tid()]);
    ensure!(got == [Some(stored), None], WrongReply::Revision { oid, stored, got });
    verifier.check(dataset, oid, &data).map_err(WrongReply::from)?;
    Ok(Some(oid))
}

fn put(bytes: &mut [u8], offset: usize, value: [u8; 8]) {
    if let Some(place) = bytes.get_mut(offset..offset + value.len()) {
        place.copy_from_slice(&value);
    }
}

fn find(bytes: &[u8], value: [u8; 8]) -> Result<usize> {
    match bytes.windows(value.len()).position(|window| window == value) {
        Some(offset) => Ok(offset),
        None => bail!("the codec writes no reply with the oid in eight bytes"),
    }
}

#[cfg(test)]
mod tests {
    use zodium_zeo::codec::{encode_error, encode_load_reply};

    use super::*;
    use crate::dataset::Shape;

    const ENCODINGS: [Encoding; 2] = [Encoding::Pickle, Encoding::Msgpack];

    fn reply(encoding: Encoding, oid: Oid, data: &[u8], start: Tid, end: Option<Tid>) -> BytesMut {
        let mut out = BytesMut::new();
        let id = MessageId::Load { oid, before: Tid::MAX };
        encode_load_reply(encoding, &mut out, &id, data, start, end).unwrap();
        out.split_off(HEADER_LENGTH)
    }

    #[test]
    fn the_expected_reply_is_recognised_without_decoding() {
        let dataset = Dataset::new(Shape::Blocks, 300, 1, 1);
        for encoding in ENCODINGS {
            let mut template = ReplyTemplate::new(encoding).unwrap();
            for oid in (0..300).map(Oid) {
                let data = dataset.data(oid);
                let payload = reply(encoding, oid, &data, dataset.tid(oid), None);
                let found = template.data(&payload, &dataset, oid).unwrap();
                assert_eq!(found, Some(&data[..]));
                assert_eq!(
                    decode_reply(encoding, &payload, &dataset, &mut Verifier::Each).unwrap(),
                    Some(oid)
                );
            }
        }
    }

    #[test]
    fn a_reply_with_any_byte_changed_is_noticed() {
        let dataset = Dataset::new(Shape::Fixed(40), 300, 1, 1);
        let oid = Oid(200);
        for encoding in ENCODINGS {
            let mut template = ReplyTemplate::new(encoding).unwrap();
            let payload = reply(encoding, oid, &dataset.data(oid), dataset.tid(oid), None);
            for index in 0..payload.len() {
                let mut wrong = payload.clone();
                wrong[index] ^= 1;
                let quick = template.data(&wrong, &dataset, oid).unwrap();
                let accepted = quick.is_some_and(|data| dataset.check(oid, data).is_ok());
                assert!(!accepted, "{encoding:?} byte {index}");
                // Protocol 2 instead of 3 says the same.
                if (encoding, index) != (Encoding::Pickle, 1) {
                    let decoded = decode_reply(encoding, &wrong, &dataset, &mut Verifier::Each);
                    assert!(!matches!(decoded, Ok(Some(_))), "{encoding:?} byte {index}");
                }
            }
        }
    }

    #[test]
    fn another_revision_and_an_exception_are_named() {
        let dataset = Dataset::new(Shape::Fixed(40), 3, 1, 1);
        let (oid, tid) = (Oid(1), dataset.tid(Oid(1)));
        let wrong = [(Tid(5), None), (tid, Some(tid.next()))];
        for (start, end) in wrong {
            let payload = reply(Encoding::Msgpack, oid, &dataset.data(oid), start, end);
            let error = decode_reply(Encoding::Msgpack, &payload, &dataset, &mut Verifier::Each)
                .unwrap_err();
            assert!(error.to_string().contains("is said to be of"), "{error}");
        }
        let mut out = BytesMut::new();
        let id = MessageId::Load { oid, before: Tid::MAX };
        let name = "ZODB.POSException.POSKeyError";
        encode_error(Encoding::Msgpack, &mut out, &id, name, &Value::tuple([oid.into()])).unwrap();
        let error =
            decode_reply(Encoding::Msgpack, &out[HEADER_LENGTH..], &dataset, &mut Verifier::Each)
                .unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}
