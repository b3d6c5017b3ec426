//! Rows of table `trans`: committed transactions.

use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::driver::{self, Connection, Optional, params};
use crate::partitions::{id, number, split};

/// A transaction without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRow {
    /// Its tid.
    pub tid: Tid,
    /// The tid that it had before it was locked.
    pub ttid: Tid,
    /// Its objects, in the order of their arrival, packed ones included.
    pub oids: Vec<Oid>,
    /// User, description, extension.
    pub metadata: TransactionMetadata,
    /// It came packed from elsewhere.
    pub is_packed: bool,
}

/// A transaction; `None` when there is none of that tid.
pub(crate) fn read(
    connection: &Connection,
    partition: u32,
    tid: Tid,
) -> driver::Result<Option<TransactionRow>> {
    let find = "SELECT oids, user, description, ext, packed, ttid FROM trans \
         WHERE partition = ?1 AND tid = ?2";
    let row = |row: &driver::Row<'_>| {
        let (user, description, extension) = (row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(TransactionRow {
            tid,
            ttid: Tid(id(row.get(5)?)),
            oids: split(row.bytes(0)?),
            metadata: TransactionMetadata { user, description, extension },
            is_packed: row.get(4)?,
        })
    };
    connection.prepare_cached(find)?.query_row(params![partition, number(tid.0)], row).optional()
}

/// At most `count` tids of a partition from `first` to `last`; oldest first, or newest first.
pub(crate) fn tids(
    connection: &Connection,
    partition: u32,
    (first, last): (Tid, Tid),
    is_backwards: bool,
    count: usize,
) -> driver::Result<Vec<Tid>> {
    let order = if is_backwards { "DESC" } else { "ASC" };
    let find = format!(
        "SELECT tid FROM trans \
         WHERE partition = ?1 AND tid >= ?2 AND tid <= ?3 ORDER BY tid {order} LIMIT ?4"
    );
    // A range that begins beyond the largest number is empty.
    let Ok(first) = i64::try_from(first.0) else { return Ok(Vec::new()) };
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let mut find = connection.prepare_cached(&find)?;
    let found =
        find.query_map(params![partition, first, number(last.0), count], |row| row.get(0))?;
    found.map(|tid| tid.map(|tid| Tid(id(tid)))).collect()
}

/// The last transaction of a partition.
pub(crate) fn last_tid(connection: &Connection, partition: u32) -> driver::Result<Option<Tid>> {
    let find = "SELECT MAX(tid) FROM trans WHERE partition = ?1";
    let found: Option<i64> =
        connection.prepare_cached(find)?.query_row([partition], |row| row.get(0))?;
    Ok(found.map(|tid| Tid(id(tid))))
}

/// The tid with which a transaction was committed; `None` when it was not.
pub(crate) fn final_tid(
    connection: &Connection,
    partition: u32,
    ttid: Tid,
) -> driver::Result<Option<Tid>> {
    let find = "SELECT tid FROM trans \
         WHERE partition = ?1 AND tid >= ?2 AND ttid = ?2 LIMIT 1";
    let found: Option<i64> = connection
        .prepare_cached(find)?
        .query_row(params![partition, number(ttid.0)], |row| row.get(0))
        .optional()?;
    Ok(found.map(|tid| Tid(id(tid))))
}
