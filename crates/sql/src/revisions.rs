//! Rows of table `obj` with their data: the revisions of objects.

use zodium_types::{Oid, Tid};

use crate::driver::{self, Connection, Optional, Row, params};
use crate::partitions::{id, number};
use crate::{StoredData, big};

/// A revision of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionRow {
    /// The transaction that wrote it.
    pub serial: Tid,
    /// The transaction that wrote the next one; `None` when this one is current.
    pub next: Option<Tid>,
    /// The data; `None` for a deletion.
    pub data: Option<StoredData>,
    /// The transaction whose record this one is the same as: it is an undo.
    pub value_tid: Option<Tid>,
}

/// A query for the [`RevisionRow`]s of an object, with the condition on its tid.
macro_rules! find_revisions {
    (next: $next:literal, $rest:literal) => {
        concat!(
            "SELECT obj.tid, ",
            $next,
            ", data.hash, data.compression, data.value, obj.value_tid, obj.data_id \
             FROM obj /*!FORCE INDEX (PRIMARY)*/ LEFT JOIN data ON data.id = obj.data_id \
             WHERE obj.partition = ?1 AND obj.oid = ?2 ",
            $rest
        )
    };
    ($rest:literal) => {
        find_revisions!(
            next: "(SELECT MIN(later.tid) FROM obj AS later /*!FORCE INDEX (PRIMARY)*/ \
         WHERE later.partition = obj.partition \
                   AND later.oid = obj.oid AND later.tid > obj.tid)",
            $rest
        )
    };
}

/// The two newest revisions.
const NEWEST: &str = find_revisions!(next: "NULL", "ORDER BY obj.tid DESC LIMIT 2");
const BEFORE: &str = find_revisions!("AND obj.tid < ?3 ORDER BY obj.tid DESC LIMIT 1");
const AT: &str = find_revisions!("AND obj.tid = ?3");
const AT_ALONE: &str = find_revisions!(next: "NULL", "AND obj.tid = ?3");

fn revision(row: &Row<'_>) -> driver::Result<RevisionRow> {
    let data = match row.get::<Option<i64>>(6)? {
        Some(_) => Some(StoredData {
            // A row whose data are gone is an error of the type of a column.
            hash: row.get(2)?,
            compression: row.get(3)?,
            value: row.get(4)?,
        }),
        None => None,
    };
    Ok(RevisionRow {
        serial: tid(row.get(0)?),
        next: row.get::<Option<i64>>(1)?.map(tid),
        data,
        value_tid: row.get::<Option<i64>>(5)?.map(tid),
    })
}

/// Finds a row, and fetches the data where they are in pieces. Row and pieces are of one moment:
/// a pack may delete them between two statements.
fn whole(
    connection: &Connection,
    find: impl Fn() -> driver::Result<Option<RevisionRow>>,
) -> driver::Result<Option<RevisionRow>> {
    let found = find()?;
    let is_split = |row: &RevisionRow| row.data.as_ref().is_some_and(big::is_split);
    if !found.as_ref().is_some_and(is_split) {
        return Ok(found);
    }
    connection.at_once(|| {
        let Some(row) = find()? else { return Ok(None) };
        let data = row.data.map(|data| big::joined(connection, data)).transpose()?;
        Ok(Some(RevisionRow { data, ..row }))
    })
}

fn tid(value: i64) -> Tid {
    Tid(id(value))
}

/// The latest revision of an object before a tid.
pub(crate) fn before(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    before: Tid,
) -> driver::Result<Option<RevisionRow>> {
    whole(connection, || row_before(connection, partition, oid, before))
}

fn row_before(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    before: Tid,
) -> driver::Result<Option<RevisionRow>> {
    // Nearly always it is one of the two newest ones. They say which one is the next.
    let mut newest = connection.prepare_cached(NEWEST)?;
    let mut rows = newest.query(params![partition, number(oid.0)])?;
    let mut next = None;
    while let Some(row) = rows.next()? {
        let serial = tid(row.get(0)?);
        if serial < before {
            return Ok(Some(RevisionRow { next, ..revision(&row)? }));
        }
        next = Some(serial);
    }
    drop(rows);
    let key = params![partition, number(oid.0), number(before.0)];
    connection.prepare_cached(BEFORE)?.query_row(key, revision).optional()
}

/// The revision that a transaction wrote.
pub(crate) fn at(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    serial: Tid,
) -> driver::Result<Option<RevisionRow>> {
    let key = params![partition, number(oid.0), number(serial.0)];
    whole(connection, || connection.prepare_cached(AT)?.query_row(key, revision).optional())
}

/// As [`at`], without the next revision.
pub(crate) fn at_alone(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    serial: Tid,
) -> driver::Result<Option<RevisionRow>> {
    let key = params![partition, number(oid.0), number(serial.0)];
    whole(connection, || connection.prepare_cached(AT_ALONE)?.query_row(key, revision).optional())
}

/// The serial of the current revision, deletions included.
pub(crate) fn current_serial(
    connection: &Connection,
    partition: u32,
    oid: Oid,
) -> driver::Result<Option<Tid>> {
    let find = "SELECT MAX(tid) FROM obj /*!FORCE INDEX (PRIMARY)*/ \
         WHERE partition = ?1 AND oid = ?2";
    let found: Option<i64> = connection
        .prepare_cached(find)?
        .query_row(params![partition, number(oid.0)], |row| row.get(0))?;
    Ok(found.map(tid))
}

/// The serial of the revision before a transaction's.
pub(crate) fn previous_serial(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    serial: Tid,
) -> driver::Result<Option<Tid>> {
    let find = "SELECT MAX(tid) FROM obj /*!FORCE INDEX (PRIMARY)*/ \
         WHERE partition = ?1 AND oid = ?2 AND tid < ?3";
    let found: Option<i64> = connection
        .prepare_cached(find)?
        .query_row(params![partition, number(oid.0), number(serial.0)], |row| row.get(0))?;
    Ok(found.map(tid))
}

/// The row of `data` that a transaction's record refers to; `Some(None)` for a deletion.
pub(crate) fn data_id(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    serial: Tid,
) -> driver::Result<Option<Option<i64>>> {
    let find = "SELECT data_id FROM obj /*!FORCE INDEX (PRIMARY)*/ \
         WHERE partition = ?1 AND oid = ?2 AND tid = ?3";
    let key = params![partition, number(oid.0), number(serial.0)];
    connection.prepare_cached(find)?.query_row(key, |row| row.get(0)).optional()
}

/// The transaction whose record this one says it is the same as.
pub(crate) fn value_tid(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    serial: Tid,
) -> driver::Result<Option<Option<Tid>>> {
    let find = "SELECT value_tid FROM obj /*!FORCE INDEX (PRIMARY)*/ \
         WHERE partition = ?1 AND oid = ?2 AND tid = ?3";
    let key = params![partition, number(oid.0), number(serial.0)];
    let found: Option<Option<i64>> =
        connection.prepare_cached(find)?.query_row(key, |row| row.get(0)).optional()?;
    Ok(found.map(|value| value.map(tid)))
}

/// The last of the records that are the same as a transaction's record, each as the one before.
///
/// NEO keeps them in one chain by age, so that a pack, which drops the oldest ones, breaks no link
/// between those that stay.
pub(crate) fn last_same(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    serial: Tid,
) -> driver::Result<Tid> {
    let find = "SELECT tid, value_tid FROM obj /*!FORCE INDEX (PRIMARY)*/ \
         WHERE partition = ?1 AND oid = ?2 AND tid > ?3 AND value_tid IS NOT NULL ORDER BY tid";
    let mut find = connection.prepare_cached(find)?;
    let mut rows = find.query(params![partition, number(oid.0), number(serial.0)])?;
    let mut last = serial;
    while let Some(row) = rows.next()? {
        if tid(row.get(1)?) == last {
            last = tid(row.get(0)?);
        }
    }
    Ok(last)
}

/// The tids of the newest revisions of an object, newest first.
pub(crate) fn serials(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    count: usize,
) -> driver::Result<Vec<Tid>> {
    let find = "SELECT tid FROM obj /*!FORCE INDEX (PRIMARY)*/ \
         WHERE partition = ?1 AND oid = ?2 ORDER BY tid DESC LIMIT ?3";
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let mut find = connection.prepare_cached(find)?;
    let found = find.query_map(params![partition, number(oid.0), count], |row| row.get(0))?;
    found.map(|serial| serial.map(tid)).collect()
}

/// The first object of a partition at or after `from`.
pub(crate) fn first_oid(
    connection: &Connection,
    partition: u32,
    from: Oid,
) -> driver::Result<Option<Oid>> {
    let Ok(from) = i64::try_from(from.0) else { return Ok(None) };
    let find = "SELECT MIN(oid) FROM obj WHERE partition = ?1 AND oid >= ?2";
    let found: Option<i64> =
        connection.prepare_cached(find)?.query_row(params![partition, from], |row| row.get(0))?;
    Ok(found.map(|oid| Oid(id(oid))))
}

/// The largest oid of a partition.
pub(crate) fn last_oid(connection: &Connection, partition: u32) -> driver::Result<Option<Oid>> {
    let find = "SELECT MAX(oid) FROM obj WHERE partition = ?1";
    let found: Option<i64> =
        connection.prepare_cached(find)?.query_row([partition], |row| row.get(0))?;
    Ok(found.map(|oid| Oid(id(oid))))
}

/// The last transaction that wrote an object of a partition.
pub(crate) fn last_tid(connection: &Connection, partition: u32) -> driver::Result<Option<Tid>> {
    let find = "SELECT MAX(tid) FROM obj WHERE partition = ?1";
    let found: Option<i64> =
        connection.prepare_cached(find)?.query_row([partition], |row| row.get(0))?;
    Ok(found.map(tid))
}

/// The number of objects of a partition. Reads an index from end to end.
pub(crate) fn object_count(connection: &Connection, partition: u32) -> driver::Result<u64> {
    let count = "SELECT COUNT(DISTINCT oid) FROM obj WHERE partition = ?1";
    let found: i64 = connection.prepare_cached(count)?.query_row([partition], |row| row.get(0))?;
    Ok(id(found))
}
