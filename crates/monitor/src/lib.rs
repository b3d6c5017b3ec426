//! Metrics, health and a status page over HTTP, for those who run a server.
//!
//! It stands aside: a thread and a runtime of its own, an address of its own, and limits on all
//! that a stranger can make it hold. What it shows comes as plain data from a [`Source`].
//!
//! Invariant: this crate knows neither storages nor protocols. Where figures come from, whoever
//! wires it up knows.

#![forbid(unsafe_code)]

mod health;
mod http;
mod messages;
mod metrics;
mod negotiation;
mod pages;
mod process;
mod snapshot;

use std::pin::Pin;

pub use health::{Health, Phase, StorageHealth, StorageState};
pub use http::{Listener, Monitor};
pub use messages::Messages;
pub use snapshot::{
    Cache, Checksums, Connection, LockWait, MethodMetrics, Network, Pack, PackEnd, PackRun, Server,
    Snapshot, Storage, Transaction,
};

/// What a [`Source`] promises to have in a while.
pub type Promise<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where figures come from. Asked on the monitor's thread.
pub trait Source: Send + Sync + 'static {
    /// Whether commits are accepted. Must not wait for anything.
    fn health(&self) -> Health;

    /// Everything there is to show. May wait, but not for long.
    fn snapshot(&self) -> Promise<'_, Snapshot>;
}
