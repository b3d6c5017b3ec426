//! What the node says of itself, for operators.

use zodium_neo::{Address, CellState, PartitionTable, TableId};

use super::Node;
use crate::links::Role;
use crate::phase::Phase;
use crate::{CellStatus, ConnectionCounts, State, Status};

impl Node {
    /// How far the node is.
    pub fn state(&self) -> State {
        match self.cluster.phase() {
            Phase::Alone => State::LookingForMaster,
            Phase::Recovering | Phase::Starting => State::Waiting,
            Phase::Operating => State::Operating,
        }
    }

    /// The id of the partition table; each change of the table changes it.
    pub fn table_id(&self) -> Option<TableId> {
        self.cluster.table().map(PartitionTable::id)
    }

    /// Whether a cell of the node is marked as corrupted.
    pub fn has_corrupted_cells(&self) -> bool {
        self.cluster.cells().any(|(_, state)| state == CellState::Corrupted)
    }

    /// The masters that the node knows.
    pub fn masters(&self) -> &[Address] {
        self.search.masters()
    }

    /// What the node says of itself.
    pub fn status(&self) -> Status {
        let master = self.links.primary().map(|connection| self.links.name_of(connection));
        Status {
            cluster: self.cluster.settings().cluster.clone(),
            node: self.cluster.id(),
            state: self.state(),
            master,
            backup_tid: self.cluster.backup_tid(),
            cells: self.cells(),
            partitions: self.cluster.partitions(),
            replicating: self.replication.partition(),
            checking: self.checking.partition(),
            transactions: self.commits.counts(),
            unvoted_bytes: self.commits.unvoted_bytes(),
            delayed_reads: self.reading.delayed() as u64,
            connections: self.connection_counts(),
            counts: self.links.counts(),
        }
    }

    fn cells(&self) -> Vec<CellStatus> {
        let cell = |(partition, state)| {
            let missing = self.replication.missing(partition);
            CellStatus { partition, state, missing }
        };
        self.cluster.cells().map(cell).collect()
    }

    fn connection_counts(&self) -> ConnectionCounts {
        let count = |is_like: fn(&Role) -> bool| self.links.with(is_like).len() as u64;
        ConnectionCounts {
            clients: count(|role| matches!(role, Role::Client { .. })),
            storages: count(|role| matches!(role, Role::Storage { .. } | Role::Source { .. })),
            masters: count(|role| matches!(role, Role::Master { .. })),
        }
    }
}
