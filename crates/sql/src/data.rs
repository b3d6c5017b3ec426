//! The rows of table `data`: hash, compression, and the bytes.
//!
//! A row is written once and never changed. Several records may refer to it: undos, and, in a
//! database that keeps equal data once, records of any objects. So a row goes when nothing refers
//! to it any more.

use rustc_hash::FxHashSet;
use zodium_neo::{OBJECT_BYTES_MAX, StoredData};
use zodium_types::Oid;

use crate::connection::in_transaction;
use crate::driver::{self, Connection, Optional, Params, params};
use crate::place::Place;
use crate::{SqlError, big};

/// A row of SQLite, and so the data of an object, has at most so many bytes. On a server, data in
/// pieces have no more. Data have no more before they are compressed either.
pub(crate) const VALUE_BYTES_MAX: u64 = 1_000_000_000 - (1 << 16);
const _: () = assert!(VALUE_BYTES_MAX <= OBJECT_BYTES_MAX as u64, "what is written can be read");
/// Ids of the rows of a partition begin with the partition shifted by so many bits.
const PARTITION_SHIFT: u32 = 48;

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
    pub(crate) fn open(connection: &Connection, partitions: u32) -> driver::Result<DataTable> {
        let mut last =
            connection.prepare_cached("SELECT MAX(id) FROM data WHERE id >= ?1 AND id < ?2")?;
        let next = |partition: u32| {
            let first = i64::from(partition) << PARTITION_SHIFT;
            let end = i64::from(partition + 1) << PARTITION_SHIFT;
            let last: Option<i64> = last.query_row([first, end], |row| row.get(0))?;
            Ok(last.map_or(first, |last| last + 1))
        };
        let next = (0..partitions).map(next).collect::<driver::Result<_>>()?;
        let unique = connection.choose(
            "SELECT 1 FROM sqlite_master WHERE type = 'index' AND tbl_name = 'data'",
            "SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() \
             AND table_name = 'data' AND index_name = 'hash' LIMIT 1",
        );
        let is_unique = connection.query_row(unique, [], |_| Ok(())).optional()?.is_some();
        Ok(DataTable { next, is_unique })
    }

    /// Whether equal data are kept once.
    pub(crate) fn is_unique(&self) -> bool {
        self.is_unique
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
        let bytes = data.value.len() as u64;
        check_length(place, oid, bytes)?;
        let stored = self.insert(connection, partition, data);
        let failed = |source| place.error("write the data of an object", bytes, source);
        stored
            .map_err(failed)?
            .ok_or_else(|| SqlError::Collision { path: place.path().to_owned(), oid })
    }

    /// `None`: different data have the same SHA-1.
    fn insert(
        &mut self,
        connection: &Connection,
        partition: u32,
        data: &StoredData,
    ) -> driver::Result<Option<i64>> {
        if self.is_unique
            && let Some((id, value)) = of_same_hash(connection, data)?
        {
            return Ok((value == data.value).then_some(id));
        }
        let split = big::split(connection, data)?;
        let data = split.as_ref().unwrap_or(data);
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

/// The data of a row.
pub(crate) fn read(connection: &Connection, id: i64) -> driver::Result<StoredData> {
    let find = "SELECT hash, compression, value FROM data WHERE id = ?1";
    let row = |row: &driver::Row<'_>| {
        Ok(StoredData { hash: row.get(0)?, compression: row.get(1)?, value: row.get(2)? })
    };
    big::joined(connection, connection.prepare_cached(find)?.query_row([id], row)?)
}

fn of_same_hash(
    connection: &Connection,
    data: &StoredData,
) -> driver::Result<Option<(i64, Vec<u8>)>> {
    let find = connection.choose(
        "SELECT id, value, compression FROM data WHERE hash = ?1 AND compression = ?2",
        "SELECT id, value, compression FROM data WHERE hash = ?1 AND compression IN (?2, ?2 | 128)",
    );
    let mut find = connection.prepare_cached(find)?;
    let key = params![data.hash, data.compression];
    let row = |row: &driver::Row<'_>| {
        let hash = data.hash;
        Ok((row.get(0)?, StoredData { compression: row.get(2)?, hash, value: row.get(1)? }))
    };
    let Some((id, row)) = find.query_row(key, row).optional()? else { return Ok(None) };
    Ok(Some((id, big::joined(connection, row)?.value)))
}

/// Refuses data that no row holds.
pub(crate) fn check_length(place: &Place, oid: Oid, bytes: u64) -> Result<(), SqlError> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let path = place.path().to_owned();
    Err(SqlError::TooLarge { path, oid, bytes, bytes_max: VALUE_BYTES_MAX })
}

/// Adds the rows of `data` that a query gives.
pub(crate) fn free(
    connection: &Connection,
    find: &str,
    parameters: impl Params,
    freed: &mut FxHashSet<i64>,
) -> driver::Result<()> {
    let mut find = connection.prepare(find)?;
    for id in find.query_map(parameters, |row| row.get::<Option<i64>>(0))? {
        freed.extend(id?);
    }
    Ok(())
}

/// Deletes those of these rows that no record refers to, committed or voted, and that are not held;
/// the bytes that this frees.
pub(crate) fn prune(
    connection: &Connection,
    ids: &FxHashSet<i64>,
    is_held: impl Fn(i64) -> bool,
) -> driver::Result<u64> {
    let mut used = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM obj WHERE data_id = ?1) \
         OR EXISTS (SELECT 1 FROM tobj WHERE data_id = ?1)",
    )?;
    let mut length = connection.prepare_cached("SELECT LENGTH(value) FROM data WHERE id = ?1")?;
    let mut delete = connection.prepare_cached("DELETE FROM data WHERE id = ?1")?;
    let mut freed = 0;
    for id in ids.iter().filter(|id| !is_held(**id)) {
        if used.query_row([id], |row| row.get::<bool>(0))? {
            continue;
        }
        freed += match big::delete(connection, *id)? {
            Some(bytes) => bytes,
            None => {
                let bytes: Option<i64> = length.query_row([id], |row| row.get(0)).optional()?;
                bytes.unwrap_or(0).unsigned_abs()
            }
        };
        delete.execute([id])?;
    }
    Ok(freed)
}

/// Deletes the rows that NEO/py has noted to be deleted later, which it does on servers.
pub(crate) fn prune_deferred(connection: &Connection) -> driver::Result<()> {
    if matches!(connection, Connection::Sqlite(_)) {
        return Ok(());
    }
    let mut find = connection.prepare_cached("SELECT data_id FROM todel")?;
    let ids = find.query_map([], |row| row.get(0))?.collect::<driver::Result<FxHashSet<i64>>>()?;
    if ids.is_empty() {
        return Ok(());
    }
    in_transaction(
        connection,
        |error| error,
        || {
            prune(connection, &ids, |_| false)?;
            connection.execute("DELETE FROM todel", []).map(|_| ())
        },
    )
}
