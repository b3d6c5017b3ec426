//! `loadBefore` and its reply, without building values: most messages are one or the other.
//!
//! Stock clients write the request in one way only, which is matched as a template; whatever
//! else may mean the same goes through [`super::decode_message`]. A reply can be had in two
//! halves around the data, so that large data is sent from where it lies.

use bytes::{BufMut, BytesMut};
use zodium_types::{Oid, Tid};

use super::frame::{HEADER_LENGTH, frame_header};
use super::message::REPLY;
use super::writer::{Flag, Writer};
use super::{CodecError, Encoding, MessageId};

/// A request for the revision of an object before a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBefore {
    /// What the reply must repeat.
    pub id: MessageId,
    /// The object.
    pub oid: Oid,
    /// The revision wanted is the last one before this transaction.
    pub before: Tid,
}

/// The constant parts of a request. Id and arguments are the same pair, written alike.
struct Template {
    /// From the start of the payload to the first oid.
    open: &'static [u8],
    /// Between an oid and a tid.
    between: &'static [u8],
    /// From the first tid to the second oid.
    middle: &'static [u8],
    /// From the second tid to the end.
    close: &'static [u8],
}

const PICKLE: Template = Template {
    open: b"\x80\x03(C\x08",
    between: b"C\x08",
    middle: b"\x86\x89X\x0a\0\0\0loadBeforeC\x08",
    close: b"\x86t.",
};

const MSGPACK: Template = Template {
    open: b"\x94\x92\xc4\x08",
    between: b"\xc4\x08",
    middle: b"\xc2\xaaloadBefore\x92\xc4\x08",
    close: b"",
};

fn template(encoding: Encoding) -> &'static Template {
    match encoding {
        Encoding::Pickle => &PICKLE,
        Encoding::Msgpack => &MSGPACK,
    }
}

/// Recognises a `loadBefore` as stock clients write it, with the arguments as its id. `None`
/// only means that the message has to be decoded.
pub fn decode_load_before(encoding: Encoding, payload: &[u8]) -> Option<LoadBefore> {
    let template = template(encoding);
    let (id, rest) = take_pair(template, payload.strip_prefix(template.open)?)?;
    let (arguments, rest) = take_pair(template, rest.strip_prefix(template.middle)?)?;
    let (oid, before) = arguments;
    (rest == template.close && id == arguments).then_some(LoadBefore {
        id: MessageId::Load { oid, before },
        oid,
        before,
    })
}

fn take_pair<'a>(template: &Template, bytes: &'a [u8]) -> Option<((Oid, Tid), &'a [u8])> {
    let (oid, rest) = bytes.split_first_chunk()?;
    let (before, rest) = rest.strip_prefix(template.between)?.split_first_chunk()?;
    Some(((Oid(u64::from_be_bytes(*oid)), Tid(u64::from_be_bytes(*before))), rest))
}

/// Appends the frame of a request, as stock clients write it.
pub fn encode_load_before_request(encoding: Encoding, out: &mut BytesMut, oid: Oid, before: Tid) {
    let Template { open, between, middle, close } = template(encoding);
    let (oid, before) = (oid.to_bytes(), before.to_bytes());
    let pair = [&oid[..], between, &before].concat();
    let length = open.len() + middle.len() + close.len() + 2 * pair.len();
    out.put_u32(length as u32);
    for part in [open, &pair[..], middle, &pair, close] {
        out.put_slice(part);
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

/// Appends what of a reply comes before the data. Exactly `data_length` bytes of data must
/// follow, and then the tail with the same `end`.
pub fn load_reply_head(
    encoding: Encoding,
    out: &mut BytesMut,
    id: &MessageId,
    data_length: usize,
    end: Option<Tid>,
) -> Result<(), CodecError> {
    let start = out.len();
    out.put_bytes(0, HEADER_LENGTH);
    let header = write_head(encoding, out, id, data_length).and_then(|()| {
        let head_length = out.len() - start - HEADER_LENGTH;
        frame_header(head_length + data_length + tail_length(encoding, end))
    });
    match header {
        Ok(header) => {
            if let Some(place) = out.get_mut(start..start + HEADER_LENGTH) {
                place.copy_from_slice(&header);
            }
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// Appends what of a reply comes after the data.
pub fn load_reply_tail(encoding: Encoding, out: &mut BytesMut, start: Tid, end: Option<Tid>) {
    let mut writer = Writer::new(encoding, out);
    writer.tid(start);
    match end {
        Some(end) => writer.tid(end),
        None => writer.none(),
    }
    writer.close_tuple(3);
    writer.close();
}

/// The bytes that [`load_reply_tail`] appends.
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
    let mut writer = Writer::new(encoding, out);
    writer.open();
    id.write(&mut writer)?;
    writer.flag(Flag::Result);
    writer.text(REPLY)?;
    writer.open_tuple(3);
    writer.bytes_header(data_length)
}
