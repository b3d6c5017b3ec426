//! The partition table, which the primary master keeps.
//!
//! Unlike [`zodium_neo::PartitionTable`] it keeps the cells of a partition in the order in which
//! they were added, knows storages without cells, and makes the changes itself.

mod feeding;
mod removal;
mod topology;
mod tweak;
mod versions;

use std::collections::{BTreeMap, BTreeSet};

use zodium_neo::messages::{
    AnswerPartitionTable, Cell as ToldCell, CellChange, Row, SendPartitionTable,
};
use zodium_neo::{CellState, NodeId, Partition, TableId};
use zodium_types::{Oid, Tid};

pub(crate) use topology::Devices;

use self::versions::Versions;

/// A storage that is away may have versions after the newest one that was found: those that were
/// told when the others were lost. They are fewer than this.
const VERSIONS_SKIPPED: u64 = 10_000;

/// The version that a cluster is created with. It has another one as soon as it runs: starts that
/// were cut before that have skipped versions only.
const CREATED: TableId = TableId(1);

/// What one storage has of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) node: NodeId,
    pub(crate) state: CellState,
    /// The storage replicates the cell, and gets all new transactions.
    pub(crate) is_updatable: bool,
    /// The last version of the table in which the storage did not have the cell, if there was one
    /// since the cluster was started. What the storage says before it has that version is about a
    /// cell that was taken away since.
    given_after: Option<TableId>,
}

/// The partition table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// `None` while there is no table.
    id: Option<TableId>,
    replicas: u32,
    /// A row for each partition, from 0.
    rows: Vec<Vec<Cell>>,
    /// Storages with cells, and those that get some at the next tweak.
    members: BTreeSet<NodeId>,
    versions: Versions,
    /// The newest version that each storage has said to have.
    known: BTreeMap<NodeId, TableId>,
}

impl Cell {
    pub(crate) fn new(node: NodeId, state: CellState) -> Cell {
        Cell { node, state, is_updatable: false, given_after: None }
    }

    /// One that its storage did not have in this version of the table.
    fn given_after(node: NodeId, state: CellState, before: Option<TableId>) -> Cell {
        Cell { given_after: before, ..Cell::new(node, state) }
    }

    /// Whether its storage had it in this version of the table.
    pub(crate) fn was_given_by(&self, table: Option<TableId>) -> bool {
        self.given_after.is_none_or(|before| Some(before) < table)
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.state.is_readable()
    }

    pub(crate) fn set(&mut self, state: CellState) {
        self.state = state;
        // A cell that goes out of date has to be replicated again.
        self.is_updatable = false;
    }

    fn change(&self, partition: Partition) -> CellChange {
        CellChange { partition, node: self.node, state: self.state }
    }
}

impl Table {
    /// No table yet; a new one will have this shape.
    pub(crate) fn new(partitions: u32, replicas: u32) -> Table {
        let rows = vec![Vec::new(); partitions as usize];
        let (members, versions, known) = Default::default();
        Table { id: None, replicas, rows, members, versions, known }
    }

    /// The table of a storage; the reason if it contradicts itself.
    pub(crate) fn load(message: &AnswerPartitionTable) -> Result<Table, String> {
        let AnswerPartitionTable { table, replicas, rows } = message;
        if rows.is_empty() {
            return Err("a partition table without partitions".to_owned());
        }
        // It checks what is common to all nodes.
        zodium_neo::PartitionTable::new(*table, *replicas, rows.clone())
            .map_err(|error| error.to_string())?;
        let cells = |row: &Row| row.iter().map(|cell| Cell::new(cell.node, cell.state)).collect();
        let mut loaded = Table {
            id: Some(*table),
            replicas: *replicas,
            rows: rows.iter().map(cells).collect(),
            members: rows.iter().flatten().map(|cell| cell.node).collect(),
            versions: Versions::default(),
            known: BTreeMap::new(),
        };
        loaded.versions = Versions::beginning_with(loaded.readable_nodes());
        Ok(loaded)
    }

    pub(crate) fn id(&self) -> Option<TableId> {
        self.id
    }

    /// Whether the cluster has never run with it: some of its storages may not have it yet.
    pub(crate) fn is_unused(&self) -> bool {
        self.id.is_some_and(|id| id.0 % VERSIONS_SKIPPED == CREATED.0)
    }

    /// The table has changed.
    pub(crate) fn next_id(&mut self) -> TableId {
        let readable = self.readable_nodes();
        let id = match self.id {
            Some(old) => {
                self.versions.changed(old, readable);
                old.next()
            }
            None => {
                self.versions = Versions::beginning_with(readable);
                CREATED
            }
        };
        self.id = Some(id);
        id
    }

    /// Begins with a version that no storage that is away has.
    pub(crate) fn begin_anew(&mut self) {
        if let Some(id) = self.id {
            self.versions.changed(id, self.readable_nodes());
            self.id = Some(TableId(id.0.saturating_add(VERSIONS_SKIPPED)));
        }
    }

    /// A storage has a version of the table.
    pub(crate) fn known(&mut self, node: NodeId, id: TableId) {
        self.versions.known(node, id);
        self.known.insert(node, id);
    }

    /// Whether no start can find an earlier version to be the newest.
    pub(crate) fn is_settled(&self) -> bool {
        self.versions.are_closed()
    }

    /// Whether that will be, by storages that are running and can be read.
    pub(crate) fn can_settle(&self, is_running: impl Fn(NodeId) -> bool) -> bool {
        let readable = self.readable_nodes();
        self.versions.can_be_closed(|node| readable.contains(&node) && is_running(node))
    }

    /// Whether the table, as it is changed now, may follow those that storages know.
    pub(crate) fn may_follow(&self) -> bool {
        self.versions.can_be_followed_by(&self.readable_nodes())
    }

    pub(crate) fn replicas(&self) -> u32 {
        self.replicas
    }

    pub(crate) fn set_replicas(&mut self, replicas: u32) {
        self.replicas = replicas;
    }

    /// Number of partitions.
    pub(crate) fn partitions(&self) -> u32 {
        // A message has fewer rows than 2^32.
        self.rows.len() as u32
    }

    pub(crate) fn partition_of_oid(&self, oid: Oid) -> Option<Partition> {
        Partition::of_oid(oid, self.partitions())
    }

    pub(crate) fn partition_of_tid(&self, tid: Tid) -> Option<Partition> {
        Partition::of_tid(tid, self.partitions())
    }

    /// The cells of a partition; none if there is no such partition.
    pub(crate) fn row(&self, partition: Partition) -> &[Cell] {
        self.rows.get(partition.0 as usize).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    fn cell_mut(&mut self, partition: Partition, node: NodeId) -> Option<&mut Cell> {
        let row = self.rows.get_mut(partition.0 as usize)?;
        row.iter_mut().find(|cell| cell.node == node)
    }

    /// The rows, as others are told of them.
    pub(crate) fn told_rows(&self) -> Vec<Row> {
        let told = |cell: &Cell| ToldCell { node: cell.node, state: cell.state };
        self.rows.iter().map(|row| row.iter().map(told).collect()).collect()
    }

    pub(crate) fn message(&self) -> SendPartitionTable {
        let (table, replicas) = (self.id, self.replicas);
        SendPartitionTable { table, replicas, rows: self.told_rows() }
    }

    /// Storages with cells.
    pub(crate) fn nodes(&self) -> BTreeSet<NodeId> {
        self.rows.iter().flatten().map(|cell| cell.node).collect()
    }

    /// Storages with readable cells.
    pub(crate) fn readable_nodes(&self) -> BTreeSet<NodeId> {
        let cells = self.rows.iter().flatten().filter(|cell| cell.is_readable());
        cells.map(|cell| cell.node).collect()
    }

    /// Whether a storage has cells, or gets some at the next tweak.
    pub(crate) fn has_member(&self, node: NodeId) -> bool {
        self.members.contains(&node)
    }

    /// The next tweak gives cells to a storage, too. `false` if that was so already.
    pub(crate) fn add_member(&mut self, node: NodeId) -> bool {
        self.members.insert(node)
    }

    /// Storages without cells get none at the next tweak.
    pub(crate) fn forget_members_without_cells(&mut self) {
        self.members = self.nodes();
    }

    /// Whether each partition has a cell.
    pub(crate) fn is_filled(&self) -> bool {
        self.rows.iter().all(|row| !row.is_empty())
    }

    /// Whether each partition can be read from a storage that `is_running`.
    pub(crate) fn is_operational(&self, is_running: impl Fn(NodeId) -> bool) -> bool {
        let can_read = |cell: &Cell| cell.is_readable() && is_running(cell.node);
        self.rows.iter().all(|row| row.iter().any(can_read))
    }

    /// Adds a cell, or changes the state of one.
    pub(crate) fn set(&mut self, partition: Partition, node: NodeId, state: CellState) {
        self.members.insert(node);
        let Some(row) = self.rows.get_mut(partition.0 as usize) else { return };
        match row.iter_mut().find(|cell| cell.node == node) {
            Some(cell) => cell.set(state),
            None => row.push(Cell::given_after(node, state, self.id)),
        }
    }

    /// A storage gets all new transactions of partitions from now on. Partitions that it had asked
    /// for before they were taken away and given again are left out: it asks again.
    pub(crate) fn set_updatable(&mut self, node: NodeId, partitions: &[Partition]) {
        let known = self.known.get(&node).copied();
        for partition in partitions {
            if let Some(cell) = self.cell_mut(*partition, node)
                && !cell.is_readable()
                && cell.given_after <= known
            {
                cell.is_updatable = true;
            }
        }
    }

    /// Cells of storages that do not run go out of date, as others go on without them.
    ///
    /// Those of `lost` stay where it was the last one to serve a partition: so the cluster can be
    /// started again.
    pub(crate) fn outdate(
        &mut self,
        lost: Option<NodeId>,
        is_running: impl Fn(NodeId) -> bool,
    ) -> Vec<CellChange> {
        let mut changes = Vec::new();
        for (partition, row) in (0..).map(Partition).zip(&mut self.rows) {
            let is_served = row.iter().any(|cell| cell.is_readable() && is_running(cell.node));
            row.retain_mut(|cell| {
                let stays = lost == Some(cell.node) && !is_served;
                if !cell.is_readable() || is_running(cell.node) || stays {
                    return true;
                }
                let was_feeding = cell.state == CellState::Feeding;
                cell.set(CellState::OutOfDate);
                let state = if was_feeding { CellState::Discarded } else { cell.state };
                changes.push(CellChange { partition, node: cell.node, state });
                !was_feeding
            });
        }
        changes
    }

    /// The storages with readable cells, if each partition has one that `is_pending`; else none.
    pub(crate) fn operational_nodes(
        &self,
        is_pending: impl Fn(NodeId) -> bool,
    ) -> BTreeSet<NodeId> {
        if self.is_operational(is_pending) { self.readable_nodes() } else { BTreeSet::new() }
    }
}

#[cfg(test)]
mod random_changes;
#[cfg(test)]
mod tests;
