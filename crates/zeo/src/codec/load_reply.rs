//! Decodes the reply to a `loadBefore` without building values: a client's most frequent message.

use zodium_types::{Oid, Tid};

use super::Encoding;

/// The reply to a load that found a revision. The data borrow from the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadReply<'a> {
    /// The requested object.
    pub oid: Oid,
    /// The transaction before which it was requested.
    pub before: Tid,
    /// The revision's data.
    pub data: &'a [u8],
    /// The transaction that wrote it.
    pub serial: Tid,
    /// The transaction that wrote the next revision; `None`: this one is current.
    pub end: Option<Tid>,
}

/// Recognises the reply to a `loadBefore` whose id is its arguments. `None` only means that the
/// message must be decoded in full.
pub fn decode_load_reply(encoding: Encoding, payload: &[u8]) -> Option<LoadReply<'_>> {
    match encoding {
        Encoding::Pickle => pickled(payload),
        Encoding::Msgpack => packed(payload),
    }
}

fn pickled(payload: &[u8]) -> Option<LoadReply<'_>> {
    let rest = payload.strip_prefix(b"\x80\x03(")?;
    let (oid, rest) = number(rest, b"C\x08")?;
    let (before, rest) = number(rest, b"C\x08")?;
    let rest = rest.strip_prefix(b"\x86K\0X\x06\0\0\0.reply")?;
    let (length, rest) = match rest.split_first()? {
        (b'C', rest) => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        (b'B', rest) => {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        _ => return None,
    };
    let (data, rest) = rest.split_at_checked(length)?;
    let (serial, rest) = number(rest, b"C\x08")?;
    let (end, rest) = match rest.strip_prefix(b"N") {
        Some(rest) => (None, rest),
        None => number(rest, b"C\x08").map(|(end, rest)| (Some(Tid(end)), rest))?,
    };
    (rest == b"\x87t.").then_some(LoadReply {
        oid: Oid(oid),
        before: Tid(before),
        data,
        serial: Tid(serial),
        end,
    })
}

fn packed(payload: &[u8]) -> Option<LoadReply<'_>> {
    let rest = payload.strip_prefix(b"\x94\x92")?;
    let (oid, rest) = number(rest, b"\xc4\x08")?;
    let (before, rest) = number(rest, b"\xc4\x08")?;
    let rest = rest.strip_prefix(b"\0\xa6.reply\x93")?;
    let (length, rest) = match rest.split_first()? {
        (0xc4, rest) => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        (0xc5, rest) => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        (0xc6, rest) => {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_be_bytes(*length) as usize, rest)
        }
        _ => return None,
    };
    let (data, rest) = rest.split_at_checked(length)?;
    let (serial, rest) = number(rest, b"\xc4\x08")?;
    let (end, rest) = match rest.strip_prefix(b"\xc0") {
        Some(rest) => (None, rest),
        None => number(rest, b"\xc4\x08").map(|(end, rest)| (Some(Tid(end)), rest))?,
    };
    rest.is_empty().then_some(LoadReply {
        oid: Oid(oid),
        before: Tid(before),
        data,
        serial: Tid(serial),
        end,
    })
}

/// The eight bytes after `marker`, and the rest.
fn number<'a>(bytes: &'a [u8], marker: &[u8]) -> Option<(u64, &'a [u8])> {
    let (number, rest) = bytes.strip_prefix(marker)?.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::super::frame::HEADER_LENGTH;
    use super::super::{MessageId, encode_load_reply};
    use super::*;

    const ENCODINGS: [Encoding; 2] = [Encoding::Msgpack, Encoding::Pickle];

    fn reply(encoding: Encoding, data: &[u8], end: Option<Tid>) -> Vec<u8> {
        let id = MessageId::Load { oid: Oid(7), before: Tid::MAX };
        let mut out = BytesMut::new();
        encode_load_reply(encoding, &mut out, &id, data, Tid(9), end).unwrap();
        out[HEADER_LENGTH..].to_vec()
    }

    #[test]
    fn replies_of_every_length_are_recognised() {
        for encoding in ENCODINGS {
            for length in [0, 1, 255, 256, 65_535, 65_536, 100_000] {
                for end in [None, Some(Tid(12))] {
                    let data = vec![3; length];
                    let payload = reply(encoding, &data, end);
                    let found = decode_load_reply(encoding, &payload).unwrap();
                    let (oid, before, serial) = (Oid(7), Tid::MAX, Tid(9));
                    assert_eq!(found, LoadReply { oid, before, data: &data, serial, end });
                }
            }
        }
    }

    #[test]
    fn what_is_cut_or_goes_on_or_is_of_another_form_is_not_recognised() {
        for encoding in ENCODINGS {
            let payload = reply(encoding, b"data", None);
            for length in 0..payload.len() {
                assert_eq!(decode_load_reply(encoding, &payload[..length]), None);
            }
            assert_eq!(decode_load_reply(encoding, &[&payload[..], b"."].concat()), None);
        }
        let pickle = reply(Encoding::Pickle, b"data", None);
        assert_eq!(decode_load_reply(Encoding::Msgpack, &pickle), None);
    }
}
