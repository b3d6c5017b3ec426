//! The rows of table `data`: hash, compression, and the bytes.
//!
//! A row is written once and never changed. Several records may refer to it: undos, and, in a
//! database that keeps equal data once, records of any objects. So a row goes when nothing refers
//! to it any more.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rusqlite::{Connection, OptionalExtension, params};
use rustc_hash::FxHashSet;
use sha1::{Digest, Sha1};
use zodium_types::Oid;

use crate::SqlError;
use crate::place::Place;

/// A row of SQLite, and so the data of an object, has at most so many bytes.
pub(crate) const VALUE_BYTES_MAX: u64 = 1_000_000_000 - (1 << 16);
/// Ids of the rows of a partition begin with the partition shifted by so many bits.
const PARTITION_SHIFT: u32 = 48;
/// `compression` of data that are stored as they are.
const PLAIN: u8 = 0;
/// `compression` of data that zlib has compressed.
const ZLIB: u8 = 1;

/// Data as they are stored: compressed if that made them smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredData {
    /// 0: as they are. 1: compressed by zlib.
    pub compression: u8,
    /// SHA-1 of `value`.
    pub hash: [u8; 20],
    /// The bytes.
    pub value: Vec<u8>,
}

impl StoredData {
    /// Compresses data, and keeps the result if it is smaller than they are.
    pub fn compress(data: &[u8]) -> StoredData {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        // Writing to a vector does not fail; if it did, the data would be stored as they are.
        let compressed = encoder.write_all(data).and_then(|()| encoder.finish());
        match compressed {
            Ok(value) if value.len() < data.len() => StoredData::of(ZLIB, value),
            _ => StoredData::of(PLAIN, data.to_vec()),
        }
    }

    /// Stores data as they are.
    pub fn plain(data: &[u8]) -> StoredData {
        StoredData::of(PLAIN, data.to_vec())
    }

    fn of(compression: u8, value: Vec<u8>) -> StoredData {
        StoredData { compression, hash: Sha1::digest(&value).into(), value }
    }

    /// The data of the object.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn into_data(self) -> Result<Vec<u8>, &'static str> {
        if <[u8; 20]>::from(Sha1::digest(&self.value)) != self.hash {
            return Err("do not have their SHA-1");
        }
        match self.compression {
            PLAIN => Ok(self.value),
            ZLIB => {
                let mut data = Vec::with_capacity(self.value.len() * 3);
                let read = ZlibDecoder::new(&self.value[..]).read_to_end(&mut data);
                read.map_err(|_| "cannot be decompressed")?;
                Ok(data)
            }
            _ => Err("have an unknown compression"),
        }
    }
}

/// Gives the rows of `data` their ids.
#[derive(Debug)]
pub(crate) struct DataTable {
    /// The next id in each partition.
    next: Vec<i64>,
    /// Whether equal data are kept once.
    is_unique: bool,
}

impl DataTable {
    /// Reads which ids are in use.
    pub(crate) fn open(connection: &Connection, partitions: u32) -> rusqlite::Result<DataTable> {
        let mut last =
            connection.prepare_cached("SELECT MAX(id) FROM data WHERE id >= ?1 AND id < ?2")?;
        let next = |partition: u32| {
            let first = i64::from(partition) << PARTITION_SHIFT;
            let end = i64::from(partition + 1) << PARTITION_SHIFT;
            let last: Option<i64> = last.query_row([first, end], |row| row.get(0))?;
            Ok(last.map_or(first, |last| last + 1))
        };
        let next = (0..partitions).map(next).collect::<rusqlite::Result<_>>()?;
        let unique = "SELECT 1 FROM sqlite_master WHERE type = 'index' AND tbl_name = 'data'";
        let is_unique = connection.query_row(unique, [], |_| Ok(())).optional()?.is_some();
        Ok(DataTable { next, is_unique })
    }

    /// Writes the data of an object, or finds the row with equal ones; its id.
    ///
    /// # Errors
    /// When the data are too large, or have the SHA-1 of others.
    pub(crate) fn store(
        &mut self,
        connection: &Connection,
        place: &Place,
        (partition, oid): (u32, Oid),
        data: &StoredData,
    ) -> Result<i64, SqlError> {
        let (path, bytes) = (|| place.path().to_owned(), data.value.len() as u64);
        if bytes > VALUE_BYTES_MAX {
            let bytes_max = VALUE_BYTES_MAX;
            return Err(SqlError::TooLarge { path: path(), oid, bytes, bytes_max });
        }
        let stored = self.insert(connection, partition, data);
        let failed = |source| place.error("write the data of an object", bytes, source);
        stored.map_err(failed)?.ok_or_else(|| SqlError::Collision { path: path(), oid })
    }

    /// `None`: different data have the same SHA-1.
    fn insert(
        &mut self,
        connection: &Connection,
        partition: u32,
        data: &StoredData,
    ) -> rusqlite::Result<Option<i64>> {
        if self.is_unique
            && let Some((id, value)) = of_same_hash(connection, data)?
        {
            return Ok((value == data.value).then_some(id));
        }
        let next = &mut self.next[partition as usize];
        let insert = "INSERT INTO data (id, hash, compression, value) VALUES (?1, ?2, ?3, ?4)";
        connection.prepare_cached(insert)?.execute(params![
            *next,
            data.hash,
            data.compression,
            data.value
        ])?;
        *next += 1;
        Ok(Some(*next - 1))
    }
}

fn of_same_hash(
    connection: &Connection,
    data: &StoredData,
) -> rusqlite::Result<Option<(i64, Vec<u8>)>> {
    let find = "SELECT id, value FROM data WHERE hash = ?1 AND compression = ?2";
    let mut find = connection.prepare_cached(find)?;
    let key = params![data.hash, data.compression];
    find.query_row(key, |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// Deletes those of these rows that no record refers to, committed or voted, and that are not held;
/// the bytes that this frees.
pub(crate) fn prune(
    connection: &Connection,
    ids: &FxHashSet<i64>,
    is_held: impl Fn(i64) -> bool,
) -> rusqlite::Result<u64> {
    let mut used = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM obj WHERE data_id = ?1) \
         OR EXISTS (SELECT 1 FROM tobj WHERE data_id = ?1)",
    )?;
    let mut length = connection.prepare_cached("SELECT LENGTH(value) FROM data WHERE id = ?1")?;
    let mut delete = connection.prepare_cached("DELETE FROM data WHERE id = ?1")?;
    let mut freed = 0;
    for id in ids.iter().filter(|id| !is_held(**id)) {
        if used.query_row([id], |row| row.get::<_, bool>(0))? {
            continue;
        }
        let bytes: Option<i64> = length.query_row([id], |row| row.get(0)).optional()?;
        freed += bytes.unwrap_or(0).unsigned_abs();
        delete.execute([id])?;
    }
    Ok(freed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_do_not_become_smaller_are_stored_as_they_are() {
        let stored = StoredData::compress(b"short");
        assert_eq!((stored.compression, &stored.value[..]), (0, &b"short"[..]));
        assert_eq!(stored.into_data(), Ok(b"short".to_vec()));
    }

    #[test]
    fn data_that_become_smaller_are_compressed() {
        let data = b"again and again ".repeat(100);
        let stored = StoredData::compress(&data);
        assert_eq!(stored.compression, 1);
        assert!(stored.value.len() < data.len());
        assert_eq!(stored.into_data(), Ok(data));
    }

    #[test]
    fn flipped_bit_is_found() {
        for data in [&b"short"[..], &b"again and again ".repeat(100)] {
            let mut stored = StoredData::compress(data);
            stored.value[3] ^= 4;
            assert_eq!(stored.into_data(), Err("do not have their SHA-1"));
        }
    }
}
