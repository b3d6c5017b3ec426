//! Removing storages from the table.

use zodium_neo::messages::CellChange;
use zodium_neo::{CellState, NodeId, Partition};

use super::Table;

impl Table {
    /// The changes if the cells of a storage are removed; or the first partition that has no other
    /// readable cell.
    pub(crate) fn removal_of(&self, node: NodeId) -> Result<Vec<CellChange>, Partition> {
        let mut changes = Vec::new();
        for (partition, row) in (0..).map(Partition).zip(self.rows()) {
            let Some(cell) = row.iter().find(|cell| cell.node == node) else { continue };
            changes.push(CellChange { partition, node, state: CellState::Discarded });
            let others = || row.iter().filter(|other| other.node != node);
            let feeding = others().find(|cell| cell.state == CellState::Feeding);
            let is_up_to_date = others().any(|cell| cell.state == CellState::UpToDate);
            match feeding {
                // It feeds a cell that may have been this one.
                Some(feeding) => changes.push(CellChange {
                    partition,
                    node: feeding.node,
                    state: CellState::UpToDate,
                }),
                None if cell.is_readable() && !is_up_to_date => return Err(partition),
                None => {}
            }
        }
        Ok(changes)
    }

    /// Removes a storage with its cells.
    pub(crate) fn remove(&mut self, node: NodeId) -> Result<Vec<CellChange>, Partition> {
        let changes = self.removal_of(node)?;
        for change in &changes {
            match change.state {
                CellState::Discarded => {
                    if let Some(row) = self.rows.get_mut(change.partition.0 as usize) {
                        row.retain(|cell| cell.node != change.node);
                    }
                }
                state => self.set(change.partition, change.node, state),
            }
        }
        self.members.remove(&node);
        Ok(changes)
    }
}
