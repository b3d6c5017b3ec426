//! Metrics, health and a status page over HTTP, for operators.
//!
//! The monitor is separate from the server: it has its own thread, runtime, address and limits. It
//! shows plain data from a [`Source`].
//!
//! Invariant: this crate knows neither storages nor protocols. Only the server that provides the
//! [`Source`] does.

#![forbid(unsafe_code)]

mod cluster;
mod health;
mod history;
mod messages;
mod metrics;
mod monitor;
mod negotiation;
mod node;
mod pages;
mod process;
mod resp;
mod snapshot;

use std::pin::Pin;

pub use cluster::{Cluster, ClusterNode};
pub use health::{Health, Phase, StorageHealth, StorageState};
pub use messages::Messages;
pub use monitor::Monitor;
pub use node::{Node, NodeCell, NodeTotals};
pub use resp::{Resp, RespFile};
pub use snapshot::{
    Blobs, Cache, Checksums, Connection, LockWait, MethodMetrics, Network, Pack, PackEnd, PackRun,
    Server, Snapshot, Storage, Transaction,
};

/// The future of a [`Source`].
pub type Promise<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub use zodium_http::Listener;

/// The source of the data that the monitor shows. It is called on the monitor's thread.
pub trait Source: Send + Sync + 'static {
    /// The health of the server. Must not block.
    fn health(&self) -> Health;

    /// All data to show. May wait, but not for long.
    fn snapshot(&self) -> Promise<'_, Snapshot>;
}
