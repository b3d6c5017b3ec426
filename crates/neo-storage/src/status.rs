//! What a node says of itself, for operators.

use zodium_neo::{Address, CellState, NodeId, Partition, PartitionTable, TableId};
use zodium_types::Tid;

use crate::Node;
use crate::counts::Counts;
use crate::peer::{Role, primary};
use crate::phase::Phase;
use crate::transactions::Vote;

/// How far a node is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It looks for the primary master.
    #[default]
    LookingForMaster,
    /// The master has not started the operation of the cluster.
    Waiting,
    /// It serves other nodes.
    Operating,
}

/// A node at one time.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The name of the cluster.
    pub cluster: String,
    /// Its id; `None` until the master gives one.
    pub node: Option<NodeId>,
    /// How far it is.
    pub state: State,
    /// The primary master, if it is connected.
    pub master: Option<String>,
    /// In a backup cluster: the last transaction that is complete.
    pub backup_tid: Option<Tid>,
    /// Its cells, by partition.
    pub cells: Vec<CellStatus>,
    /// Number of partitions of the cluster.
    pub partitions: u32,
    /// The partition that is being fetched.
    pub replicating: Option<Partition>,
    /// The partition that is being compared with its replicas.
    pub checking: Option<Partition>,
    /// Transactions in progress.
    pub transactions: TransactionCounts,
    /// Data of transactions that are not voted, in memory; in bytes.
    pub unvoted_bytes: u64,
    /// Reads that wait for a transaction to be unlocked.
    pub delayed_reads: u64,
    /// Connections to other nodes, by kind.
    pub connections: ConnectionCounts,
    /// What it has done.
    pub counts: Counts,
}

/// A cell of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellStatus {
    /// The partition.
    pub partition: Partition,
    /// Its state in the partition table.
    pub state: CellState,
    /// What it lacks, if something is to be fetched.
    pub missing: Option<Missing>,
}

/// What a cell lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The first transaction of which records may be missing.
    pub from: Tid,
    /// The last one to fetch; `None` while the master has not told.
    pub until: Option<Tid>,
}

/// Transactions in progress, by how far they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionCounts {
    /// Not voted.
    pub open: u64,
    /// Voted, not locked.
    pub voted: u64,
    /// Locked, not unlocked.
    pub locked: u64,
}

/// Connections, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Of clients.
    pub clients: u64,
    /// Of other storages, or to them.
    pub storages: u64,
    /// To masters.
    pub masters: u64,
}

impl Node {
    /// How far the node is.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Alone => State::LookingForMaster,
            Phase::Recovering | Phase::Starting => State::Waiting,
            Phase::Operating => State::Operating,
        }
    }

    /// The id of the partition table; each change of the table changes it.
    pub fn table_id(&self) -> Option<TableId> {
        self.table.as_ref().map(PartitionTable::id)
    }

    /// Whether a cell of the node is marked as corrupted.
    pub fn has_corrupted_cells(&self) -> bool {
        let (Some(table), Some(own)) = (&self.table, self.id) else { return false };
        table.cells_of(own).any(|(_, state)| state == CellState::Corrupted)
    }

    /// The masters that the node knows.
    pub fn masters(&self) -> &[Address] {
        self.masters.addresses()
    }

    /// What the node says of itself.
    pub fn status(&self) -> Status {
        let master = primary(&self.peers).map(|connection| self.name_of(connection));
        Status {
            cluster: self.settings.cluster.clone(),
            node: self.id,
            state: self.state(),
            master,
            backup_tid: self.backup_tid,
            cells: self.cells(),
            partitions: self.table.as_ref().map_or(0, PartitionTable::partitions),
            replicating: self.replication.partition(),
            checking: self.checking.partition(),
            transactions: self.transaction_counts(),
            unvoted_bytes: self.transactions.unvoted_bytes(),
            delayed_reads: self.transactions.delayed.len() as u64,
            connections: self.connection_counts(),
            counts: self.counts,
        }
    }

    fn cells(&self) -> Vec<CellStatus> {
        let (Some(table), Some(own)) = (&self.table, self.id) else { return Vec::new() };
        let cell = |(partition, state)| {
            let missing = self.replication.missing(partition);
            CellStatus { partition, state, missing }
        };
        table.cells_of(own).map(cell).collect()
    }

    fn transaction_counts(&self) -> TransactionCounts {
        let mut counts = TransactionCounts::default();
        for transaction in self.transactions.all.values() {
            match (transaction.tid, transaction.vote) {
                (Some(_), _) => counts.locked += 1,
                (None, Vote::Done) => counts.voted += 1,
                (None, Vote::No | Vote::Asked) => counts.open += 1,
            }
        }
        counts
    }

    fn connection_counts(&self) -> ConnectionCounts {
        let count = |is_like: fn(&Role) -> bool| self.peers.with(is_like).len() as u64;
        ConnectionCounts {
            clients: count(|role| matches!(role, Role::Client { .. })),
            storages: count(|role| matches!(role, Role::Storage { .. } | Role::Source { .. })),
            masters: count(|role| matches!(role, Role::Master { .. })),
        }
    }
}
