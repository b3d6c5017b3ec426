//! Large data in MariaDB, where a row has less than 16 MiB: table `bigdata` has them in pieces.
//!
//! The row of `data` then has a bit in its compression, and in place of the data the first piece
//! and the length of all.

use std::ops::Range;

use zodium_neo::StoredData;

use crate::driver::{self, Connection, params};

/// From so many bytes on, data are in pieces.
const BYTES_MIN: usize = 16 << 20;
/// The bytes of a piece.
const PIECE_BYTES: usize = 8 << 20;
/// The bit of `compression`.
const BIT: u8 = 0x80;

/// Writes data in pieces, where they are too large for a row; what their row has then.
pub(crate) fn split(
    connection: &Connection,
    data: &StoredData,
) -> driver::Result<Option<StoredData>> {
    if data.value.len() < BYTES_MIN || matches!(connection, Connection::Sqlite(_)) {
        return Ok(None);
    }
    let last = "SELECT MAX(id) FROM bigdata";
    let last: Option<u32> = connection.query_row(last, [], |row| row.get(0))?;
    let first = last.unwrap_or(0).saturating_add(1);
    let mut insert =
        connection.prepare_cached("INSERT INTO bigdata (id, value) VALUES (?1, ?2)")?;
    for (id, piece) in (first..).zip(data.value.chunks(PIECE_BYTES)) {
        insert.execute(params![id, piece.to_vec()])?;
    }
    // Data are far shorter than 4 GiB.
    let length = u32::try_from(data.value.len()).unwrap_or(u32::MAX);
    let value = [first.to_be_bytes(), length.to_be_bytes()].concat();
    Ok(Some(StoredData { compression: data.compression | BIT, hash: data.hash, value }))
}

/// Whether data are in pieces.
pub(crate) fn is_split(row: &StoredData) -> bool {
    row.compression & BIT != 0
}

/// Puts data together that are in pieces.
pub(crate) fn joined(connection: &Connection, row: StoredData) -> driver::Result<StoredData> {
    let Some(pieces) = pieces(row.compression, &row.value) else { return Ok(row) };
    let mut find = connection.prepare_cached("SELECT value FROM bigdata WHERE id = ?1")?;
    let mut value = Vec::new();
    for piece in pieces {
        let piece: Vec<u8> = find.query_row([piece], |row| row.get(0))?;
        value.extend_from_slice(&piece);
    }
    Ok(StoredData { compression: row.compression & !BIT, hash: row.hash, value })
}

/// Deletes the pieces of a row that goes; the bytes of the data.
pub(crate) fn delete(connection: &Connection, id: i64) -> driver::Result<Option<u64>> {
    if matches!(connection, Connection::Sqlite(_)) {
        return Ok(None);
    }
    let find = "SELECT compression, value FROM data WHERE id = ?1 AND compression >= 128";
    let mut find = connection.prepare_cached(find)?;
    let found = find.query_map([id], |row| Ok((row.get(0)?, row.get::<Vec<u8>>(1)?)))?;
    let mut bytes = None;
    for row in found {
        let (compression, value): (u8, Vec<u8>) = row?;
        let Some(pieces) = pieces(compression, &value) else { continue };
        bytes = value.last_chunk().map(|length| u64::from(u32::from_be_bytes(*length)));
        let mut delete = connection.prepare_cached("DELETE FROM bigdata WHERE id = ?1")?;
        for piece in pieces {
            delete.execute([piece])?;
        }
    }
    Ok(bytes)
}

/// The pieces of a row; `None` if it has the data itself.
fn pieces(compression: u8, value: &[u8]) -> Option<Range<u32>> {
    if compression & BIT == 0 {
        return None;
    }
    let (first, length) = value.split_first_chunk()?;
    let first = u32::from_be_bytes(*first);
    let length = u32::from_be_bytes(*length.first_chunk()?);
    Some(first..first.saturating_add(length.div_ceil(PIECE_BYTES as u32)))
}
