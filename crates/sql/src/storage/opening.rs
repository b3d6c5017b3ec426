//! Opens a storage, and reads what is kept in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

use zodium_storage::Freshness;
use zodium_types::{Oid, Tid};

use super::room::Room;
use super::{SqlOptions, SqlStorage, Views};
use crate::driver::{self, Connection};
use crate::obstacle::obstacle;
use crate::partitions::{Partitions, id};
use crate::{Database, OpenDatabase, SqlError, revisions, transactions};

/// What is kept in memory, of a database.
struct Totals {
    last_tid: Tid,
    last_oid: Oid,
    objects: u64,
    bytes: u64,
}

impl SqlStorage {
    /// Opens a database as a storage. Reads an index from end to end, to count the objects.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open(options: &SqlOptions) -> Result<SqlStorage, SqlError> {
        let SqlOptions { location, create, cluster, read_only, .. } = options;
        let SqlOptions { new_oids_gap, quota_bytes, compress, .. } = options;
        let (create, cluster) = (create.as_ref(), cluster.as_deref());
        let open = OpenDatabase { location, create, cluster, read_only: *read_only };
        let database = Arc::new(Database::open(&open)?);
        let partitions = database.partitions();
        let read = |connection: &Connection| totals(connection, partitions);
        let totals = database.pool.with("count the objects", read)?;
        let last_oid = totals.last_oid.0.saturating_add(*new_oids_gap).min(i64::MAX as u64);
        Ok(SqlStorage {
            database,
            compress: *compress,
            last_tid: AtomicU64::new(totals.last_tid.0),
            last_oid: AtomicU64::new(last_oid),
            objects: AtomicU64::new(totals.objects),
            bytes: AtomicU64::new(totals.bytes),
            is_failed: AtomicBool::new(false),
            data_version: AtomicI64::default(),
            freshness: Freshness::default(),
            views: Views::default(),
            room: Room::new(*quota_bytes),
            space: Arc::default(),
            syncs: Default::default(),
            packing: Default::default(),
        })
    }

    /// Why the server of the database cannot be reached, if so.
    pub fn obstacle(&self) -> Option<String> {
        obstacle(&self.database.place)
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }
}

fn totals(connection: &Connection, partitions: Partitions) -> driver::Result<Totals> {
    let last_tid = last_tid(connection, partitions)?;
    let mut totals = Totals { last_tid, last_oid: Oid(0), objects: 0, bytes: 0 };
    for partition in partitions.all() {
        let oid = revisions::last_oid(connection, partition)?;
        totals.last_oid = totals.last_oid.max(oid.unwrap_or(Oid(0)));
        totals.objects += revisions::object_count(connection, partition)?;
    }
    totals.bytes = size(connection)?;
    Ok(totals)
}

/// The last transaction of a database.
pub(super) fn last_tid(connection: &Connection, partitions: Partitions) -> driver::Result<Tid> {
    let mut found = Tid::ZERO;
    for partition in partitions.all() {
        let last = transactions::last_tid(connection, partition)?;
        let written = revisions::last_tid(connection, partition)?;
        found = found.max(last.max(written).unwrap_or(Tid::ZERO));
    }
    Ok(found)
}

/// The bytes of a database, roughly.
fn size(connection: &Connection) -> driver::Result<u64> {
    let Connection::Sqlite(connection) = connection else {
        let tables = "SELECT CAST(SUM(data_length + index_length) AS UNSIGNED) \
             FROM information_schema.tables WHERE table_schema = DATABASE()";
        let bytes: Option<i64> = connection.query_row(tables, [], |row| row.get(0))?;
        return Ok(id(bytes.unwrap_or(0)));
    };
    let pragma = |name: &str| -> driver::Result<u64> {
        Ok(id(connection.pragma_query_value(None, name, |row| row.get(0))?))
    };
    let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
    Ok(pages * pragma("page_size")?)
}
