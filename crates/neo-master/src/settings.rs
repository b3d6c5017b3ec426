//! What a master is told at its start.

use zodium_neo::{Address, NodeId};

/// The options of a master.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the cluster.
    pub cluster: String,
    /// The masters; whether this one is among them does not matter.
    pub masters: Vec<Address>,
    /// Where this master listens.
    pub address: Address,
    /// The id of this master, until another one gives it another.
    pub node: Option<NodeId>,
    /// Number of copies beside the first one, in a new cluster.
    pub replicas: u32,
    /// Number of partitions of a new cluster.
    pub partitions: u32,
    /// A new cluster starts without an operator when so many storages are there.
    pub autostart: Option<u32>,
    /// The cluster that this one may be a backup of.
    pub upstream: Option<UpstreamSettings>,
    /// An empty cluster becomes a backup at once.
    pub begins_as_backup: bool,
}

/// The cluster that another one is a backup of.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Its name.
    pub cluster: String,
    /// Its masters.
    pub masters: Vec<Address>,
}
