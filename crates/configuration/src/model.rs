//! The model of a server's configuration. The settings are in `settings`, with all defaults.

use crate::settings::log::LogOptions;
use crate::settings::monitor::MonitorOptions;
use crate::settings::neo::NodeOptions;
use crate::settings::neo_admin::AdminOptions;
use crate::settings::neo_master::MasterOptions;
use crate::settings::server::ServerOptions;
use crate::settings::storage::StorageOptions;

/// The configuration of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// Options of the server as a whole.
    pub server: ServerOptions,
    /// The storages: at least one, with distinct names.
    pub storages: Vec<StorageOptions>,
    /// Logging.
    pub log: LogOptions,
    /// Metrics, health and the status page; absent: not served.
    pub monitor: Option<MonitorOptions>,
    /// A storage node of a NEO cluster, in place of a server.
    pub neo_storage: Option<NodeOptions>,
    /// The admin of a NEO cluster, in place of a server.
    pub neo_admin: Option<AdminOptions>,
    /// A master of a NEO cluster, in place of a server.
    pub neo_master: Option<MasterOptions>,
}
