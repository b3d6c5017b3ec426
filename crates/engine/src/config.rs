//! The settings of a storage that the engine runs.

use std::sync::Arc;
use std::time::Duration;

use crate::{Reopening, Resolver};

/// The settings of a storage.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of recent transactions whose oids are kept for clients that reconnect.
    pub invalidation_queue_size: usize,
    /// How far back the log is read for clients that missed more transactions; `None`: never.
    pub invalidation_age: Option<Duration>,
    /// Longest time that a transaction may hold its locks before its client is disconnected.
    pub transaction_timeout: Option<Duration>,
    /// Whether a pack drops objects that cannot be reached from the root.
    pub pack_gc: bool,
    /// Whether a pack keeps the old file as `Data.fs.old`.
    pub pack_keep_old: bool,
    /// Whether a pack fails when an object in use refers to a missing object.
    pub pack_abort_on_dangling: bool,
    /// Resolves conflicts on the server. Conflicts that it does not resolve go to the client.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// Classes (`module.Class`) whose conflicts clients can resolve. For these classes, an undo
    /// that conflicts with later changes goes to the client. `*` stands for all classes.
    pub resolvable_classes: Vec<String>,
    /// When the storage reopens its file by itself after a failed write. `None`: only when
    /// [asked](crate::Database::ask_to_reopen).
    pub reopening: Option<Reopening>,
}

impl Default for Config {
    /// The server's defaults.
    fn default() -> Config {
        Config {
            invalidation_queue_size: 100,
            invalidation_age: None,
            transaction_timeout: None,
            pack_gc: true,
            pack_keep_old: true,
            pack_abort_on_dangling: false,
            resolver: None,
            resolvable_classes: Vec::new(),
            reopening: Some(Reopening::default()),
        }
    }
}
