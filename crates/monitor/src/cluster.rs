//! A snapshot of a NEO cluster, as its admin sees it, as plain data.

use serde::Serialize;

/// A NEO cluster.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its state, as neoctl says it; absent while it is not known.
    pub state: Option<String>,
    /// The number of the partition table; absent while there is none.
    pub table: Option<String>,
    /// Number of partitions.
    pub partitions: u64,
    /// Number of copies beside the first one.
    pub replicas: u64,
    /// Its nodes.
    pub nodes: Vec<ClusterNode>,
}

/// A node of a cluster.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClusterNode {
    /// Its id, such as `S1`; absent for a master that is not connected.
    pub id: Option<String>,
    /// Its kind, as neoctl says it.
    pub kind: String,
    /// Where it listens.
    pub address: Option<String>,
    /// Its state, as neoctl says it.
    pub state: String,
    /// Whether it is the primary master.
    pub is_primary: bool,
    /// Number of its cells by their state.
    pub cells: Vec<(String, u64)>,
}
