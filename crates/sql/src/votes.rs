//! Voted transactions, in tables `ttrans` and `tobj`, until they are unlocked or aborted.
//!
//! A vote is durable: after a crash the master asks which transactions were voted, and which were
//! locked. A locked one has its final tid, and may have been announced to a client.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::driver::{self, Connection, params};
use crate::partitions::{Partitions, id, joined, number};

/// A record of a voted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VotedRecord {
    /// The object.
    pub oid: Oid,
    /// The row with its data; `None` deletes the object.
    pub data_id: Option<i64>,
    /// The transaction whose record it is the same as, for an undo.
    pub value_tid: Option<Tid>,
}

/// Writes the records of a voted transaction.
pub(crate) fn records(
    connection: &Connection,
    partitions: Partitions,
    ttid: Tid,
    records: &[VotedRecord],
) -> driver::Result<()> {
    let insert = "INSERT INTO tobj (partition, oid, tid, data_id, value_tid) \
         VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = connection.prepare_cached(insert)?;
    for VotedRecord { oid, data_id, value_tid } in records {
        let value_tid = value_tid.map(|tid| number(tid.0));
        let partition = partitions.of_oid(*oid);
        insert.execute(params![partition, number(oid.0), number(ttid.0), data_id, value_tid])?;
    }
    Ok(())
}

/// Writes the metadata of a voted transaction, where they are kept.
pub(crate) fn metadata(
    connection: &Connection,
    partitions: Partitions,
    ttid: Tid,
    oids: &[Oid],
    metadata: &TransactionMetadata,
) -> driver::Result<()> {
    let insert = "INSERT INTO ttrans \
         (partition, tid, packed, oids, user, description, ext, ttid) \
         VALUES (?1, NULL, 0, ?2, ?3, ?4, ?5, ?6)";
    let TransactionMetadata { user, description, extension } = metadata;
    let oids = joined(oids.iter().copied());
    let row = params![partitions.of_tid(ttid), oids, user, description, extension, number(ttid.0)];
    connection.prepare_cached(insert)?.execute(row).map(|_| ())
}

/// Gives a voted transaction its final tid.
pub(crate) fn lock(connection: &Connection, ttid: Tid, tid: Tid) -> driver::Result<()> {
    let set = "UPDATE ttrans SET tid = ?2 WHERE ttid = ?1";
    connection.prepare_cached(set)?.execute([number(ttid.0), number(tid.0)]).map(|_| ())
}

/// Commits a locked transaction.
pub(crate) fn unlock(connection: &Connection, ttid: Tid, tid: Tid) -> driver::Result<()> {
    let (ttid, tid) = (number(ttid.0), number(tid.0));
    let moved = "INSERT INTO trans (partition, tid, packed, oids, user, description, ext, ttid) \
         SELECT partition, ?2, packed, oids, user, description, ext, ttid \
         FROM ttrans WHERE ttid = ?1";
    if connection.prepare_cached(moved)?.execute([ttid, tid])? > 0 {
        connection
            .prepare_cached("UPDATE pack SET tid = ?2 WHERE tid = ?1")?
            .execute([ttid, tid])?;
        connection.prepare_cached("DELETE FROM ttrans WHERE ttid = ?1")?.execute([ttid])?;
    }
    let moved = "INSERT INTO obj (partition, oid, tid, data_id, value_tid) \
         SELECT partition, oid, ?2, data_id, value_tid FROM tobj WHERE tid = ?1";
    if connection.prepare_cached(moved)?.execute([ttid, tid])? > 0 {
        connection.prepare_cached("DELETE FROM tobj WHERE tid = ?1")?.execute([ttid])?;
    }
    Ok(())
}

/// Gives up a voted transaction; the rows of `data` that its records referred to.
pub(crate) fn abort(connection: &Connection, ttid: Tid) -> driver::Result<FxHashSet<i64>> {
    let ttid = number(ttid.0);
    let find = "SELECT data_id FROM tobj WHERE tid = ?1 AND data_id IS NOT NULL";
    let mut find = connection.prepare_cached(find)?;
    let data = find.query_map([ttid], |row| row.get(0))?.collect::<driver::Result<_>>()?;
    connection.prepare_cached("DELETE FROM tobj WHERE tid = ?1")?.execute([ttid])?;
    connection.prepare_cached("DELETE FROM pack WHERE tid = ?1")?.execute([ttid])?;
    connection.prepare_cached("DELETE FROM ttrans WHERE ttid = ?1")?.execute([ttid])?;
    Ok(data)
}

/// The voted transactions, with the final tid of those that are locked here.
pub(crate) fn unfinished(connection: &Connection) -> driver::Result<BTreeMap<Tid, Option<Tid>>> {
    let mut found = BTreeMap::new();
    let mut objects = connection.prepare_cached("SELECT DISTINCT tid FROM tobj")?;
    for ttid in objects.query_map([], |row| row.get(0))? {
        found.insert(Tid(id(ttid?)), None);
    }
    let mut locked = connection.prepare_cached("SELECT ttid, tid FROM ttrans")?;
    let pair = |row: &driver::Row<'_>| Ok((row.get(0)?, row.get::<Option<i64>>(1)?));
    for pair in locked.query_map([], pair)? {
        let (ttid, tid) = pair?;
        found.insert(Tid(id(ttid)), tid.map(|tid| Tid(id(tid))));
    }
    Ok(found)
}
