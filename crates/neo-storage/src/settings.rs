//! What a node is told at its start.

use zodium_neo::{Address, NodeId, PartitionTable};

/// Data of a transaction in memory, unless the driver says otherwise. Most transactions are
/// smaller; a hundred clients with larger ones need 400 MiB.
pub const TRANSACTION_BYTES_MAX: usize = 4 << 20;

/// The options of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the cluster.
    pub cluster: String,
    /// The masters.
    pub masters: Vec<Address>,
    /// Where this node listens.
    pub address: Address,
    /// Where the database is: host and device. The master keeps replicas apart by it.
    pub topology: Vec<String>,
    /// Carry out orders to pack.
    pub packs: bool,
    /// Delete the data of cells that the master takes away.
    pub drops_partitions: bool,
    /// Data of a transaction in memory before its vote, in bytes. Further ones move to a spool.
    pub transaction_bytes_max: usize,
    /// Memory for records that were loaded, in bytes; 0: none are kept.
    pub records_bytes_max: usize,
}

/// What the database knows of the node and its cluster.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    /// The id of the node; `None`: the master gives one.
    pub node: Option<NodeId>,
    /// The last known partition table.
    pub table: Option<PartitionTable>,
    /// Whether the database may refuse data when they are written, so that a vote must write them.
    pub may_refuse_data: bool,
    /// Whether user, description and extension of a transaction have at most 65,535 bytes there.
    pub limits_metadata: bool,
}
