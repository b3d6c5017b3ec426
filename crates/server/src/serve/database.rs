//! Opens databases with the tables of NEO: in SQLite, or on a MariaDB server.

use std::path::Path;

use anyhow::{Result, bail};
use zodium_configuration::{ServerOptions, StorageOptions};
use zodium_sql::{Location, MariaAddress, NewCluster, Partitions, SqlOptions, SqlStorage};

use super::new_oids::NEW_OIDS_GAP;

/// The cluster of a database whose file has no name that is text.
const CLUSTER: &str = "zodium";

/// Opens a database, or creates one of a cluster with one partition and no replicas.
pub(super) fn open(
    path: &Path,
    cluster: Option<&str>,
    options: &StorageOptions,
    server: &ServerOptions,
) -> Result<SqlStorage> {
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or(CLUSTER);
    open_at(path.into(), (cluster, name), options, server)
}

/// Opens a database on a server; an empty one becomes that of a cluster with one partition.
pub(super) fn open_on_server(
    url: &str,
    options: &StorageOptions,
    server: &ServerOptions,
) -> Result<SqlStorage> {
    let address = MariaAddress::of_url(url)?;
    let (cluster, name) = (address.cluster().map(str::to_owned), address.database().to_owned());
    open_at(Location::Maria(address), (cluster.as_deref(), &name), options, server)
}

/// `cluster` is the name that the cluster must have, `name` that of a new one otherwise.
fn open_at(
    location: Location,
    (cluster, name): (Option<&str>, &str),
    options: &StorageOptions,
    server: &ServerOptions,
) -> Result<SqlStorage> {
    let shown = location.to_string();
    if options.blob_directory.is_some() {
        bail!("{shown}: a NEO database has no blobs; serve it without a blob directory");
    }
    let read_only = options.read_only || server.read_only;
    let name = cluster.unwrap_or(name).to_owned();
    let partitions = Partitions::new(1);
    let create =
        (!read_only).then_some(NewCluster { name, partitions, keep_equal_data_once: false });
    Ok(SqlStorage::open(&SqlOptions {
        location,
        create,
        cluster: cluster.map(str::to_owned),
        read_only,
        new_oids_gap: NEW_OIDS_GAP,
        quota_bytes: options.quota_bytes,
        compress: true,
    })?)
}
