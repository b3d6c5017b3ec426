//! The figures of a server, for metrics and the status page.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use zodium_keyspace::{DATABASES, Stripes, Totals, now};

use crate::server::Server;

/// How long the number of keys is waited for.
const PATIENCE: Duration = Duration::from_millis(100);

/// Figures of a server. Totals count from its start, or from the last `CONFIG RESETSTAT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Keys of all databases, with those whose time is past and that are not removed yet. Absent
    /// while a script has locked them.
    pub keys: Option<u64>,
    /// Keys that expire; absent as those.
    pub volatile_keys: Option<u64>,
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
    /// Commands that were refused since there is no memory for them.
    pub refused_for_memory: u64,
    /// Commands that were refused since the file of keys cannot be written.
    pub refused_for_file: u64,
    /// Bytes of the file of keys; absent without one.
    pub file_bytes: Option<u64>,
}

impl Server {
    /// The figures of now. Waits for locks of keys, but not for long.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let until = Instant::now() + PATIENCE;
        let hold = self.keyspace.try_lock(Stripes::ALL, now(), Some(until));
        let sum = |count: fn(&Totals) -> usize| {
            let hold = hold.as_ref()?;
            Some((0..DATABASES).map(|number| count(&hold.totals(number)) as u64).sum())
        };
        let (keys, volatile_keys) = (sum(|of| of.keys), sum(|of| of.volatile));
        drop(hold);
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
            refused_for_memory: statistics.refused_for_memory.load(Ordering::Relaxed),
            refused_for_file: statistics.refused_for_file.load(Ordering::Relaxed),
            file_bytes: self.log.keeper().map(|keeper| keeper.log.lengths().0),
        }
    }
}
