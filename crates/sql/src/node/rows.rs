//! Helpers for rows: tids and oids as SQLite's signed integers.

use zodium_neo::Partition;
use zodium_neo_storage::PackRow;
use zodium_types::{Oid, Tid};

use crate::driver::{self, Connection, Params, Row, Statement, params};
use crate::partitions::{id, joined, number, split};

/// A column with a tid.
pub(super) fn tid(row: &Row<'_>, column: usize) -> driver::Result<Tid> {
    Ok(Tid(id(row.get(column)?)))
}

/// A column with a tid, or NULL.
pub(super) fn tid_or_null(row: &Row<'_>, column: usize) -> driver::Result<Option<Tid>> {
    Ok(row.get::<Option<i64>>(column)?.map(|number| Tid(id(number))))
}

/// A column with an oid.
pub(super) fn oid(row: &Row<'_>, column: usize) -> driver::Result<Oid> {
    Ok(Oid(id(row.get(column)?)))
}

/// The tids of a query's first column.
pub(super) fn tids(
    statement: &mut Statement<'_>,
    parameters: impl Params,
) -> driver::Result<Vec<Tid>> {
    statement.query_map(parameters, |row| tid(row, 0))?.collect()
}

/// An order to pack: columns tid, approved, partial, oids and pack_tid.
pub(super) fn pack_row(row: &Row<'_>) -> driver::Result<PackRow> {
    let is_partial: bool = row.get(2)?;
    let oids: Option<Vec<u8>> = row.get(3)?;
    Ok(PackRow {
        id: tid(row, 0)?,
        approved: row.get(1)?,
        oids: is_partial.then(|| split(&oids.unwrap_or_default())),
        until: tid_or_null(row, 4)?.unwrap_or(Tid::ZERO),
    })
}

/// Numbers as a list in SQL.
pub(super) fn list(numbers: impl Iterator<Item = u32>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

/// Writes an order to pack.
pub(super) fn insert_pack(connection: &Connection, id: Tid, pack: &PackRow) -> driver::Result<()> {
    let insert = "REPLACE INTO pack (tid, approved, partial, oids, pack_tid) \
         VALUES (?1, ?2, ?3, ?4, ?5)";
    let oids = pack.oids.as_ref().map(|oids| joined(oids.iter().copied()));
    let row = params![number(id.0), pack.approved, oids.is_some(), oids, number(pack.until.0)];
    connection.prepare_cached(insert)?.execute(row).map(|_| ())
}

/// The partitions of a condition in SQL; empty for all.
pub(super) fn in_partitions(partitions: Option<&[Partition]>) -> String {
    let Some(partitions) = partitions else { return String::new() };
    format!(" WHERE partition IN ({})", list(partitions.iter().map(|one| one.0)))
}
