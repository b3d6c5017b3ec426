//! Rows that come from another node, or go because it lacks them.

use rustc_hash::FxHashSet;
use zodium_neo_storage::TransactionRecord;
use zodium_types::{Oid, Tid};

use super::rows::insert_pack;
use crate::driver::{self, Connection, params};
use crate::insertion;
use crate::partitions::number;
use crate::revisions;

/// Writes a transaction, in place of one that is there.
pub(super) fn add_transaction(
    connection: &Connection,
    partition: u32,
    transaction: &TransactionRecord,
) -> driver::Result<()> {
    let TransactionRecord { tid, ttid, oids, metadata, is_packed, pack } = transaction;
    delete_transaction(connection, partition, *tid)?;
    let oids = oids.iter().copied();
    insertion::transaction(connection, partition, (*tid, *ttid), oids, metadata, *is_packed)?;
    match pack {
        Some(pack) => insert_pack(connection, *tid, pack),
        None => Ok(()),
    }
}

/// Deletes a transaction without its records.
pub(super) fn delete_transaction(
    connection: &Connection,
    partition: u32,
    tid: Tid,
) -> driver::Result<()> {
    connection.prepare_cached("DELETE FROM pack WHERE tid = ?1")?.execute([number(tid.0)])?;
    let delete = "DELETE FROM trans WHERE partition = ?1 AND tid = ?2";
    connection.prepare_cached(delete)?.execute(params![partition, number(tid.0)]).map(|_| ())
}

/// Deletes a record; its data are freed.
pub(super) fn delete_record(
    connection: &Connection,
    (partition, oid): (u32, Oid),
    tid: Tid,
    freed: &mut FxHashSet<i64>,
) -> driver::Result<()> {
    freed.extend(revisions::data_id(connection, partition, oid, tid)?.flatten());
    let delete = "DELETE FROM obj WHERE partition = ?1 AND oid = ?2 AND tid = ?3";
    let key = params![partition, number(oid.0), number(tid.0)];
    connection.prepare_cached(delete)?.execute(key).map(|_| ())
}
