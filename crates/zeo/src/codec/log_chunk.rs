//! Chunks: many transactions, records or objects in one answer, for clients that read ahead.
//!
//! Only Zodium's own methods answer with them, as bytes in an ordinary reply; docs/protocol.md
//! has the format. Items borrow from the answer, so a reader copies data at most once.

use zodium_types::{Oid, Tid};

use super::CodecError;

const TRANSACTION: u8 = b'T';
const RECORD: u8 = b'R';
const SKIPPED: u8 = b'S';
const OBJECT: u8 = b'O';
const FOLLOWING: u8 = b'N';
const END: u8 = b'E';

const HAS_DATA: u8 = 1;
const HAS_DATA_TID: u8 = 2;

/// One item of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkItem<'a> {
    /// A transaction begins; its records follow, in this chunk or the next.
    Transaction {
        /// Its tid.
        tid: Tid,
        /// Its status, as in the file.
        status: u8,
        /// Its user.
        user: &'a [u8],
        /// Its description.
        description: &'a [u8],
        /// Its extension: a pickled dict, or empty.
        extension: &'a [u8],
    },
    /// A record of the transaction.
    Record {
        /// The object.
        oid: Oid,
        /// Its data; `None`: the object is deleted.
        data: Option<&'a [u8]>,
        /// The earlier transaction that wrote the same data.
        data_tid: Option<Tid>,
    },
    /// The records of the transaction, which were not requested, are left out.
    Skipped,
    /// The current revision of an object.
    Object {
        /// The object.
        oid: Oid,
        /// The transaction that wrote it.
        serial: Tid,
        /// Its data.
        data: &'a [u8],
    },
    /// The next object after those of this chunk.
    Following(Oid),
    /// The end of the log, or of the objects.
    End,
}

/// Appends an item; after an error `out` is unchanged.
pub fn put_chunk_item(out: &mut Vec<u8>, item: &ChunkItem<'_>) -> Result<(), CodecError> {
    let start = out.len();
    let put = put(out, item);
    if put.is_err() {
        out.truncate(start);
    }
    put
}

fn put(out: &mut Vec<u8>, item: &ChunkItem<'_>) -> Result<(), CodecError> {
    match *item {
        ChunkItem::Transaction { tid, status, user, description, extension } => {
            out.push(TRANSACTION);
            out.extend_from_slice(&tid.to_bytes());
            out.push(status);
            let texts = [user, description, extension];
            for text in texts {
                let length = u16::try_from(text.len()).map_err(|_| too_long(text))?;
                out.extend_from_slice(&length.to_be_bytes());
            }
            texts.into_iter().for_each(|text| out.extend_from_slice(text));
        }
        ChunkItem::Record { oid, data, data_tid } => {
            out.push(RECORD);
            out.extend_from_slice(&oid.to_bytes());
            let flag = |is_there, flag| if is_there { flag } else { 0 };
            out.push(flag(data.is_some(), HAS_DATA) | flag(data_tid.is_some(), HAS_DATA_TID));
            if let Some(tid) = data_tid {
                out.extend_from_slice(&tid.to_bytes());
            }
            if let Some(data) = data {
                put_data(out, data)?;
            }
        }
        ChunkItem::Skipped => out.push(SKIPPED),
        ChunkItem::Object { oid, serial, data } => {
            out.push(OBJECT);
            out.extend_from_slice(&oid.to_bytes());
            out.extend_from_slice(&serial.to_bytes());
            put_data(out, data)?;
        }
        ChunkItem::Following(oid) => {
            out.push(FOLLOWING);
            out.extend_from_slice(&oid.to_bytes());
        }
        ChunkItem::End => out.push(END),
    }
    Ok(())
}

fn put_data(out: &mut Vec<u8>, data: &[u8]) -> Result<(), CodecError> {
    let length = u32::try_from(data.len()).map_err(|_| too_long(data))?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(data);
    Ok(())
}

fn too_long(bytes: &[u8]) -> CodecError {
    CodecError::MessageTooLong { length: bytes.len() }
}

/// Takes the first item off a chunk; `None` at its end.
pub fn next_chunk_item<'a>(rest: &mut &'a [u8]) -> Result<Option<ChunkItem<'a>>, CodecError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let mut ahead = *rest;
    let cut = CodecError::NotAMessage { what: "a whole item in a chunk of the log" };
    let item = take(&mut ahead).ok_or(cut)?;
    *rest = ahead;
    Ok(Some(item))
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<ChunkItem<'a>> {
    let [tag] = array(rest)?;
    Some(match tag {
        TRANSACTION => {
            let tid = Tid(u64::from_be_bytes(array(rest)?));
            let [status] = array(rest)?;
            let lengths: [[u8; 2]; 3] = [array(rest)?, array(rest)?, array(rest)?];
            let [user, description, extension] =
                lengths.map(|length| usize::from(u16::from_be_bytes(length)));
            ChunkItem::Transaction {
                tid,
                status,
                user: slice(rest, user)?,
                description: slice(rest, description)?,
                extension: slice(rest, extension)?,
            }
        }
        RECORD => {
            let oid = Oid(u64::from_be_bytes(array(rest)?));
            let [flags] = array(rest)?;
            if flags & !(HAS_DATA | HAS_DATA_TID) != 0 {
                return None;
            }
            let data_tid = match flags & HAS_DATA_TID {
                0 => None,
                _ => Some(Tid(u64::from_be_bytes(array(rest)?))),
            };
            let data = match flags & HAS_DATA {
                0 => None,
                _ => Some(data(rest)?),
            };
            ChunkItem::Record { oid, data, data_tid }
        }
        SKIPPED => ChunkItem::Skipped,
        OBJECT => ChunkItem::Object {
            oid: Oid(u64::from_be_bytes(array(rest)?)),
            serial: Tid(u64::from_be_bytes(array(rest)?)),
            data: data(rest)?,
        },
        FOLLOWING => ChunkItem::Following(Oid(u64::from_be_bytes(array(rest)?))),
        END => ChunkItem::End,
        _ => return None,
    })
}

fn data<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_be_bytes(array(rest)?);
    slice(rest, usize::try_from(length).ok()?)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

fn slice<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (first, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TID: Tid = Tid(0x0102_0304_0506_0708);
    const OID: Oid = Oid(0x1112_1314_1516_1718);

    fn items() -> Vec<ChunkItem<'static>> {
        let (user, description, extension) = (&b"me"[..], &b"something"[..], &b""[..]);
        let record = |data, data_tid| ChunkItem::Record { oid: OID, data, data_tid };
        vec![
            ChunkItem::Transaction { tid: TID, status: b'p', user, description, extension },
            record(Some(b"data"), None),
            record(Some(b""), None),
            record(Some(b"data"), Some(TID)),
            record(None, Some(TID)),
            record(None, None),
            ChunkItem::Skipped,
            ChunkItem::Object { oid: OID, serial: TID, data: b"data" },
            ChunkItem::Following(OID),
            ChunkItem::End,
        ]
    }

    fn encoded(items: &[ChunkItem<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        items.iter().for_each(|item| put_chunk_item(&mut out, item).unwrap());
        out
    }

    fn decoded(mut chunk: &[u8]) -> Result<Vec<ChunkItem<'_>>, CodecError> {
        std::iter::from_fn(|| next_chunk_item(&mut chunk).transpose()).collect()
    }

    #[test]
    fn items_come_back_as_they_were_put_and_none_from_a_part_of_one() {
        assert_eq!(decoded(&encoded(&items())).unwrap(), items());
        for item in items() {
            let whole = encoded(&[item]);
            for length in 1..whole.len() {
                assert!(decoded(&whole[..length]).is_err(), "{length} bytes of {item:?}");
            }
        }
    }

    #[test]
    fn a_record_says_in_its_flags_what_it_has() {
        let (data, data_tid) = (Some(&b"data"[..]), Some(TID));
        for (data, data_tid, flags, length) in [
            (None, None, 0, 10),
            (data, None, 1, 18),
            (None, data_tid, 2, 18),
            (data, data_tid, 3, 26),
        ] {
            let record = encoded(&[ChunkItem::Record { oid: OID, data, data_tid }]);
            assert_eq!((record[0], record[9], record.len()), (b'R', flags, length));
        }
    }

    #[test]
    fn a_record_with_other_flags_is_refused() {
        let record = encoded(&[ChunkItem::Record { oid: OID, data: None, data_tid: None }]);
        for flags in 4..=u8::MAX {
            let mut other = record.clone();
            other[9] = flags;
            // Enough for whatever the flags may stand for.
            other.extend_from_slice(&[0; 16]);
            assert!(next_chunk_item(&mut &other[..]).is_err(), "flags {flags}");
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_refused_and_nothing_of_its_item_is_put() {
        let text = vec![b'x'; usize::from(u16::MAX) + 1];
        let item = |description| ChunkItem::Transaction {
            tid: TID,
            status: b' ',
            user: b"me",
            description,
            extension: b"",
        };
        let mut out = encoded(&[ChunkItem::Skipped]);
        let refused = put_chunk_item(&mut out, &item(&text)).unwrap_err();
        let length = text.len();
        assert!(matches!(refused, CodecError::MessageTooLong { length: told } if told == length));
        assert_eq!(out, encoded(&[ChunkItem::Skipped]));
        let longest = item(&text[1..]);
        assert_eq!(decoded(&encoded(&[longest])).unwrap(), [longest]);
    }
}
