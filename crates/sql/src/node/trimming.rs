//! Deletes what is not needed any more: packs, dropped partitions, votes, orphans.
//!
//! Each function adds the rows of `data` that records referred to. They go at the end of the
//! change, unless another record refers to them.

use rustc_hash::FxHashSet;
use zodium_neo::Partition;
use zodium_neo_storage::PackObjects;
use zodium_types::{Oid, Tid};

use super::rows::in_partitions;
use crate::data::free;
use crate::driver::{self, Connection, params};
use crate::packing::{self, Packable};

/// Drops voted transactions, or their parts in some partitions.
pub(super) fn drop_unfinished(
    connection: &Connection,
    partitions: Option<&[Partition]>,
    freed: &mut FxHashSet<i64>,
) -> driver::Result<()> {
    let which = in_partitions(partitions);
    free(connection, &format!("SELECT data_id FROM tobj{which}"), [], freed)?;
    connection.execute(&format!("DELETE FROM tobj{which}"), [])?;
    let orders = format!("DELETE FROM pack WHERE tid IN (SELECT ttid FROM ttrans{which})");
    connection.execute(&orders, [])?;
    connection.execute(&format!("DELETE FROM ttrans{which}"), []).map(|_| ())
}

/// Packs some objects; where to go on.
pub(super) fn pack(
    connection: &Connection,
    partition: u32,
    until: Tid,
    objects: PackObjects<'_>,
    freed: &mut FxHashSet<i64>,
) -> driver::Result<Option<Oid>> {
    let (found, next) = match objects {
        PackObjects::From(from, count) => {
            packing::packable(connection, partition, from, until, count)?
        }
        PackObjects::These(oids) => (packable(connection, partition, until, oids)?, None),
    };
    for object in found {
        packing::drop_revisions(connection, partition, object, freed)?;
    }
    Ok(next)
}

/// Those of these objects that a pack takes something of.
fn packable(
    connection: &Connection,
    partition: u32,
    until: Tid,
    oids: &[Oid],
) -> driver::Result<Vec<Packable>> {
    let mut found = Vec::new();
    for oid in oids {
        let (objects, _) = packing::packable(connection, partition, *oid, until, 1)?;
        // The first object from there on may be another one.
        found.extend(objects.into_iter().filter(|object| object.oid == *oid));
    }
    Ok(found)
}

/// Deletes about so many rows of a partition; whether some are left.
pub(super) fn drop_partition(
    connection: &Connection,
    partition: u32,
    count: u32,
    freed: &mut FxHashSet<i64>,
) -> driver::Result<bool> {
    let key = params![partition, count];
    let rows = connection.choose(
        " FROM obj WHERE partition = ?1 AND (tid, oid) IN \
         (SELECT tid, oid FROM obj WHERE partition = ?1 ORDER BY tid, oid LIMIT ?2)",
        " FROM obj WHERE partition = ?1 ORDER BY tid, oid LIMIT ?2",
    );
    free(connection, &format!("SELECT data_id{rows}"), key, freed)?;
    if connection.execute(&format!("DELETE{rows}"), key)? > 0 {
        return Ok(true);
    }
    let orders = "DELETE FROM pack WHERE tid IN (SELECT tid FROM trans WHERE partition = ?1)";
    connection.execute(orders, [partition])?;
    connection.execute("DELETE FROM trans WHERE partition = ?1", [partition])?;
    Ok(false)
}

/// Rows of `data` that no record refers to.
pub(super) fn orphans(connection: &Connection) -> driver::Result<FxHashSet<i64>> {
    let mut found = FxHashSet::default();
    let find = "SELECT id FROM data WHERE NOT EXISTS (SELECT 1 FROM obj WHERE data_id = data.id) \
         AND id NOT IN (SELECT data_id FROM tobj WHERE data_id IS NOT NULL)";
    free(connection, find, [], &mut found)?;
    Ok(found)
}
