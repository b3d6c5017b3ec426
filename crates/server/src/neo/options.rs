//! The options of `zodium neo storage`, in neostorage's spelling.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of `zodium neo storage`.
#[derive(Debug, Args)]
pub(crate) struct StorageOptions {
    /// The name of the cluster
    #[arg(short, long, value_name = "NAME")]
    pub(super) cluster: String,

    /// Addresses of the masters, separated by spaces
    #[arg(short, long, value_name = "ADDRESSES", default_value = "127.0.0.1:10000")]
    pub(super) masters: String,

    /// Address to listen on; port 0 chooses one
    #[arg(short, long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub(super) bind: String,

    /// Kind of database
    #[arg(short, long, value_name = "ADAPTER", default_value = "SQLite")]
    pub(super) adapter: Adapter,

    /// Path of the database; it is created
    #[arg(short, long, value_name = "PATH")]
    pub(super) database: String,

    /// Database engine; SQLite has none
    #[arg(short, long, value_name = "ENGINE")]
    pub(super) engine: Option<String>,

    /// Wait so many seconds for the database to be available; -1: without end
    #[arg(short, long, value_name = "SECONDS", default_value = "0", allow_negative_numbers = true)]
    pub(super) wait: f64,

    /// Id of the node, for an empty database; the database keeps it
    #[arg(short = 'i', long, value_name = "ID")]
    pub(super) nid: Option<i32>,

    /// Erase the database, and exit
    #[arg(long)]
    pub(super) reset: bool,

    /// Keep equal data once, in a new database
    #[arg(long)]
    pub(super) dedup: bool,

    /// Carry out no orders to pack
    #[arg(long)]
    pub(super) disable_pack: bool,

    /// Keep the data of cells that the master takes away
    #[arg(long)]
    pub(super) disable_drop_partitions: bool,

    /// Certificates of the cluster's authority, in PEM format
    #[arg(long, value_name = "PATH", requires_all = ["cert", "key"])]
    pub(super) ca: Option<PathBuf>,

    /// Certificate of this node, in PEM format
    #[arg(long, value_name = "PATH", requires_all = ["ca", "key"])]
    pub(super) cert: Option<PathBuf>,

    /// Key of the certificate, in PEM format
    #[arg(long, value_name = "PATH", requires_all = ["ca", "cert"])]
    pub(super) key: Option<PathBuf>,

    /// Append log lines to this file [default: standard error]
    #[arg(short, long, value_name = "PATH")]
    pub(super) logfile: Option<PathBuf>,

    /// Log level: error, warn, info, debug, trace or off, also by module
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "ZODIUM_LOG_LEVEL")]
    pub(super) log_level: String,
}

/// NEO's kinds of databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Adapter {
    /// A file
    #[value(name = "SQLite")]
    Sqlite,
    /// Not implemented
    #[value(name = "MySQL")]
    Mysql,
    /// Not implemented
    #[value(name = "Importer")]
    Importer,
}
