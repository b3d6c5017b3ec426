//! What a master says of itself, for its monitor.

use zodium_neo::{ClusterState, NodeId};
use zodium_types::Tid;

/// A master at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its id; `None` until it has one.
    pub node: Option<NodeId>,
    /// Whether it is the primary master.
    pub is_primary: bool,
    /// Of a secondary master: the address of the primary one, if it is connected.
    pub primary: Option<String>,
    /// Of the primary master: the state of the cluster.
    pub state: Option<ClusterState>,
    /// The last committed transaction.
    pub last_tid: Tid,
    /// Storages that run.
    pub storages: usize,
    /// Storages of the partition table that do not run.
    pub storages_down: usize,
    /// Storages that transactions wait for before they begin: they start, and are not ready yet.
    pub storages_starting: Vec<NodeId>,
    /// What an operator should know of, in sentences.
    pub notes: Vec<String>,
    /// Clients.
    pub clients: usize,
    /// Transactions that have begun.
    pub transactions: usize,
    /// Commits since the start.
    pub committed: u64,
}

/// What of a status is counted, which takes time in large clusters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) storages: usize,
    pub(crate) storages_down: usize,
    pub(crate) clients: usize,
}
