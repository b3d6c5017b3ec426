//! The kind of storage: all partitions of a database, served by one process.

mod cursor;
mod marking;
mod opening;
mod packing;
mod prepared;
mod read;
mod reading;
mod room;
mod tids;
mod undo;
mod view;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

use parking_lot::Mutex;
use zodium_disk::SpaceWatch;
use zodium_storage::Freshness;
use zodium_types::Durations;

use crate::{Database, Location, NewCluster};
use room::Room;
use view::Views;

/// How to open a storage.
#[derive(Clone, Debug)]
pub struct SqlOptions {
    /// The database.
    pub location: Location,
    /// What a new database is told; `None`: it must be there.
    pub create: Option<NewCluster>,
    /// The name that its cluster must have.
    pub cluster: Option<String>,
    /// Refuse commits, and leave the file unchanged.
    pub read_only: bool,
    /// Gap between the largest oid in the database and the first new one.
    pub new_oids_gap: u64,
    /// Refuse commits that would make the database larger than this.
    pub quota_bytes: Option<u64>,
    /// Compress new data with zlib where that makes them smaller, as clients of NEO do.
    pub compress: bool,
}

/// A whole NEO database as a kind of storage.
#[derive(Debug)]
pub struct SqlStorage {
    database: Arc<Database>,
    compress: bool,
    last_tid: AtomicU64,
    last_oid: AtomicU64,
    objects: AtomicU64,
    /// Bytes of the pages in use when it was opened, with what commits have added since and packs
    /// have freed. (Pages alone do not tell a small commit.)
    bytes: AtomicU64,
    /// Set by a failed commit, until it is reopened.
    is_failed: AtomicBool,
    /// That of SQLite when this process was last known to be the only one that writes.
    data_version: AtomicI64,
    freshness: Freshness,
    views: Views,
    room: Room,
    space: Arc<SpaceWatch>,
    syncs: Durations,
    /// Held by a pack.
    packing: Mutex<()>,
}
