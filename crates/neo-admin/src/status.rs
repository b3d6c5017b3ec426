//! What an admin says of itself, for its monitor.

use zodium_neo::{ClusterState, NodeId};

use crate::Admin;
use crate::peer::Role;

/// An admin at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its id; `None` until a master gives one.
    pub node: Option<NodeId>,
    /// The address of the primary master, if it is connected.
    pub master: Option<String>,
    /// The state of the cluster, if it is known.
    pub cluster_state: Option<ClusterState>,
    /// Storages with cells that are not running.
    pub storages_down: u64,
    /// Connections of operators.
    pub operators: usize,
}

impl Admin {
    /// What the admin says of itself.
    pub fn status(&self) -> Status {
        Status {
            node: self.id,
            master: self.primary.map(|master| self.name_of(master)),
            cluster_state: self.own.state,
            storages_down: self.own.down,
            operators: self.peers.with(|role| *role == Role::Operator).len(),
        }
    }
}
