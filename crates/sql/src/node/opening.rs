//! Opens the database of a node, and erases it.

use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;
use zodium_neo::messages::Cell as TableCell;
use zodium_neo::{CellState, NodeId, PartitionTable, TableId};
use zodium_neo_storage::Saved;

use super::{NodeDatabase, Writing};
use crate::cluster::{Cell, Cluster, set_setting};
use crate::connection::{self, Purpose};
use crate::creation::ensure_database;
use crate::data::{DataTable, prune_deferred};
use crate::locking::Lock;
use crate::place::{Location, Place};
use crate::pool::Pool;
use crate::{SqlError, schema};

/// How to open the database of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions<'a> {
    /// Where it is. A file is created.
    pub location: &'a Location,
    /// The name of the cluster, which the database keeps.
    pub cluster: &'a str,
    /// Keep equal data once, in a new database.
    pub keep_equal_data_once: bool,
    /// Free space on the disk below which it is nearly full; see [`super::ROOM_BYTES`].
    pub room_bytes: u64,
}

impl NodeDatabase {
    /// Opens a database, creates or migrates it; and what it knows of its node.
    ///
    /// # Errors
    /// When it is no database of NEO's, of another cluster, in use, or damaged.
    pub fn open(options: &NodeOptions<'_>) -> Result<(NodeDatabase, Saved), SqlError> {
        let NodeOptions { location, cluster: name, keep_equal_data_once, room_bytes } = options;
        let place = Place::new(location);
        ensure_database(&place, true)?;
        let mut lock = Lock::take(&place, false)?;
        let mut connection = connection::open(&place, Purpose::Write)?;
        let content = schema::content(&connection, &place)?;
        if let Some(found) = schema::cluster(&connection, content).and_then(|older| older.name) {
            check_name(&place, found, name)?;
        }
        connection::make_durable(&connection).map_err(place.cannot("open for writing"))?;
        schema::set_up(&mut connection, &place, content, *keep_equal_data_once)?;
        connection::take_over(&connection).map_err(place.cannot("take the database over"))?;
        lock.note_log()?;
        prune_deferred(&connection).map_err(place.cannot("delete unused data"))?;
        let cluster = Cluster::read(&connection).map_err(place.cannot("read pt and config"))?;
        match cluster.name.clone() {
            Some(found) => check_name(&place, found, name)?,
            None => {
                set_setting(&connection, "name", name).map_err(place.cannot("name the cluster"))?
            }
        }
        let saved = saved(&cluster, &place)?;
        let partitions = saved.table.as_ref().map_or(0, PartitionTable::partitions);
        let data = DataTable::open(&connection, partitions.max(1))
            .map_err(place.cannot("read the ids of data"))?;
        // Equal data are looked for when they are written. Others may have the same SHA-1.
        let may_refuse_data = data.is_unique();
        let limits_metadata = place.server().is_some();
        let saved = Saved { may_refuse_data, limits_metadata, ..saved };
        let pool = Pool::new(place.clone(), Purpose::Read, &lock);
        let rows = Pool::new(place.clone(), Purpose::ReadRows, &lock);
        let writing = Mutex::new(Writing { connection, data, is_durable: true });
        let partitions = AtomicU32::new(partitions);
        Ok((
            NodeDatabase { place, pool, rows, partitions, writing, room_bytes: *room_bytes, lock },
            saved,
        ))
    }

    /// Deletes NEO's tables, but not the file.
    ///
    /// # Errors
    /// When it is in use, or no database of NEO's.
    pub fn erase(location: &Location) -> Result<(), SqlError> {
        let place = Place::new(location);
        ensure_database(&place, true)?;
        let _lock = Lock::take(&place, false)?;
        let connection = connection::open(&place, Purpose::Write)?;
        schema::content(&connection, &place)?;
        schema::drop_all(&connection).map_err(place.cannot("erase the database"))
    }

    /// As [`NodeDatabase::erase`], for an open database, which ends.
    pub fn into_erased(self) -> Result<(), SqlError> {
        let NodeDatabase { writing, place, pool, rows, .. } = self;
        // The last connection to be closed has to be the one that writes.
        drop((pool, rows));
        let Writing { connection, .. } = writing.into_inner();
        schema::drop_all(&connection).map_err(place.cannot("erase the database"))
    }
}

/// Refuses the database of another cluster.
fn check_name(place: &Place, found: String, wanted: &str) -> Result<(), SqlError> {
    match found == wanted {
        true => Ok(()),
        false => {
            let (path, wanted) = (place.path().to_owned(), wanted.to_owned());
            Err(SqlError::OtherCluster { path, found, wanted })
        }
    }
}

/// What a database knows of its node.
fn saved(cluster: &Cluster, place: &Place) -> Result<Saved, SqlError> {
    let node = cluster.node.and_then(node_id);
    let Some(id) = cluster.table_id else { return Ok(Saved { node, ..Saved::default() }) };
    let rows = cluster.partitions().map_or(0, |partitions| partitions.count());
    let mut table = vec![Vec::new(); rows as usize];
    for cell in &cluster.cells {
        if let (Some(node), Some(row)) =
            (node_id(cell.node), table.get_mut(cell.partition as usize))
        {
            row.push(TableCell { node, state: state_of(cell) });
        }
    }
    let (id, replicas) = (TableId(id.unsigned_abs()), cluster.replicas.unwrap_or(0));
    let replicas = u32::try_from(replicas).unwrap_or(0);
    let table = PartitionTable::new(id, replicas, table);
    let table = table.map_err(|error| SqlError::NotWhole {
        path: place.path().to_owned(),
        reason: format!("{error}; restore a backup"),
    })?;
    Ok(Saved { node, table: Some(table), ..Saved::default() })
}

fn node_id(number: i64) -> Option<NodeId> {
    i32::try_from(number).ok().and_then(NodeId::new)
}

/// The state of a cell: cells of this node that are out of date have a tid instead.
fn state_of(cell: &Cell) -> CellState {
    let number = u8::try_from(-cell.tid.min(0)).unwrap_or(0);
    CellState::from_number(number).unwrap_or(CellState::OutOfDate)
}
