//! Cells that feed others until these are up to date.

use zodium_neo::messages::CellChange;
use zodium_neo::{CellState, NodeId, Partition};

use super::{Cell, Table};

impl Table {
    /// A storage has replicated a partition. Gives the changes: none if that comes too late, `None`
    /// if it has no such cell.
    pub(crate) fn set_up_to_date(
        &mut self,
        partition: Partition,
        node: NodeId,
    ) -> Option<Vec<CellChange>> {
        let cell = self.cell_mut(partition, node)?;
        if cell.state != CellState::OutOfDate || !cell.is_updatable {
            return Some(Vec::new());
        }
        cell.set(CellState::UpToDate);
        let mut changes = vec![cell.change(partition)];
        changes.extend(self.drop_fed(partition));
        Some(changes)
    }

    /// Drops cells that feed where none is left to be fed. They had to stay until enough storages
    /// know the table, were found so at a start, or a tweak has taken back what they fed. Gives the
    /// changes.
    pub(crate) fn drop_all_fed(&mut self) -> Vec<CellChange> {
        let is_fed = |row: &Vec<Cell>| {
            row.iter().all(Cell::is_readable)
                && row.iter().any(|cell| cell.state == CellState::Feeding)
        };
        let partitions = (0..).map(Partition).zip(&self.rows);
        let fed: Vec<_> = partitions.filter(|(_, row)| is_fed(row)).map(|(one, _)| one).collect();
        fed.into_iter().flat_map(|partition| self.drop_fed(partition)).collect()
    }

    /// Drops cells of a partition that feed, when there are enough others: all, or as many as
    /// wanted. They stay for now if only their storages could close an earlier table.
    fn drop_fed(&mut self, partition: Partition) -> Vec<CellChange> {
        let wanted = self.replicas as usize + 1;
        let Some(row) = self.rows.get_mut(partition.0 as usize) else { return Vec::new() };
        let readable = row.iter().filter(|cell| cell.is_readable()).count();
        let mut droppable =
            if readable == row.len() { readable } else { readable.saturating_sub(wanted) };
        let is_other = |cell: &Cell| cell.state == CellState::UpToDate;
        if !row.iter().any(is_other) {
            return Vec::new();
        }
        let before = row.clone();
        let mut changes = Vec::new();
        row.retain(|cell| {
            let is_dropped = cell.state == CellState::Feeding && droppable > 0;
            if is_dropped {
                droppable -= 1;
                let (node, state) = (cell.node, CellState::Discarded);
                changes.push(CellChange { partition, node, state });
            }
            !is_dropped
        });
        if changes.is_empty() || self.may_follow() {
            return changes;
        }
        if let Some(row) = self.rows.get_mut(partition.0 as usize) {
            *row = before;
        }
        Vec::new()
    }
}
