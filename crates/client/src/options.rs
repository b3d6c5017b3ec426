//! Options of a client: the addresses of servers, and how to use them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use zodium_tls::ClientFiles;
use zodium_types::Address;

use crate::{Interrupt, Watcher};

/// Longest time that a call can be given to wait. The clock cannot count much longer ones.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Longest silence of a server that can be allowed. The system counts about 24 days.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
/// Default cache size; stock clients use as much disk.
const CACHE_BYTES: usize = 20 << 20;
/// Default time that calls wait for a connection, as with stock clients.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Default limit of a server's silence: longer than a busy server takes.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Whether a client may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Needs a server that takes commits.
    #[default]
    ReadWrite,
    /// Never commits; any server will do.
    ReadOnly,
    /// Prefers a server that takes commits; until there is one, any server will do.
    Fallback,
}

/// Where the list for the warm-up is kept: the objects that a client loads first, which its next
/// opening prefetches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WarmUpList {
    /// Beside the file that keeps the cache, as `CACHE.warm-up`; without such a file, nowhere.
    #[default]
    BesideCache,
    /// In this file.
    File(PathBuf),
    /// Nowhere: there is no warm-up.
    Off,
}

/// TLS options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The client's certificate and key, and the certificates that it trusts.
    pub files: ClientFiles,
    /// The name expected in the server's certificate, unless that very certificate is listed.
    /// `None`: the host of the address.
    pub server_name: Option<String>,
}

/// Options of a client. Begin with [`Options::new`], and change fields as needed.
#[derive(Clone)]
pub struct Options {
    /// Addresses of servers with the same storage. All are tried at once, and the first acceptable
    /// one is used.
    pub addresses: Vec<Address>,
    /// The storage's name on the server.
    pub storage: String,
    /// Whether the client may commit.
    pub access: Access,
    /// Whether [`crate::Client::connect`] waits for a connection.
    pub wait: bool,
    /// Longest time that calls wait for a connection; at most [`TIMEOUT_MAX`] counts.
    pub wait_timeout: Duration,
    /// Longest silence of a server that was pinged. After that the client reconnects. At most a day
    /// counts.
    pub silence_max: Duration,
    /// A label that identifies the client in the server's log.
    pub label: Option<String>,
    /// TLS; `None` for an unencrypted connection.
    pub tls: Option<TlsOptions>,
    /// Size of the cache in bytes, overhead included; 0 for no cache.
    pub cache_bytes: usize,
    /// A file that keeps the cache between runs; `None` for no file. The client works without it,
    /// and logs a warning, if the file cannot be used or another client uses it.
    pub cache_path: Option<PathBuf>,
    /// Where the list of the objects is kept that the next opening prefetches.
    pub warm_up: WarmUpList,
    /// Receives commits and connection changes, from the first one on.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// Tells waiting threads when to stop; `None`: never.
    pub interrupt: Option<Arc<dyn Interrupt>>,
}

impl Options {
    /// Options for storage `1` of a server, read-write, with 20 MiB of cache.
    pub fn new(address: Address) -> Options {
        Options {
            addresses: vec![address],
            storage: "1".to_owned(),
            access: Access::ReadWrite,
            wait: true,
            wait_timeout: WAIT_TIMEOUT,
            silence_max: SILENCE_MAX,
            label: None,
            tls: None,
            cache_bytes: CACHE_BYTES,
            cache_path: None,
            warm_up: WarmUpList::default(),
            watcher: None,
            interrupt: None,
        }
    }
}
