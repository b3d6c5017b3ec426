//! Queries that only a node needs: history, undo, lists for replication.

use zodium_neo::messages::HistoryRecord;
use zodium_neo::{NodeId, Partition};
use zodium_neo_storage::{PackRow, Undone};
use zodium_types::{Oid, Tid};

use super::rows;
use crate::driver::{self, Connection, Optional, params};
use crate::partitions::number;

/// The order to pack of a transaction.
pub(super) fn pack_order(connection: &Connection, tid: Tid) -> driver::Result<Option<PackRow>> {
    let find = "SELECT tid, approved, partial, oids, pack_tid FROM pack WHERE tid = ?1";
    let mut find = connection.prepare_cached(find)?;
    find.query_row([number(tid.0)], rows::pack_row).optional()
}

/// The last pack that was carried out in a cell of a node.
pub(super) fn packed(
    connection: &Connection,
    node: NodeId,
    partition: Partition,
) -> driver::Result<Tid> {
    let find = "SELECT pack FROM pt WHERE partition = ?1 AND nid = ?2";
    let mut find = connection.prepare_cached(find)?;
    let key = params![partition.0, node.value()];
    let found = find.query_row(key, |row| rows::tid_or_null(row, 0)).optional()?;
    Ok(found.flatten().unwrap_or(Tid::ZERO))
}

/// Serials and lengths of records.
const HISTORY: &str = "SELECT obj.tid, LENGTH(data.value) \
     FROM obj LEFT JOIN data ON data.id = data_id \
     WHERE partition = ?1 AND oid = ?2 ORDER BY obj.tid DESC LIMIT ?4 OFFSET ?3";
/// The same, with the length of data in table `bigdata`.
const HISTORY_MARIA: &str = "SELECT obj.tid, IF(compression < 128, LENGTH(data.value), \
     CAST(CONV(HEX(SUBSTR(data.value, 5, 4)), 16, 10) AS SIGNED)) \
     FROM obj FORCE INDEX (PRIMARY) LEFT JOIN data ON data.id = data_id \
     WHERE partition = ?1 AND oid = ?2 ORDER BY obj.tid DESC LIMIT ?4 OFFSET ?3";

/// Serials and lengths of the records of an object, newest first.
pub(super) fn history(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    (skip, count): (u64, u64),
) -> driver::Result<Vec<HistoryRecord>> {
    let mut find = connection.prepare_cached(connection.choose(HISTORY, HISTORY_MARIA))?;
    let key = params![partition, number(oid.0), number(skip), number(count)];
    let record = |row: &driver::Row<'_>| {
        let size: Option<i64> = row.get(1)?;
        Ok(HistoryRecord { serial: rows::tid(row, 0)?, size: size.unwrap_or(0).unsigned_abs() })
    };
    find.query_map(key, record)?.collect()
}

/// What an undo of a record needs.
///
/// Records with the same data form a chain by age. The answer names the newest member of a chain:
/// a pack drops the oldest ones.
pub(super) fn undone(
    connection: &Connection,
    (partition, oid): (u32, Oid),
    end: Tid,
    undone: Tid,
    own: Option<Tid>,
) -> driver::Result<Undone> {
    let find = "SELECT tid FROM obj /*!FORCE INDEX (PRIMARY)*/ \
         WHERE partition = ?1 AND oid = ?2 AND tid <= ?3 \
         ORDER BY tid DESC LIMIT 2";
    let mut find = connection.prepare_cached(find)?;
    let before = rows::tids(&mut find, params![partition, number(oid.0), number(undone.0)])?;
    if before.first() != Some(&undone) {
        return Ok(Undone::Nothing);
    }
    let later = later(connection, partition, oid, undone)?;
    let is_visible = |tid: &Tid| end == Tid::ZERO || *tid < end;
    let newest = later.iter().rev().map(|(tid, _)| *tid).chain([undone]).find(is_visible);
    let Some(current) = own.or(newest) else { return Ok(Undone::Invisible) };
    let (mut undo, mut same, mut is_current) = (before.get(1).copied(), undone, current == undone);
    for (tid, value) in later {
        if value.is_some() && value == undo {
            undo = Some(tid);
        } else if value == Some(same) {
            match tid == current {
                true => is_current = true,
                false => same = tid,
            }
        }
    }
    Ok(Undone::Serials { current, undo, is_current })
}

/// The records after a transaction, with the record that each says it is the same as.
fn later(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    after: Tid,
) -> driver::Result<Vec<(Tid, Option<Tid>)>> {
    let find = "SELECT tid, value_tid FROM obj /*!FORCE INDEX (PRIMARY)*/ \
         WHERE partition = ?1 AND oid = ?2 AND tid > ?3 \
         ORDER BY tid";
    let mut find = connection.prepare_cached(find)?;
    let pair = |row: &driver::Row<'_>| Ok((rows::tid(row, 0)?, rows::tid_or_null(row, 1)?));
    find.query_map(params![partition, number(oid.0), number(after.0)], pair)?.collect()
}

/// Objects, and whether each lives. Columns beside MAX are those of its row.
const OIDS: &str = "SELECT oid, MAX(tid), data_id IS NOT NULL FROM obj \
     WHERE partition = ?1 AND oid >= ?2 AND tid <= ?3 GROUP BY oid ORDER BY oid LIMIT ?4";
/// The same: in MariaDB, columns beside MAX are those of any row.
const OIDS_MARIA: &str = "SELECT obj.oid, obj.tid, data_id IS NOT NULL FROM \
     (SELECT oid, MAX(tid) AS last FROM obj FORCE INDEX (PRIMARY) \
      WHERE partition = ?1 AND oid >= ?2 AND tid <= ?3 GROUP BY oid ORDER BY oid LIMIT ?4) AS one \
     JOIN obj ON obj.partition = ?1 AND obj.oid = one.oid AND obj.tid = one.last ORDER BY obj.oid";

/// Objects that have a record at a tid, and whether they live.
pub(super) fn oids(
    connection: &Connection,
    partition: u32,
    from: Oid,
    tid: Tid,
    count: u32,
) -> driver::Result<Vec<(Oid, bool)>> {
    let mut find = connection.prepare_cached(connection.choose(OIDS, OIDS_MARIA))?;
    let key = params![partition, number(from.0), number(tid.0), count];
    find.query_map(key, |row| Ok((rows::oid(row, 0)?, row.get(2)?)))?.collect()
}

/// Serials and oids of records by age, from an object of the first serial on.
pub(super) fn records(
    connection: &Connection,
    partition: u32,
    (min, max): (Tid, Tid),
    from: Oid,
    count: u32,
) -> driver::Result<Vec<(Tid, Oid)>> {
    let find = connection.choose(
        "SELECT tid, oid FROM obj \
         WHERE partition = ?1 AND tid <= ?3 AND (tid, oid) >= (?2, ?4) \
         ORDER BY tid, oid LIMIT ?5",
        // Its optimizer does not see a range in a comparison of pairs.
        "SELECT tid, oid FROM obj FORCE INDEX (tid) \
         WHERE partition = ?1 AND tid <= ?3 AND (tid = ?2 AND oid >= ?4 OR tid > ?2) \
         ORDER BY tid, oid LIMIT ?5",
    );
    let mut find = connection.prepare_cached(find)?;
    let key = params![partition, number(min.0), number(max.0), number(from.0), count];
    find.query_map(key, |row| Ok((rows::tid(row, 0)?, rows::oid(row, 1)?)))?.collect()
}
