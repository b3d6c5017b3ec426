//! The partition table: which storages hold which partitions, and in which state.
//!
//! Each change of the table has an id, one after the other. A change that is not the next one is
//! refused, so a node that missed one does not go on with a wrong table.

use thiserror::Error;
use zodium_types::{Oid, Tid};

use crate::messages::{Cell, CellChange, NotifyPartitionChanges, Row, SendPartitionTable};
use crate::values::{CellState, NodeId, Partition, TableId};

/// The partition table of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    id: TableId,
    replicas: u32,
    /// Sorted by node, each node once, none discarded.
    rows: Vec<Row>,
}

/// A table or a change that the protocol does not allow. The table is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// A change that does not follow the table.
    #[error(
        "a change to partition table {new} follows table {current}, not {}; ask the master for \
         the whole table",
        .current.next()
    )]
    NotNext {
        /// The id of this table.
        current: TableId,
        /// The id after the change.
        new: TableId,
    },
    /// A change of a partition that the table does not have.
    #[error("the partition table has no partition {partition}: it has {partitions}")]
    NoSuchPartition {
        /// The partition.
        partition: Partition,
        /// The number of partitions.
        partitions: u32,
    },
    /// A table with two cells of a storage in one partition.
    #[error("the partition table has two cells of {node} in partition {partition}")]
    TwoCells {
        /// The partition.
        partition: Partition,
        /// The storage.
        node: NodeId,
    },
    /// A table with a discarded cell, which only changes may have.
    #[error("the partition table has a discarded cell of {node} in partition {partition}")]
    Discarded {
        /// The partition.
        partition: Partition,
        /// The storage.
        node: NodeId,
    },
    /// A table with more partitions than have numbers.
    #[error("the partition table has {rows} rows, more than there are numbers of partitions")]
    TooManyPartitions {
        /// The number of rows.
        rows: usize,
    },
}

impl PartitionTable {
    /// Creates a table of rows, one for each partition from 0.
    pub fn new(
        id: TableId,
        replicas: u32,
        mut rows: Vec<Row>,
    ) -> Result<PartitionTable, TableError> {
        if rows.len() >= Partition::ALL_READABLE.0 as usize {
            return Err(TableError::TooManyPartitions { rows: rows.len() });
        }
        for (partition, row) in (0..).map(Partition).zip(&mut rows) {
            row.sort_unstable_by_key(|cell| cell.node);
            if let Some(pair) = row.windows(2).find(|pair| pair[0].node == pair[1].node) {
                return Err(TableError::TwoCells { partition, node: pair[0].node });
            }
            if let Some(cell) = row.iter().find(|cell| cell.state == CellState::Discarded) {
                return Err(TableError::Discarded { partition, node: cell.node });
            }
        }
        Ok(PartitionTable { id, replicas, rows })
    }

    /// The table that the master sends; `None` while the cluster has none.
    pub fn from_message(message: SendPartitionTable) -> Result<Option<PartitionTable>, TableError> {
        let SendPartitionTable { table, replicas, rows } = message;
        table.map(|id| PartitionTable::new(id, replicas, rows)).transpose()
    }

    /// The id.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Number of copies beside the first one.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Number of partitions.
    pub fn partitions(&self) -> u32 {
        // The constructor refuses more.
        self.rows.len() as u32
    }

    /// The cells of each partition, sorted by node.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The cells of a partition, sorted by node; none if there is no such partition.
    pub fn row(&self, partition: Partition) -> &[Cell] {
        self.rows.get(partition.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// The partition of an object; `None` in a table without partitions.
    pub fn partition_of_oid(&self, oid: Oid) -> Option<Partition> {
        Partition::of_oid(oid, self.partitions())
    }

    /// The partition of a transaction's metadata; `None` in a table without partitions.
    pub fn partition_of_tid(&self, tid: Tid) -> Option<Partition> {
        Partition::of_tid(tid, self.partitions())
    }

    /// The state of a storage's cell; `None` if it has none in that partition.
    pub fn state(&self, partition: Partition, node: NodeId) -> Option<CellState> {
        let row = self.row(partition);
        let place = row.binary_search_by_key(&node, |cell| cell.node).ok()?;
        row.get(place).map(|cell| cell.state)
    }

    /// The storages that serve reads of a partition.
    pub fn readable(&self, partition: Partition) -> impl Iterator<Item = NodeId> {
        let cells = self.row(partition).iter().filter(|cell| cell.state.is_readable());
        cells.map(|cell| cell.node)
    }

    /// The storages that take part in commits to a partition.
    pub fn writable(&self, partition: Partition) -> impl Iterator<Item = NodeId> {
        let cells = self.row(partition).iter().filter(|cell| cell.state.is_writable());
        cells.map(|cell| cell.node)
    }

    /// The partitions of a storage, ascending, each with the state of its cell.
    pub fn cells_of(&self, node: NodeId) -> impl Iterator<Item = (Partition, CellState)> {
        let partitions = (0..self.partitions()).map(Partition);
        partitions.filter_map(move |partition| Some((partition, self.state(partition, node)?)))
    }

    /// All storages with a cell, ascending.
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<_> = self.rows.iter().flatten().map(|cell| cell.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Whether each partition has a cell.
    pub fn is_filled(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| !row.is_empty())
    }

    /// Whether each partition can be read from a storage that is running.
    pub fn is_operational(&self, is_running: impl Fn(NodeId) -> bool) -> bool {
        let can_read = |partition| self.readable(partition).any(&is_running);
        !self.rows.is_empty() && (0..self.partitions()).map(Partition).all(can_read)
    }

    /// Applies a change, which must be the next one. After an error nothing has changed.
    pub fn apply(&mut self, change: &NotifyPartitionChanges) -> Result<(), TableError> {
        let NotifyPartitionChanges { table, replicas, changes } = change;
        if *table != self.id.next() || *table == self.id {
            return Err(TableError::NotNext { current: self.id, new: *table });
        }
        let partitions = self.partitions();
        if let Some(change) = changes.iter().find(|change| change.partition.0 >= partitions) {
            let partition = change.partition;
            return Err(TableError::NoSuchPartition { partition, partitions });
        }
        (self.id, self.replicas) = (*table, *replicas);
        changes.iter().for_each(|change| self.set(*change));
        Ok(())
    }

    fn set(&mut self, change: CellChange) {
        let CellChange { partition, node, state } = change;
        let Some(row) = self.rows.get_mut(partition.0 as usize) else { return };
        let place = row.binary_search_by_key(&node, |cell| cell.node);
        match (place, state) {
            (Ok(place), CellState::Discarded) => drop(row.remove(place)),
            (Err(_), CellState::Discarded) => (),
            (Ok(place), _) => row[place].state = state,
            (Err(place), _) => row.insert(place, Cell { node, state }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::values::NodeType;

    /// The same as a map.
    type Model = BTreeMap<(Partition, NodeId), CellState>;

    fn storage(number: u32) -> NodeId {
        NodeId::of(NodeType::Storage, number).unwrap()
    }

    fn node() -> impl Strategy<Value = NodeId> {
        (1..6_u32).prop_map(storage)
    }

    fn state() -> impl Strategy<Value = CellState> {
        (0..CellState::ALL.len()).prop_map(|index| CellState::ALL[index])
    }

    fn cell() -> impl Strategy<Value = (NodeId, CellState)> {
        (node(), state())
    }

    fn changes(partitions: u32) -> impl Strategy<Value = Vec<CellChange>> {
        let change = (0..partitions, cell()).prop_map(|(partition, (node, state))| CellChange {
            partition: Partition(partition),
            node,
            state,
        });
        vec(change, 0..20)
    }

    /// A table, and changes of it.
    fn history() -> impl Strategy<Value = (PartitionTable, Vec<Vec<CellChange>>)> {
        vec(vec(cell(), 0..5), 1..12).prop_flat_map(|rows| {
            let partitions = rows.len() as u32;
            let row = |cells: &Vec<(NodeId, CellState)>| -> Row {
                let cells: BTreeMap<_, _> = cells.iter().copied().collect();
                let cells = cells.into_iter().filter(|(_, state)| *state != CellState::Discarded);
                // In no order.
                cells.rev().map(|(node, state)| Cell { node, state }).collect()
            };
            let table = PartitionTable::new(TableId(7), 1, rows.iter().map(row).collect()).unwrap();
            (Just(table), vec(changes(partitions), 0..8))
        })
    }

    fn model_of(table: &PartitionTable) -> Model {
        let rows = (0..).map(Partition).zip(table.rows());
        let cells = rows.flat_map(|(at, row)| row.iter().map(move |cell| (at, cell)));
        cells.map(|(at, cell)| ((at, cell.node), cell.state)).collect()
    }

    fn agree(table: &PartitionTable, model: &Model) {
        assert_eq!(model_of(table), *model);
        for node in (1..6).map(storage) {
            let cells: Vec<_> = table.cells_of(node).collect();
            let same = model.iter().filter(|((_, other), _)| *other == node);
            assert_eq!(cells, same.map(|((at, _), state)| (*at, *state)).collect::<Vec<_>>());
        }
        for partition in (0..table.partitions()).map(Partition) {
            let cells = || model.iter().filter(|((at, _), _)| *at == partition);
            let with = |is: fn(CellState) -> bool| -> Vec<_> {
                cells().filter(|(_, state)| is(**state)).map(|((_, node), _)| *node).collect()
            };
            assert_eq!(table.readable(partition).collect::<Vec<_>>(), with(CellState::is_readable));
            assert_eq!(table.writable(partition).collect::<Vec<_>>(), with(CellState::is_writable));
        }
        let partitions = (0..table.partitions()).map(Partition);
        let can_read = |at| table.readable(at).any(|node| node.number() < 4);
        assert_eq!(
            table.is_operational(|node| node.number() < 4),
            partitions.clone().all(can_read)
        );
        let has_cell = |at| model.keys().any(|(other, _)| *other == at);
        assert_eq!(table.is_filled(), partitions.clone().all(has_cell));
    }

    proptest! {
        #[test]
        fn a_table_is_a_map_of_cells((mut table, history) in history()) {
            let mut model = model_of(&table);
            agree(&table, &model);
            for changes in history {
                for change in &changes {
                    let key = (change.partition, change.node);
                    match change.state {
                        CellState::Discarded => drop(model.remove(&key)),
                        state => drop(model.insert(key, state)),
                    }
                }
                let (id, replicas) = (table.id().next(), changes.len() as u32);
                let change = NotifyPartitionChanges { table: id, replicas, changes };
                prop_assert_eq!(table.apply(&change), Ok(()));
                prop_assert_eq!((table.id(), table.replicas()), (id, replicas));
                agree(&table, &model);
                let again = PartitionTable::new(id, replicas, table.rows().to_vec());
                prop_assert_eq!(again, Ok(table.clone()));
            }
        }

        #[test]
        fn only_the_next_change_is_applied(
            (table, _) in history(),
            id in 0..20_u64,
            changes in changes(14),
        ) {
            let change = NotifyPartitionChanges { table: TableId(id), replicas: 3, changes };
            let is_next = id == 8;
            let is_inside = change.changes.iter().all(|c| c.partition.0 < table.partitions());
            let mut changed = table.clone();
            let result = changed.apply(&change);
            prop_assert_eq!(result.is_ok(), is_next && is_inside);
            if result.is_err() {
                prop_assert_eq!(changed, table);
            }
        }

        #[test]
        fn ids_spread_over_all_partitions(id in any::<u64>(), partitions in 1..1000_u32) {
            let rows = vec![Row::new(); partitions as usize];
            let table = PartitionTable::new(TableId(1), 0, rows).unwrap();
            let partition = Some(Partition((id % u64::from(partitions)) as u32));
            prop_assert_eq!(table.partition_of_oid(Oid(id)), partition);
            prop_assert_eq!(table.partition_of_tid(Tid(id)), partition);
        }
    }

    #[test]
    fn tables_that_contradict_themselves_are_refused() {
        let cell = |number, state| Cell { node: storage(number), state };
        let table = |row| PartitionTable::new(TableId(1), 0, vec![Vec::new(), row]);
        let twice = vec![
            cell(2, CellState::UpToDate),
            cell(1, CellState::UpToDate),
            cell(2, CellState::OutOfDate),
        ];
        let (partition, node) = (Partition(1), storage(2));
        assert_eq!(table(twice), Err(TableError::TwoCells { partition, node }));
        let discarded = vec![cell(2, CellState::Discarded)];
        assert_eq!(table(discarded), Err(TableError::Discarded { partition, node }));
    }

    #[test]
    fn a_cluster_without_a_table_has_none() {
        let message = SendPartitionTable { table: None, replicas: 0, rows: Vec::new() };
        assert_eq!(PartitionTable::from_message(message), Ok(None));
        let empty = PartitionTable::new(TableId(u64::MAX), 0, Vec::new()).unwrap();
        assert_eq!(empty.partition_of_oid(Oid(1)), None);
        assert!(!empty.is_filled() && !empty.is_operational(|_| true));
        let last = NotifyPartitionChanges { table: empty.id(), replicas: 0, changes: Vec::new() };
        assert!(matches!(empty.clone().apply(&last), Err(TableError::NotNext { .. })));
    }

    #[test]
    fn a_refused_change_names_the_ids() {
        let mut table = PartitionTable::new(TableId(4), 0, vec![Row::new()]).unwrap();
        let change = NotifyPartitionChanges { table: TableId(6), replicas: 0, changes: Vec::new() };
        assert_eq!(
            table.apply(&change).unwrap_err().to_string(),
            "a change to partition table 6 follows table 4, not 5; ask the master for the whole \
             table"
        );
    }
}
