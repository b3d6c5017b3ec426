//! What a server tells about itself: plain data of one moment. All totals count from its start,
//! all times are seconds, all points in time are seconds since the Unix epoch.

use serde::{Serialize, Serializer};
use zodium_types::Distribution;

/// Everything there is to show.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// The server as a whole.
    pub server: Server,
    /// All connections together.
    pub network: Network,
    /// Each storage.
    pub storages: Vec<Storage>,
    /// Connections; not all when there are very many.
    pub connections: Vec<Connection>,
}

/// The server as a whole.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Server {
    /// Its version.
    pub version: &'static str,
    /// When it was started.
    pub started: f64,
    /// Threads that serve connections.
    pub workers: usize,
    /// How many of them did not say in time what their connections do.
    pub workers_silent: usize,
}

/// All connections together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Network {
    /// Connections that are open.
    pub connections: u64,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that were ended because the client broke the protocol, kept locks for too
    /// long, or did not read what it was sent.
    pub refused: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes that wait to be sent.
    pub unsent_bytes: u64,
    /// Connections that there may be.
    pub connections_max: u64,
    /// Connections that were closed at once, for there were too many.
    pub turned_away: u64,
    /// Memory that clients make the server hold, in bytes.
    pub held_bytes: u64,
    /// How much that may be; absent without a limit.
    pub held_bytes_max: Option<u64>,
}

/// One storage.
#[derive(Clone, Debug, Serialize)]
pub struct Storage {
    /// The name that clients ask for.
    pub name: String,
    /// Where it is kept.
    pub file: String,
    /// Size of the data file.
    pub size_bytes: u64,
    /// Objects in its index.
    pub objects: u64,
    /// The last transaction.
    pub last_transaction: String,
    /// When that was; absent while there is none.
    pub last_transaction_time: Option<f64>,
    /// Clients that use it.
    pub connections: u64,
    /// Transactions that are open.
    pub open_transactions: u64,
    /// Transactions that wait for locks.
    pub waiting_for_locks: u64,
    /// Transactions that hold locks.
    pub holding_locks: u64,
    /// For how long the longest-held locks have been held; absent when none are.
    pub oldest_lock_seconds: Option<f64>,
    /// Transactions that are written or wait for it.
    pub finish_queue: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Transactions that clients gave up.
    pub aborts: u64,
    /// Transactions that held their locks for too long.
    pub expired: u64,
    /// Objects whose revision was not the one that a transaction replaced.
    pub conflicts: u64,
    /// Those of them that the server resolved.
    pub conflicts_resolved: u64,
    /// How long requests took.
    pub requests: Vec<MethodMetrics>,
    /// How long those loads took that waited for the disk.
    #[serde(serialize_with = "distribution")]
    pub cold_loads: Distribution,
    /// How long votes waited for locks.
    #[serde(serialize_with = "distribution")]
    pub lock_waits: Distribution,
    /// Transactions written together.
    #[serde(serialize_with = "distribution")]
    pub batches: Distribution,
    /// How long it took to write and sync them.
    #[serde(serialize_with = "distribution")]
    pub appends: Distribution,
    /// How long the syncs took.
    #[serde(serialize_with = "distribution")]
    pub syncs: Distribution,
    /// Writes and syncs that failed, so that commits were refused.
    pub write_failures: u64,
    /// How often commits were taken again after that.
    pub reopenings: u64,
    /// Errors that clients were answered with, by the name of the exception.
    pub errors: Vec<(&'static str, u64)>,
    /// The cache of records.
    pub cache: Cache,
    /// Checksums beside the data file.
    pub checksums: Checksums,
    /// Packs.
    pub pack: Pack,
}

/// Checksums beside a data file, and the damage that was found in it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Checksums {
    /// Bytes of the data file that have some.
    pub covered_bytes: u64,
    /// Bytes that were read only to be held against them.
    pub scrubbed_bytes: u64,
    /// Damaged places of the data file, with or without checksums.
    pub damaged: u64,
}

/// How long the requests of one method took.
#[derive(Clone, Debug, Serialize)]
pub struct MethodMetrics {
    /// As clients call it.
    pub method: &'static str,
    /// From arrival to answer.
    #[serde(serialize_with = "distribution")]
    pub seconds: Distribution,
}

/// The cache of records.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cache {
    /// Records found in it.
    pub hits: u64,
    /// Records not found in it.
    pub misses: u64,
    /// Records that had to make room.
    pub evictions: u64,
    /// Records in it.
    pub records: u64,
    /// Memory they take.
    pub bytes: u64,
    /// Memory they may take.
    pub bytes_max: u64,
}

/// Packs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pack {
    /// How many succeeded.
    pub succeeded: u64,
    /// How many failed.
    pub failed: u64,
    /// The one under way.
    pub running: Option<PackRun>,
    /// The last one that has ended.
    pub last: Option<PackEnd>,
}

/// A pack under way.
#[derive(Clone, Debug, Serialize)]
pub struct PackRun {
    /// For how long.
    pub seconds: f64,
    /// What it does.
    pub step: &'static str,
    /// How much of that is done, from 0 to 1; absent at first.
    pub done: Option<f64>,
}

/// A pack that has ended.
#[derive(Clone, Debug, Serialize)]
pub struct PackEnd {
    /// When.
    pub time: f64,
    /// How long it took.
    pub seconds: f64,
    /// Bytes freed; absent when it failed.
    pub freed_bytes: Option<u64>,
    /// Why it failed.
    pub error: Option<String>,
}

/// One connection.
#[derive(Clone, Debug, Serialize)]
pub struct Connection {
    /// Where it comes from.
    pub peer: String,
    /// What the client calls itself: its own words, not to be trusted.
    pub label: String,
    /// The storage it uses.
    pub storage: Option<String>,
    /// Whether it only reads.
    pub read_only: bool,
    /// For how long it has been there.
    pub seconds: f64,
    /// Bytes that wait to be sent to it.
    pub unsent_bytes: u64,
    /// Its requests that wait for the disk, or are long.
    pub requests_under_way: u64,
    /// Its iterators.
    pub iterators: u64,
    /// Its transaction.
    pub transaction: Option<Transaction>,
}

/// An open transaction.
#[derive(Clone, Debug, Serialize)]
pub struct Transaction {
    /// What it does.
    pub state: &'static str,
    /// For how long it has been open.
    pub seconds: f64,
    /// Its number, from its vote on.
    pub number: Option<u64>,
    /// What it waits for.
    pub waits_for: Option<LockWait>,
}

/// A lock that somebody else has.
#[derive(Clone, Debug, Serialize)]
pub struct LockWait {
    /// What it is on, in words.
    pub what: String,
    /// The number of the transaction that comes first there.
    pub behind: u64,
    /// The client whose transaction that is; absent when it is not a client's, or has ended.
    pub behind_label: Option<String>,
}

/// A distribution as an object with its first bound, its buckets and its sum.
fn distribution<S: Serializer>(value: &Distribution, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Plain<'a> {
        first_bound: f64,
        buckets: &'a [u64],
        sum: f64,
    }
    Plain { first_bound: value.first_bound, buckets: &value.buckets, sum: value.sum }
        .serialize(serializer)
}
