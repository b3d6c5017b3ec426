//! Writes rows of tables `trans` and `obj` at once, without a vote: commits of a whole database,
//! and what a NEO node replicates.

use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::driver::{self, Connection, params};
use crate::partitions::{joined, number};

/// Writes a transaction without its records.
pub(crate) fn transaction(
    connection: &Connection,
    partition: u32,
    (tid, ttid): (Tid, Tid),
    oids: impl Iterator<Item = Oid>,
    metadata: &TransactionMetadata,
    is_packed: bool,
) -> driver::Result<()> {
    let insert = "INSERT INTO trans (partition, tid, packed, oids, user, description, ext, ttid) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let TransactionMetadata { user, description, extension } = metadata;
    let row = params![
        partition,
        number(tid.0),
        is_packed,
        joined(oids),
        user,
        description,
        extension,
        number(ttid.0)
    ];
    connection.prepare_cached(insert)?.execute(row).map(|_| ())
}

/// Writes a record.
pub(crate) fn record(
    connection: &Connection,
    partition: u32,
    oid: Oid,
    tid: Tid,
    data_id: Option<i64>,
    value_tid: Option<Tid>,
) -> driver::Result<()> {
    let insert = "INSERT INTO obj (partition, oid, tid, data_id, value_tid) \
         VALUES (?1, ?2, ?3, ?4, ?5)";
    let value_tid = value_tid.map(|tid| number(tid.0));
    let row = params![partition, number(oid.0), number(tid.0), data_id, value_tid];
    connection.prepare_cached(insert)?.execute(row).map(|_| ())
}

/// Whether an object has a record.
pub(crate) fn is_known(connection: &Connection, partition: u32, oid: Oid) -> driver::Result<bool> {
    let find = "SELECT EXISTS (SELECT 1 FROM obj /*!FORCE INDEX (PRIMARY)*/ \
         WHERE partition = ?1 AND oid = ?2)";
    let found = connection.prepare_cached(find)?;
    let mut found = found;
    found.query_row(params![partition, number(oid.0)], |row| row.get(0))
}
