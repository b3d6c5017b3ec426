//! Opens NEO clusters, as one of their clients.

use anyhow::Result;
use tracing::info;
use zodium_configuration::{ServerOptions, StorageOptions};
use zodium_neo_client::{NeoStorage, Options};
use zodium_types::Address;

/// Connects to the cluster of a URL.
pub(super) fn open(
    url: &str,
    options: &StorageOptions,
    server: &ServerOptions,
) -> Result<NeoStorage> {
    let read_only = options.read_only || server.read_only;
    let cache_bytes = options.cache_bytes;
    let options = Options { read_only, cache_bytes, ..Options::from_url(url)? };
    let masters: Vec<_> = options.masters.iter().map(Address::to_string).collect();
    info!(
        cluster = options.cluster,
        masters = masters.join(" "),
        seconds_max = options.wait.as_secs(),
        "looking for the primary master"
    );
    Ok(NeoStorage::open(options)?)
}
