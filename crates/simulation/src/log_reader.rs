//! An independent reader of `Data.fs`: as short as possible, and sharing no code with the server.

use std::io;

use bytes::Bytes;
use zodium_disk::DiskFile;
use zodium_types::{Oid, Tid};

/// The position of the first transaction.
pub(crate) const FIRST: u64 = 4;

/// A transaction in the file.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) tid: Tid,
    pub(crate) description: Vec<u8>,
    pub(crate) records: Vec<(Oid, Bytes)>,
    /// The position of the next one.
    pub(crate) end: u64,
}

/// Reads the transaction at `position`, or reports what is wrong with it.
pub(crate) fn read_transaction(file: &dyn DiskFile, position: u64) -> Result<Written, String> {
    let wrong = |what: &str| format!("the transaction at {position}: {what}");
    let head = bytes_at(file, position, 23).map_err(|error| wrong(&error.to_string()))?;
    let (tid, length) = (number(&head, 0), number(&head, 8));
    // A pack marks the transactions that it has copied.
    if ![b' ', b'p'].contains(&head[16]) {
        return Err(wrong("its status is not that of a committed one"));
    }
    let all = usize::try_from(length).ok().filter(|length| (23..1 << 30).contains(length));
    let all = all.ok_or_else(|| wrong("impossible length"))?;
    let body = bytes_at(file, position, all + 8).map_err(|error| wrong(&error.to_string()))?;
    if number(&body, all) != length {
        return Err(wrong("its two lengths differ"));
    }
    let [user, description, extension] = [17, 19, 21].map(|at| short(&body, at));
    let mut at = 23 + user + description + extension;
    let mut records = Vec::new();
    while at < all {
        let header = body.get(at..at + 42).ok_or_else(|| wrong("a record without a header"))?;
        let data_length = number(header, 34) as usize;
        if number(header, 8) != tid || number(header, 24) != position || data_length == 0 {
            return Err(wrong("a record that is not of this transaction, or has no data"));
        }
        let data = body.slice(at + 42..(at + 42 + data_length).min(all));
        records.push((Oid(number(header, 0)), data));
        at += 42 + data_length;
    }
    if at != all {
        return Err(wrong("its records do not end where it does"));
    }
    let description = body[23 + user..23 + user + description].to_vec();
    Ok(Written { tid: Tid(tid), description, records, end: position + length + 8 })
}

fn bytes_at(file: &dyn DiskFile, position: u64, length: usize) -> io::Result<Bytes> {
    // Bounded by the file, whatever its length field says.
    let there = file.length()?.saturating_sub(position);
    if there < length as u64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, position)?;
    Ok(bytes.into())
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn short(bytes: &[u8], at: usize) -> usize {
    bytes[at..].first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes).into())
}
