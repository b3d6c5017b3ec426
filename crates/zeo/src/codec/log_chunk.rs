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
