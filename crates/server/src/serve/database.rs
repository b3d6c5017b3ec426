//! Opens SQLite databases with the tables of NEO.

use std::path::Path;

use anyhow::{Result, bail};
use zodium_configuration::{ServerOptions, StorageOptions};
use zodium_sql::{NewCluster, Partitions, SqlOptions, SqlStorage};

use super::storages::NEW_OIDS_GAP;

/// The cluster of a database whose file has no name that is text.
const CLUSTER: &str = "zodium";

/// Opens a database, or creates one of a cluster with one partition and no replicas.
pub(super) fn open(
    path: &Path,
    cluster: Option<&str>,
    options: &StorageOptions,
    server: &ServerOptions,
) -> Result<SqlStorage> {
    if options.blob_directory.is_some() {
        bail!("{}: a NEO database has no blobs; serve it without a blob directory", path.display());
    }
    let read_only = options.read_only || server.read_only;
    let name = cluster.or_else(|| path.file_stem()?.to_str()).unwrap_or(CLUSTER).to_owned();
    let partitions = Partitions::new(1);
    let create =
        (!read_only).then_some(NewCluster { name, partitions, keep_equal_data_once: false });
    let storage = SqlStorage::open(&SqlOptions {
        path: path.to_owned(),
        create,
        read_only,
        new_oids_gap: NEW_OIDS_GAP,
        quota_bytes: options.quota_bytes,
        compress: true,
    })?;
    let kept = storage.database().cluster()?.name.unwrap_or_default();
    match cluster {
        Some(name) if name != kept => bail!(
            "{}: belongs to the cluster {kept:?}, not to {name:?}; correct the name, or the path",
            path.display()
        ),
        _ => Ok(storage),
    }
}
