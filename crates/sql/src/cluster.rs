//! Which cluster a database belongs to, and which cells are whose: tables `config` and `pt`.

use crate::driver::{self, Connection, Optional, params};
use crate::partitions::Partitions;

/// `pt.tid` of a cell that is up to date.
const UP_TO_DATE: i64 = -1;
/// `pt.tid` of a cell that is up to date, and is copied to another node before it goes.
const FEEDING: i64 = -2;
/// The node that a new database is for.
const FIRST_NODE: i64 = 1;

/// The partition table, and those of older schemas.
const CELLS: &str = "SELECT partition, nid, tid, pack FROM pt ORDER BY partition, nid";
const CELLS_OF_VERSION_3: &str = "SELECT partition, nid, tid, NULL FROM pt ORDER BY partition, nid";
const CELLS_OF_VERSION_2: &str = "SELECT rid, nid, \
     CASE state WHEN 0 THEN -1 WHEN 2 THEN -2 ELSE 1 - state END, NULL \
     FROM pt ORDER BY rid, nid";

/// What a new database is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCluster {
    /// The name of the cluster, which NEO's nodes must name.
    pub name: String,
    /// The number of partitions. It never changes.
    pub partitions: Partitions,
    /// Keep equal data once, at the price of an index of their hashes.
    pub keep_equal_data_once: bool,
}

/// One row of the partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The partition.
    pub partition: u32,
    /// The node that has it.
    pub node: i64,
    /// At least 0: the last replicated transaction of a cell of this node that is out of date.
    /// Below 0: minus the state of the cell.
    pub tid: i64,
    /// The last pack that this node has done there; `None` for other nodes.
    pub pack: Option<i64>,
}

/// What a database knows of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its name.
    pub name: Option<String>,
    /// The id of this node.
    pub node: Option<i64>,
    /// The id of the partition table.
    pub table_id: Option<i64>,
    /// How often each partition is kept, besides the first time.
    pub replicas: Option<i64>,
    /// Set in a backup cluster.
    pub backup_tid: Option<String>,
    /// Set when the cluster is to be truncated at its next start.
    pub truncate_tid: Option<String>,
    /// The partition table, in the order of partitions and nodes.
    pub cells: Vec<Cell>,
}

impl Cluster {
    /// Reads what a database knows.
    pub(crate) fn read(connection: &Connection) -> driver::Result<Cluster> {
        Cluster::read_cells(connection, CELLS)
    }

    /// The same, in a database that was not migrated yet.
    pub(crate) fn read_older(connection: &Connection, version: u32) -> driver::Result<Cluster> {
        let cells = match version {
            0..3 => CELLS_OF_VERSION_2,
            3 => CELLS_OF_VERSION_3,
            _ => CELLS,
        };
        Cluster::read_cells(connection, cells)
    }

    fn read_cells(connection: &Connection, cells: &str) -> driver::Result<Cluster> {
        let mut cells = connection.prepare_cached(cells)?;
        let cell = |row: &driver::Row<'_>| {
            Ok(Cell {
                partition: row.get(0)?,
                node: row.get(1)?,
                tid: row.get(2)?,
                pack: row.get(3)?,
            })
        };
        let cells = cells.query_map([], cell)?.collect::<driver::Result<_>>()?;
        Ok(Cluster {
            name: setting(connection, "name")?,
            node: numeric(connection, "nid")?,
            table_id: numeric(connection, "ptid")?,
            replicas: numeric(connection, "replicas")?,
            backup_tid: setting(connection, "backup_tid")?,
            truncate_tid: setting(connection, "truncate_tid")?,
            cells,
        })
    }

    /// Makes an empty database that of a new cluster with one node.
    pub(crate) fn create(connection: &Connection, new: &NewCluster) -> driver::Result<()> {
        let node = FIRST_NODE.to_string();
        let settings = [("name", &new.name[..]), ("nid", &node), ("ptid", "1"), ("replicas", "0")];
        for (name, value) in settings {
            set_setting(connection, name, value)?;
        }
        let insert = "INSERT INTO pt (partition, nid, tid, pack) VALUES (?1, ?2, ?3, 0)";
        let mut insert = connection.prepare_cached(insert)?;
        for partition in new.partitions.all() {
            insert.execute(params![partition, FIRST_NODE, UP_TO_DATE])?;
        }
        Ok(())
    }

    /// The number of partitions of the cluster; `None` before it has a partition table.
    pub fn partitions(&self) -> Option<Partitions> {
        let last = self.cells.iter().map(|cell| cell.partition).max()?;
        Some(Partitions::new(last.saturating_add(1)))
    }

    /// The partitions that this node can be asked for.
    pub fn readable(&self) -> impl Iterator<Item = u32> + '_ {
        let readable =
            |cell: &&Cell| Some(cell.node) == self.node && matches!(cell.tid, UP_TO_DATE | FEEDING);
        self.cells.iter().filter(readable).map(|cell| cell.partition)
    }

    /// Why the database is not the whole of a cluster; `None` when it is.
    pub fn missing(&self) -> Option<String> {
        let Some(partitions) = self.partitions() else {
            return Some(
                "it has no partition table; start a NEO cluster on it first, or have a new \
                 database created"
                    .to_owned(),
            );
        };
        if self.backup_tid.is_some() {
            return Some("it belongs to a backup cluster; stop the backup with neoctl".to_owned());
        }
        if self.truncate_tid.is_some() {
            return Some("it waits to be truncated; start its NEO cluster once".to_owned());
        }
        let other = self.cells.iter().find(|cell| Some(cell.node) != self.node);
        if let Some(cell) = other {
            return Some(format!(
                "partition {} is also on node {}, which would miss what is written here; serve \
                 the cluster with NEO, or drop its other nodes first",
                cell.partition, cell.node
            ));
        }
        let mut has = vec![false; partitions.count() as usize];
        self.readable().for_each(|partition| has[partition as usize] = true);
        let missing = has.iter().position(|has| !has)?;
        Some(format!(
            "partition {missing} of {} is not up to date here; let NEO replicate it first",
            partitions.count()
        ))
    }
}

/// A setting of the database.
pub(crate) fn setting(connection: &Connection, name: &str) -> driver::Result<Option<String>> {
    let find = "SELECT value FROM config WHERE name = ?1";
    Ok(connection.prepare_cached(find)?.query_row([name], |row| row.get(0)).optional()?.flatten())
}

fn numeric(connection: &Connection, name: &str) -> driver::Result<Option<i64>> {
    Ok(setting(connection, name)?.and_then(|value| value.parse().ok()))
}

/// Changes a setting of the database.
pub(crate) fn set_setting(connection: &Connection, name: &str, value: &str) -> driver::Result<()> {
    let set = "REPLACE INTO config (name, value) VALUES (?1, ?2)";
    connection.prepare_cached(set)?.execute([name, value]).map(|_| ())
}
