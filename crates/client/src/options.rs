//! What a client is told: where servers are, and how to be with them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use zodium_tls::ClientFiles;
use zodium_types::Address;

use crate::{Interrupt, Watcher};

/// Memory for revisions unless said otherwise: what stock clients take on disk.
const CACHE_BYTES: usize = 20 << 20;
/// How long calls wait for a connection unless said otherwise, as with stock clients.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server may be silent unless said otherwise: longer than a busy one takes.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Whether a client may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Only servers that take commits will do.
    #[default]
    ReadWrite,
    /// It will not commit; any server will do.
    ReadOnly,
    /// A server that takes commits is preferred; while there is none, any will do.
    Fallback,
}

/// Encryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// What the client shows, and whom it believes.
    pub files: ClientFiles,
    /// The name in the server's certificate, unless that is listed itself. `None`: the host of the
    /// address.
    pub server_name: Option<String>,
}

/// What a client is told. Begin with [`Options::new`], and change what should be otherwise.
#[derive(Clone)]
pub struct Options {
    /// Servers of the same storage: all are tried at once, and the first that will do is taken.
    pub addresses: Vec<Address>,
    /// The storage's name on the server.
    pub storage: String,
    /// Whether it may write.
    pub access: Access,
    /// Whether [`crate::Client::connect`] waits for a connection.
    pub wait: bool,
    /// How long calls wait for a connection.
    pub wait_timeout: Duration,
    /// A server that says nothing for so long, although it was asked, is taken for gone: the
    /// connection ends, and another one is made.
    pub silence_max: Duration,
    /// What the server's log calls the client.
    pub label: Option<String>,
    /// Encryption; `None`: none.
    pub tls: Option<TlsOptions>,
    /// Memory for revisions, in bytes, with all that it takes to keep them; 0 for none.
    pub cache_bytes: usize,
    /// Where revisions are kept from one run to the next; `None`: nowhere.
    pub cache_path: Option<PathBuf>,
    /// Told of commits and connections, from the first on.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// Tells callers when to stop waiting; `None`: never.
    pub interrupt: Option<Arc<dyn Interrupt>>,
}

impl Options {
    /// The storage `1` of a server, for reading and writing, with 20 MiB of cache.
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
            watcher: None,
            interrupt: None,
        }
    }
}
