//! What an admin is told at its start.

use zodium_neo::{Address, NodeId};

/// The options of an admin.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the cluster.
    pub cluster: String,
    /// The masters.
    pub masters: Vec<Address>,
    /// Where this admin listens.
    pub address: Address,
    /// The id to ask the first master for, which may give another one.
    pub node: Option<NodeId>,
    /// The names of the backup clusters whose admins may connect.
    pub backups: Vec<String>,
    /// How far a backup cluster may be behind before that is a warning.
    pub lag_seconds_max: f64,
}
