//! A server: its options and the storages that it serves, which all workers share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use zodium_engine::Database;
use zodium_tls::{AllowList, PeerIdentity};
use zodium_zeo::codec::Encoding;

use crate::reports::ReportRequest;
use crate::statistics::Statistics;

/// Most undo logs and long histories that are read at once; others wait. An undo log with a filter
/// that matches nothing reads a whole file, and a history of 100,000 revisions takes 60 MB.
const SEARCHES_MAX: usize = 4;

/// Options of a server.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The encoding announced to clients.
    pub encoding: Encoding,
    /// Longest frame accepted, in bytes; a longer one ends its connection unread.
    pub frame_bytes_max: u32,
    /// Refuse all sessions that are not read-only.
    pub read_only: bool,
    /// Least time between two invalidations to a client that waits for no answer.
    pub notice_interval: Duration,
}

/// A storage to be served, and its options.
pub struct ServedStorage {
    /// The running storage.
    pub storage: Arc<Database>,
    /// The clients that may use it; absent: all that the server accepts.
    pub allow: Option<AllowList>,
}

/// The state that all workers of a server share.
pub struct Server {
    pub(crate) config: Config,
    pub(crate) storages: BTreeMap<String, StorageState>,
    /// When it was started, in seconds since the Unix epoch.
    pub(crate) started: u64,
    /// Channels to each worker, to ask for reports of its sessions.
    pub(crate) report_requests: Mutex<Vec<mpsc::UnboundedSender<ReportRequest>>>,
    /// Places for undo logs and long histories that are being read.
    pub(crate) searches: Arc<Semaphore>,
}

/// What the workers share about a served storage.
pub(crate) struct StorageState {
    pub(crate) storage: Arc<Database>,
    allow: Option<AllowList>,
    /// One for each worker.
    pub(crate) statistics: Mutex<Vec<Arc<Statistics>>>,
}

impl Server {
    /// Creates a server of storages by name (clients ask for `1` by default).
    pub fn new(config: Config, storages: BTreeMap<String, ServedStorage>) -> Server {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let serve = |(name, ServedStorage { storage, allow })| {
            (name, StorageState { storage, allow, statistics: Mutex::default() })
        };
        Server {
            config,
            storages: storages.into_iter().map(serve).collect(),
            started: since_epoch.as_secs(),
            report_requests: Mutex::default(),
            searches: Arc::new(Semaphore::new(SEARCHES_MAX)),
        }
    }
}

impl StorageState {
    /// Whether this client may use it.
    pub(crate) fn admits(&self, peer: Option<&PeerIdentity>) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.admits(peer))
    }
}
