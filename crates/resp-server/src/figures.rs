//! The figures of a server, for metrics and the status page.

use std::sync::atomic::Ordering;

use zodium_keyspace::DATABASES;

use crate::server::Server;

/// Figures of a server. Totals count from its start, or from the last `CONFIG RESETSTAT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Keys of all databases, with those whose time is past and that are not removed yet.
    pub keys: u64,
    /// Keys that expire.
    pub volatile_keys: u64,
    /// Bytes of keys and values, by estimate.
    pub data_bytes: u64,
    /// Limit of these; absent without a limit.
    pub data_bytes_max: Option<u64>,
    /// Open connections.
    pub connections: u64,
    /// Clients that wait for an element.
    pub blocked_clients: u64,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Commands that were executed.
    pub commands: u64,
    /// Keys that commands asked for and found.
    pub hits: u64,
    /// Keys that commands asked for and did not find.
    pub misses: u64,
    /// Keys that were removed because their time was past.
    pub expired: u64,
    /// Keys that were removed to keep the limit of memory.
    pub evicted: u64,
}

impl Server {
    /// The figures of now. Waits for locks of keys, so that no worker may ask for them.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (mut keys, mut volatile_keys) = (0, 0);
        for database in 0..DATABASES {
            let totals = self.keyspace.totals(database);
            keys += totals.keys as u64;
            volatile_keys += totals.volatile as u64;
        }
        let statistics = &self.statistics;
        let (hits, misses) = statistics.found();
        let most = self.settings.memory_max.load(Ordering::Relaxed);
        Figures {
            keys,
            volatile_keys,
            data_bytes: self.keyspace.used_bytes(),
            data_bytes_max: (most > 0).then_some(most),
            connections: self.connections() as u64,
            blocked_clients: self.waiting.count() as u64,
            accepted: statistics.connections.load(Ordering::Relaxed),
            commands: statistics.commands(),
            hits,
            misses,
            expired: statistics.expired.load(Ordering::Relaxed),
            evicted: statistics.evicted.load(Ordering::Relaxed),
        }
    }
}
