//! The partition table, as operators see it.
//!
//! Unlike [`zodium_neo::PartitionTable`] it keeps the cells of a partition in the order in which
//! the master told of them: `neoctl print pt 0 10` prints them so.

use zodium_neo::messages::{Cell, NotifyPartitionChanges, Row, SendPartitionTable};
use zodium_neo::{CellState, NodeId, TableId};

/// The partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// `None` while the cluster has no table.
    pub(crate) id: Option<TableId>,
    pub(crate) replicas: u32,
    /// A row for each partition, from 0.
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// The table that the master sends.
    pub(crate) fn new(message: SendPartitionTable) -> Table {
        let SendPartitionTable { table, replicas, rows } = message;
        Table { id: table, replicas, rows }
    }

    /// Applies a change; the reason if it does not follow the table. Nothing has changed then.
    pub(crate) fn apply(&mut self, message: &NotifyPartitionChanges) -> Result<(), String> {
        let NotifyPartitionChanges { table, replicas, changes } = message;
        if self.id.is_none_or(|id| *table != id.next()) {
            let known = self.id.map_or("no table".to_owned(), |id| format!("table {id}"));
            return Err(format!("a change to partition table {table} follows {known}"));
        }
        let count = self.rows.len();
        if let Some(wrong) = changes.iter().find(|one| one.partition.0 as usize >= count) {
            return Err(format!("a change of partition {}: there are {count}", wrong.partition));
        }
        (self.id, self.replicas) = (Some(*table), *replicas);
        for change in changes {
            let row = &mut self.rows[change.partition.0 as usize];
            let place = row.iter().position(|cell| cell.node == change.node);
            match (place, change.state) {
                (Some(place), CellState::Discarded) => drop(row.remove(place)),
                (None, CellState::Discarded) => {}
                (Some(place), state) => row[place].state = state,
                (None, state) => row.push(Cell { node: change.node, state }),
            }
        }
        Ok(())
    }

    /// The rows from `first` to before `end`, where 0 stands for the number of partitions. `None`
    /// if some of them do not exist.
    pub(crate) fn rows(&self, first: u32, end: u32) -> Option<&[Row]> {
        let (first, end) = (first as usize, end as usize);
        let end = if end == 0 { self.rows.len() } else { end };
        if first >= end { Some(&[]) } else { self.rows.get(first..end) }
    }

    /// All cells.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.rows.iter().flatten()
    }

    /// Whether a storage has cells.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.cells().any(|cell| cell.node == node)
    }
}

#[cfg(test)]
mod tests {
    use zodium_neo::messages::CellChange;
    use zodium_neo::{NodeType, Partition};

    use super::*;

    fn storage(number: u32) -> NodeId {
        NodeId::of(NodeType::Storage, number).unwrap()
    }

    fn table() -> Table {
        let cell = |number, state| Cell { node: storage(number), state };
        let rows = vec![vec![cell(2, CellState::UpToDate), cell(1, CellState::OutOfDate)], vec![]];
        Table::new(SendPartitionTable { table: Some(TableId(4)), replicas: 1, rows })
    }

    fn change(table: u64, partition: u32, node: u32, state: CellState) -> NotifyPartitionChanges {
        let change = CellChange { partition: Partition(partition), node: storage(node), state };
        NotifyPartitionChanges { table: TableId(table), replicas: 2, changes: vec![change] }
    }

    #[test]
    fn cells_stay_in_the_order_in_which_they_were_told() {
        let mut table = table();
        table.apply(&change(5, 0, 3, CellState::OutOfDate)).unwrap();
        table.apply(&change(6, 0, 2, CellState::Feeding)).unwrap();
        let order = |table: &Table| -> Vec<_> {
            table.rows[0].iter().map(|cell| (cell.node.number(), cell.state)).collect()
        };
        let (fed, outdated) = (CellState::Feeding, CellState::OutOfDate);
        assert_eq!(order(&table), [(2, fed), (1, outdated), (3, outdated)]);
        table.apply(&change(7, 0, 2, CellState::Discarded)).unwrap();
        assert_eq!(order(&table), [(1, outdated), (3, outdated)]);
        assert_eq!((table.id, table.replicas), (Some(TableId(7)), 2));
    }

    #[test]
    fn only_the_next_change_is_applied() {
        let mut changed = table();
        let wrong = changed.apply(&change(6, 0, 3, CellState::OutOfDate));
        assert_eq!(wrong.unwrap_err(), "a change to partition table 6 follows table 4");
        let wrong = changed.apply(&change(5, 2, 3, CellState::OutOfDate));
        assert_eq!(wrong.unwrap_err(), "a change of partition 2: there are 2");
        assert_eq!(changed, table());
        let none = SendPartitionTable { table: None, replicas: 0, rows: Vec::new() };
        let wrong = Table::new(none).apply(&change(5, 0, 3, CellState::OutOfDate));
        assert_eq!(wrong.unwrap_err(), "a change to partition table 5 follows no table");
    }

    #[test]
    fn rows_are_those_of_a_range() {
        let table = table();
        let count = |first, end| table.rows(first, end).map(<[Row]>::len);
        assert_eq!([count(0, 0), count(1, 0), count(0, 1)], [Some(2), Some(1), Some(1)]);
        assert_eq!([count(2, 1), count(5, 0), count(0, 3)], [Some(0), Some(0), None]);
    }
}
