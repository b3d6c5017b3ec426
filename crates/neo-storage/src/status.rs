//! What a node says of itself, for operators.

use zodium_neo::{CellState, NodeId, Partition};
use zodium_types::Tid;

use crate::counts::Counts;

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
