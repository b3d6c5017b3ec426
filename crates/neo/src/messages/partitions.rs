//! The partition table: which storages hold which partitions.

use crate::values::{CellState, NodeId, Partition, TableId};
use crate::wire::record;

/// The cells of one partition. Their order means nothing.
pub type Row = Vec<Cell>;

record! {
    /// What one storage has of a partition.
    #[derive(Copy, Eq, Hash)]
    pub struct Cell {
        /// The storage.
        node: NodeId,
        /// What it has.
        state: CellState,
    }

    /// A change of one cell.
    #[derive(Copy, Eq, Hash)]
    pub struct CellChange {
        /// The partition.
        partition: Partition,
        /// The storage.
        node: NodeId,
        /// The new state; [`CellState::Discarded`] removes the cell.
        state: CellState,
    }

    /// Asks for the partition table in a storage's database. M to S.
    pub struct AskPartitionTable {}

    /// The partition table in the database.
    pub struct AnswerPartitionTable {
        /// The id of the table.
        table: TableId,
        /// Number of copies beside the first one.
        replicas: u32,
        /// A row for each partition, from 0.
        rows: Vec<Row>,
    }

    /// Gives the whole partition table. M to A, C, S.
    pub struct SendPartitionTable {
        /// The id of the table; `None` while there is none.
        table: Option<TableId>,
        /// Number of copies beside the first one.
        replicas: u32,
        /// A row for each partition, from 0.
        rows: Vec<Row>,
    }

    /// Tells of changes of the partition table. M to any but M.
    pub struct NotifyPartitionChanges {
        /// The id of the table after the change: the next one.
        table: TableId,
        /// Number of copies beside the first one.
        replicas: u32,
        /// The cells that change; none if only the number of copies changes.
        changes: Vec<CellChange>,
    }

    /// Asks for rows of the partition table. ctl to A.
    pub struct AskPartitionList {
        /// The first partition.
        first: u32,
        /// The partition after the last one; 0 for all.
        end: u32,
        /// Ignored by NEO/py.
        node: Option<NodeId>,
    }

    /// Rows of the partition table.
    pub struct AnswerPartitionList {
        /// The id of the table; `None` while the cluster has none.
        table: Option<TableId>,
        /// Number of copies beside the first one.
        replicas: u32,
        /// The rows asked for.
        rows: Vec<Row>,
    }

    /// Balances the partition table. ctl to A to M.
    pub struct TweakPartitionTable {
        /// Only compute the table.
        dry_run: bool,
        /// Storages that are to be dropped: their cells are copied to others.
        excluded: Vec<NodeId>,
    }

    /// The table after a tweak.
    pub struct AnswerTweakPartitionTable {
        /// Whether the table changes.
        changed: bool,
        /// A row for each partition, from 0.
        rows: Vec<Row>,
    }

    /// Sets the number of copies, which the next tweak makes. ctl to A to M.
    pub struct SetNumReplicas {
        /// Number of copies beside the first one.
        replicas: u32,
    }
}
