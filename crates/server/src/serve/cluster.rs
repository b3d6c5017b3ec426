//! Opens NEO clusters, as one of their clients.

use anyhow::Result;
use zodium_configuration::{ServerOptions, StorageOptions};
use zodium_neo_client::{NeoStorage, Options};

/// Connects to the cluster of a URL.
pub(super) fn open(
    url: &str,
    options: &StorageOptions,
    server: &ServerOptions,
) -> Result<NeoStorage> {
    let read_only = options.read_only || server.read_only;
    let cache_bytes = options.cache_bytes;
    Ok(NeoStorage::open(Options { read_only, cache_bytes, ..Options::from_url(url)? })?)
}
