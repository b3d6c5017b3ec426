//! Databases in folders of their own.

use std::path::Path;

use zodium_sql::{NewCluster, Partitions, SqlOptions};

/// Options that create a database of a cluster `test`.
pub(crate) fn options(path: &Path, partitions: u32) -> SqlOptions {
    let partitions = Partitions::new(partitions);
    let create = NewCluster { name: "test".to_owned(), partitions, keep_equal_data_once: false };
    SqlOptions {
        path: path.to_owned(),
        create: Some(create),
        read_only: false,
        new_oids_gap: 0,
        quota_bytes: None,
        compress: true,
    }
}
