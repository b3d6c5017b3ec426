//! Packs by partition: which revisions go, and the orders of NEO's clusters.
//!
//! A pack drops the revisions of an object before the last one at the pack time, and that one too
//! if it deletes the object. Rows of `trans` stay. Rows after the pack time never refer to rows of
//! `obj`, only to rows of `data`, so a chunk of objects can be packed on its own.

use rustc_hash::FxHashSet;
use zodium_types::{Oid, Tid};

use crate::driver::{self, Connection, Optional, params};
use crate::partitions::{id, number, split};

/// An object that a pack takes something of: all revisions before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packable {
    pub(crate) oid: Oid,
    pub(crate) end: Tid,
}

/// What a pack has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Revisions.
    pub(crate) records: u64,
    /// Objects that have no revision any more.
    pub(crate) objects: u64,
    /// Bytes of data.
    pub(crate) bytes: u64,
}

/// An approved order to pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The pack time.
    pub(crate) until: Tid,
    /// Only these objects.
    pub(crate) oids: Option<Vec<Oid>>,
}

/// The last revisions of objects, and how many each has. Columns beside MAX are those of its row.
const PACKABLE: &str = "SELECT oid, MAX(tid), data_id IS NULL, COUNT(*) FROM obj \
     WHERE partition = ?1 AND oid >= ?2 AND tid <= ?3 GROUP BY oid ORDER BY oid LIMIT ?4";
/// The same: in MariaDB, columns beside MAX are those of any row.
const PACKABLE_MARIA: &str = "SELECT obj.oid, obj.tid, data_id IS NULL, count FROM \
     (SELECT oid, MAX(tid) AS last, COUNT(*) AS count FROM obj FORCE INDEX (PRIMARY) \
      WHERE partition = ?1 AND oid >= ?2 AND tid <= ?3 GROUP BY oid ORDER BY oid LIMIT ?4) AS one \
     JOIN obj ON obj.partition = ?1 AND obj.oid = one.oid AND obj.tid = one.last ORDER BY obj.oid";

/// Looks at `count` objects of a partition from `from` on; also returns where to go on.
pub(crate) fn packable(
    connection: &Connection,
    partition: u32,
    from: Oid,
    until: Tid,
    count: u32,
) -> driver::Result<(Vec<Packable>, Option<Oid>)> {
    let mut find = connection.prepare_cached(connection.choose(PACKABLE, PACKABLE_MARIA))?;
    let mut rows = find.query(params![partition, number(from.0), number(until.0), count])?;
    let (mut found, mut seen, mut last) = (Vec::new(), 0, from);
    while let Some(row) = rows.next()? {
        let (oid, tid) = (Oid(id(row.get(0)?)), Tid(id(row.get(1)?)));
        let (is_deletion, revisions) = (row.get::<bool>(2)?, row.get::<i64>(3)?);
        if is_deletion {
            found.push(Packable { oid, end: tid.next() });
        } else if revisions > 1 {
            found.push(Packable { oid, end: tid });
        }
        (seen, last) = (seen + 1, oid);
    }
    Ok((found, (seen == count).then(|| Oid(last.0 + 1))))
}

/// Drops the revisions of an object before `end`, and adds the rows of `data` that they had.
pub(crate) fn drop_revisions(
    connection: &Connection,
    partition: u32,
    Packable { oid, end }: Packable,
    data: &mut FxHashSet<i64>,
) -> driver::Result<Dropped> {
    let key = params![partition, number(oid.0), number(end.0)];
    let find = "SELECT DISTINCT data_id FROM obj /*!FORCE INDEX (PRIMARY)*/ \
         WHERE partition = ?1 AND oid = ?2 AND tid < ?3 AND data_id IS NOT NULL";
    let mut find = connection.prepare_cached(find)?;
    for row in find.query_map(key, |row| row.get(0))? {
        data.insert(row?);
    }
    let delete = "DELETE FROM obj WHERE partition = ?1 AND oid = ?2 AND tid < ?3";
    let records = connection.prepare_cached(delete)?.execute(key)? as u64;
    let left = "SELECT 1 FROM obj /*!FORCE INDEX (PRIMARY)*/ \
         WHERE partition = ?1 AND oid = ?2 LIMIT 1";
    let left = connection
        .prepare_cached(left)?
        .query_row(params![partition, number(oid.0)], |_| Ok(()))
        .optional()?;
    let objects = u64::from(records > 0 && left.is_none());
    Ok(Dropped { records, objects, bytes: 0 })
}

/// The approved orders, done or not.
pub(crate) fn orders(connection: &Connection) -> driver::Result<Vec<Order>> {
    let find = "SELECT pack_tid, partial, oids FROM pack WHERE approved = 1";
    let mut find = connection.prepare_cached(find)?;
    let order = |row: &driver::Row<'_>| {
        let oids: Option<Vec<u8>> = row.get(2)?;
        let oids = oids.filter(|_| row.get(1).unwrap_or(false));
        let until: Option<i64> = row.get(0)?;
        Ok(Order { until: Tid(id(until.unwrap_or(0))), oids: oids.map(|oids| split(&oids)) })
    };
    find.query_map([], order)?.collect()
}

/// Notes an order to pack with the transaction `tid`.
pub(crate) fn note_order(connection: &Connection, tid: Tid, until: Tid) -> driver::Result<()> {
    let insert = "INSERT INTO pack (tid, approved, partial, oids, pack_tid) \
         VALUES (?1, 1, 0, NULL, ?2) ";
    let update = connection.choose(
        "ON CONFLICT (tid) DO UPDATE SET approved = 1, partial = 0, oids = NULL, \
         pack_tid = MAX(pack_tid, excluded.pack_tid)",
        "ON DUPLICATE KEY UPDATE approved = 1, partial = 0, oids = NULL, \
         pack_tid = GREATEST(pack_tid, VALUES(pack_tid))",
    );
    let insert = &[insert, update].concat();
    connection.prepare_cached(insert)?.execute([number(tid.0), number(until.0)]).map(|_| ())
}

/// Notes that a node has done an order in all of its partitions.
pub(crate) fn note_packed(connection: &Connection, node: i64, tid: Tid) -> driver::Result<()> {
    let set = "UPDATE pt SET pack = ?1 WHERE nid = ?2";
    connection.prepare_cached(set)?.execute([number(tid.0), node]).map(|_| ())
}
