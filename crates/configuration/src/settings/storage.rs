//! `[[storage]]`: its name and kind, blobs, cache, limits, checksums.

use std::path::PathBuf;
use std::time::Duration;

use super::kinds::zconfig_values::path_or_none;
use super::kinds::{Bytes, Choice, File, List, Switch, Text, Time};
use super::packing::PackOptions;

/// Where the data of a storage are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageKind {
    /// A FileStorage.
    File {
        /// The data file.
        path: PathBuf,
        /// Replace an existing file by a new, empty one (`create true` in ZConfig).
        truncate: bool,
    },
    /// An SQLite database with the tables of a NEO storage node.
    Sqlite {
        /// The database.
        path: PathBuf,
        /// The name of the cluster that a new database is for; `None`: that of the file, without
        /// its extension.
        cluster: Option<String>,
    },
    /// A NEO cluster, of which the server is a client.
    Neo {
        /// Its URL: `neo://CLUSTER@MASTER,MASTER?PARAMETERS`.
        url: String,
    },
    /// A database on a MariaDB server, with the tables of a NEO storage node.
    Maria {
        /// Its URL: `mysql://USER@HOST/DATABASE?PARAMETERS`.
        url: String,
    },
    /// Memory; data are lost when the server ends (`<mappingstorage>`).
    Memory,
}

/// Use of the checksums beside a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Written by commits, and verified by every read and by scrubs.
    Full,
    /// Written by commits, and verified by scrubs, but not by loads.
    Commit,
    /// No checksums.
    Off,
}

const CHECKSUMS: [(&str, Checksums, &str); 3] = [
    ("full", Checksums::Full, "Written by commits, and verified by every read and by scrubs"),
    (
        "commit",
        Checksums::Commit,
        "Written by commits, and verified by scrubs of the whole file, but not by loads",
    ),
    ("off", Checksums::Off, "No checksums"),
];

const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The warning about a setting that has a file recreated.
pub(crate) fn begins_anew(key: &str) -> String {
    format!("`{key}` begins a new, empty file at each start, in place of what is there")
}

settings! {
    /// One storage.
    pub struct StorageOptions {
        /// The name that clients ask for
        name: String = "1".to_owned(), {
            Text;
            key: "name", elsewhere: "the section's name", is_always_written: true,
            option: "storage-name", value: "NAME", env: "ZODIUM_STORAGE_NAME",
            is_for_one_storage: true
        }

        /// Where its data are stored.
        kind: StorageKind = StorageKind::File { path: PathBuf::new(), truncate: false }, [
            {
                File;
                key: "path", otherwise: "required", zeo_conf: "path",
                help: "The data file, usually called Data.fs; created if absent";
                get: |storage| match &storage.kind {
                    StorageKind::File { path, .. } => Some(path.clone()),
                    _ => None,
                },
                set: |storage, path| storage.kind = StorageKind::File {
                    path,
                    truncate: matches!(storage.kind, StorageKind::File { truncate: true, .. }),
                },
            },
            {
                Switch;
                key: "truncate", zeo_conf: "create",
                help: "Replace the file by a new, empty one at each start";
                get: |storage| {
                    Some(matches!(storage.kind, StorageKind::File { truncate: true, .. }))
                },
                set: |storage, is_new| {
                    if let StorageKind::File { truncate, .. } = &mut storage.kind {
                        *truncate = is_new;
                    }
                },
            },
            {
                File;
                key: "sqlite",
                help: "An SQLite database as NEO has them, in place of a `path`; created if absent.
                     See docs/neo.md";
                get: |storage| match &storage.kind {
                    StorageKind::Sqlite { path, .. } => Some(path.clone()),
                    _ => None,
                },
                set: |storage, path| storage.kind = StorageKind::Sqlite { path, cluster: None },
            },
            {
                Text;
                key: "cluster", otherwise: "the name of the file",
                help: "The name of the NEO cluster that a new SQLite database is for";
                get: |storage| match &storage.kind {
                    StorageKind::Sqlite { cluster, .. } => cluster.clone(),
                    _ => None,
                },
                set: |storage, name| {
                    if let StorageKind::Sqlite { cluster, .. } = &mut storage.kind {
                        *cluster = Some(name);
                    }
                },
            },
            {
                Text;
                key: "neo",
                help: "The URL of a NEO cluster, in place of a `path`:
                     `neo://CLUSTER@MASTER:PORT,MASTER:PORT`. See docs/neo.md";
                get: |storage| match &storage.kind {
                    StorageKind::Neo { url } => Some(url.clone()),
                    _ => None,
                },
                set: |storage, url| storage.kind = StorageKind::Neo { url },
            },
            {
                Text;
                key: "mysql",
                help: "The URL of a NEO database on a MariaDB server, in place of a `path`:
                     `mysql://USER@HOST/DATABASE`. See docs/neo.md";
                get: |storage| match &storage.kind {
                    StorageKind::Maria { url } => Some(url.clone()),
                    _ => None,
                },
                set: |storage, url| storage.kind = StorageKind::Maria { url },
            },
            {
                Switch;
                key: "memory", elsewhere: "`<mappingstorage>`",
                help: "Keep the data in memory, in place of a `path`; they are lost when the
                     server ends";
                get: |storage| Some(storage.kind == StorageKind::Memory),
                set: |storage, is_memory| if is_memory {
                    storage.kind = StorageKind::Memory;
                },
            },
        ]

        /// The blob directory; without it blobs are refused
        blob_directory: Option<PathBuf> = None, {
            File;
            key: "blob-directory", zeo_conf: "blob-dir", option: "blob-dir", value: "PATH",
            env: "ZODIUM_BLOB_DIR", is_for_one_storage: true;
            from_zeo_conf: path_or_none
        }

        /// Refuse commits to this storage, and leave its files unchanged
        read_only: bool = false, { Switch; key: "read-only", zeo_conf: "read-only" }

        /// Size of the storage's cache of records
        ///
        /// Hits need neither a lock nor a system call. 0 switches the cache off; that of the
        /// operating system remains.
        cache_bytes: u64 = 256 << 20, {
            Bytes::<u64>::any();
            key: "cache-size", option: "cache-size", value: "SIZE", env: "ZODIUM_CACHE_SIZE"
        }

        /// Refuse commits that would make the data file larger than this
        quota_bytes: Option<u64> = None, {
            Bytes::<u64>::any();
            key: "quota", zeo_conf: "quota", option: "quota", value: "SIZE"
        }

        /// Keep checksums beside the data file, and compare loads with them
        ///
        /// `Data.fs.checksums` has a CRC-32C of every record and transaction.
        checksums: Checksums = Checksums::Full, {
            Choice(&CHECKSUMS);
            key: "checksums", option: "checksums", value: "WHEN", env: "ZODIUM_CHECKSUMS"
        }

        /// Time between two comparisons of the whole file with its checksums; 0: never
        ///
        /// They read 16 MiB/s. The first one begins within an hour of the start.
        scrub_interval: Option<Duration> = Some(WEEK), {
            Time::ANY;
            key: "scrub-interval", option: "scrub-interval", value: "SECONDS",
            env: "ZODIUM_SCRUB_INTERVAL";
            get: |storage| Some(storage.scrub_interval.unwrap_or_default()),
            set: |storage, time| storage.scrub_interval = Some(time).filter(|time| !time.is_zero()),
        }

        /// Subjects of client certificates that may use it
        ///
        /// Each is a common name, or a whole subject as `CN=...,O=...`. Without this all clients
        /// that the server accepts may use it. Needs TLS.
        allow: Option<Vec<String>> = None, { List(Text); key: "allow" }

        /// Packing.
        pack: PackOptions = PackOptions::default(), []
    }
}

impl StorageOptions {
    /// Creates a storage with default options.
    pub fn new(name: impl Into<String>, kind: StorageKind) -> StorageOptions {
        StorageOptions { name: name.into(), kind, ..StorageOptions::default() }
    }
}
