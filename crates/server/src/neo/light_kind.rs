//! What is different for an admin and a master, the nodes without a database.

use std::io;

use anyhow::Result;
use zodium_monitor::Cluster;
use zodium_neo::{Address, NodeId};
use zodium_neo_server::ServeLight;

use super::node_kind::NodeKind;

/// A kind of node without a database.
pub(super) trait LightKind: NodeKind {
    /// One of them, in log lines.
    const ONE: &'static str;
    /// Whether a node without masters in its settings is the only master.
    const MAY_BE_ALONE: bool;
    /// What its state machine is made of.
    type Settings;
    /// What it says of itself.
    type Status: Clone + Default + Send + 'static;

    /// Makes those settings of the command's.
    fn settings(
        table: &Self::Table,
        masters: Vec<Address>,
        address: Address,
    ) -> Result<Self::Settings>;

    /// Serves it to its end.
    fn serve(
        serve: ServeLight<Self::Settings, Self::Status>,
        stop: impl Future<Output = ()>,
    ) -> impl Future<Output = io::Result<()>>;

    /// Why it does not do its part, if so.
    fn failure(status: &Self::Status) -> Option<String>;

    /// Storages of the cluster with cells that are not running.
    fn storages_down(status: &Self::Status) -> u64;

    /// Storages that the transactions of clients wait for, if it knows them.
    fn storages_starting(status: &Self::Status) -> &[NodeId] {
        let _ = status;
        &[]
    }

    /// What an operator should know of besides, in sentences.
    fn notes(status: &Self::Status) -> &[String];

    /// The cluster, if it knows all of it without cost.
    fn cluster(name: &str, status: &Self::Status) -> Option<Cluster> {
        let _ = (name, status);
        None
    }
}
