//! A snapshot of a storage node of a NEO cluster, as plain data.

use serde::Serialize;

/// A storage node of a NEO cluster.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Node {
    /// The name of the cluster.
    pub cluster: String,
    /// Its id, such as `S1`; absent until the master has given one.
    pub id: Option<String>,
    /// How far it is, in words.
    pub state: &'static str,
    /// Whether it serves other nodes.
    pub is_operating: bool,
    /// The address of the primary master; absent while it looks for one.
    pub master: Option<String>,
    /// The path of its database.
    pub database: String,
    /// Size of the database, with its log.
    pub database_bytes: u64,
    /// Number of partitions of the cluster.
    pub partitions: u64,
    /// Its cells, by partition.
    pub cells: Vec<NodeCell>,
    /// The last complete transaction of a backup cluster; absent in others.
    pub backup_tid: Option<String>,
    /// The partition that is being fetched from another storage.
    pub replicating: Option<u64>,
    /// The partition that is being compared with its replicas.
    pub checking: Option<u64>,
    /// Seconds from the last replicated transaction to the last one to fetch, of the cell that is
    /// most behind. 0 if nothing is to be fetched.
    pub replication_lag_seconds: f64,
    /// Transactions in progress that are not voted.
    pub open_transactions: u64,
    /// Transactions that are voted and not locked.
    pub voted_transactions: u64,
    /// Transactions that are locked and not unlocked.
    pub locked_transactions: u64,
    /// Data of transactions that are not voted, in memory; in bytes.
    pub unvoted_bytes: u64,
    /// Reads that wait for an unlock.
    pub delayed_reads: u64,
    /// Connections of clients.
    pub client_connections: u64,
    /// Connections with other storages.
    pub storage_connections: u64,
    /// Connections to masters.
    pub master_connections: u64,
    /// Totals since the start.
    pub totals: NodeTotals,
}

/// One cell.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeCell {
    /// The partition.
    pub partition: u64,
    /// Its state, as neoctl says it.
    pub state: &'static str,
    /// The last replicated transaction, while something is to be fetched.
    pub replicated: Option<String>,
    /// The last transaction to fetch; absent while the master has not told.
    pub until: Option<String>,
    /// Seconds between the two.
    pub lag_seconds: Option<f64>,
}

/// What a node has done since its start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct NodeTotals {
    /// Objects loaded for clients.
    pub loads: u64,
    /// Of these, those that were answered from memory.
    pub remembered_loads: u64,
    /// Records received from clients.
    pub stores: u64,
    /// Transactions voted.
    pub votes: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Transactions given up.
    pub aborts: u64,
    /// Stores of objects that had changed meanwhile.
    pub conflicts: u64,
    /// Locks that clients were asked to give back.
    pub deadlocks: u64,
    /// Transactions fetched from other storages.
    pub fetched_transactions: u64,
    /// Records fetched from other storages.
    pub fetched_records: u64,
    /// Bytes sent to other storages that replicate.
    pub fed_bytes: u64,
    /// Partitions compared with their replicas.
    pub checked_partitions: u64,
    /// Cells that such a comparison reported.
    pub differing_cells: u64,
}
