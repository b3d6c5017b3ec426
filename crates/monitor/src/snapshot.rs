//! A snapshot of a server, as plain data.
//!
//! Totals count from the start of the server. Durations are in seconds, points in time in seconds
//! since the Unix epoch.

use serde::{Serialize, Serializer};
use zodium_types::Distribution;

use crate::cluster::Cluster;
use crate::node::Node;
use crate::resp::Resp;

/// All data that the monitor shows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// The server as a whole.
    pub server: Server,
    /// All connections together.
    pub network: Network,
    /// Each storage.
    pub storages: Vec<Storage>,
    /// Connections; a part of them when there are very many.
    pub connections: Vec<Connection>,
    /// A storage node of a NEO cluster, in place of storages.
    pub node: Option<Node>,
    /// A NEO cluster, of its admin.
    pub cluster: Option<Cluster>,
    /// The keys of Redis and Valkey clients, if they are served.
    pub resp: Option<Resp>,
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
    /// Workers that did not report their connections in time.
    pub workers_silent: usize,
    /// When its certificate expires; absent without TLS.
    pub certificate_not_after: Option<f64>,
}

/// All connections together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Network {
    /// Connections that are open.
    pub connections: u64,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Moves of connections between workers.
    pub moved: u64,
    /// Connections refused or ended because of the client, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// The hosts from which most connections came within a minute, with their numbers.
    pub arrivals: Vec<(String, u64)>,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes that wait to be sent.
    pub unsent_bytes: u64,
    /// Limit of open connections; absent without a limit.
    pub connections_max: Option<u64>,
    /// Connections that were closed at once because there were too many.
    pub turned_away: u64,
    /// Memory that clients make the server hold, in bytes; absent where it is not counted.
    pub held_bytes: Option<u64>,
    /// Limit of that memory; absent without a limit.
    pub held_bytes_max: Option<u64>,
}

/// One storage.
#[derive(Clone, Debug, Serialize)]
pub struct Storage {
    /// The name that clients ask for.
    pub name: String,
    /// The path of its data file.
    pub file: String,
    /// Size of the data file.
    pub size_bytes: u64,
    /// Space left on the disk of the data file; absent where it cannot be told.
    pub disk_free_bytes: Option<u64>,
    /// Objects in its index.
    pub objects: u64,
    /// The last transaction.
    pub last_transaction: String,
    /// Time of the last transaction; absent while there is none.
    pub last_transaction_time: Option<f64>,
    /// Clients that use it.
    pub connections: u64,
    /// Transactions that are open.
    pub open_transactions: u64,
    /// Transactions that wait for locks.
    pub waiting_for_locks: u64,
    /// Transactions that hold locks.
    pub holding_locks: u64,
    /// Time for which the oldest locks have been held; absent when none are.
    pub oldest_lock_seconds: Option<f64>,
    /// Transactions that are being written, or wait to be written.
    pub finish_queue: u64,
    /// For how long the current write has been running; absent when nothing is written.
    pub write_seconds: Option<f64>,
    /// Transactions committed.
    pub commits: u64,
    /// Transactions that clients aborted, or left behind when their connections ended.
    pub aborts: u64,
    /// Transactions that held their locks for too long.
    pub expired: u64,
    /// Objects whose revision was not the one that a transaction replaced.
    pub conflicts: u64,
    /// Those of them that the server resolved.
    pub conflicts_resolved: u64,
    /// Durations of requests.
    pub requests: Vec<MethodMetrics>,
    /// Durations of loads that waited for the disk.
    #[serde(serialize_with = "distribution")]
    pub cold_loads: Distribution,
    /// Times that votes waited for locks.
    #[serde(serialize_with = "distribution")]
    pub lock_waits: Distribution,
    /// Transactions in a batch.
    #[serde(serialize_with = "distribution")]
    pub batches: Distribution,
    /// Times to write and sync a batch.
    #[serde(serialize_with = "distribution")]
    pub appends: Distribution,
    /// Times to sync a batch.
    #[serde(serialize_with = "distribution")]
    pub syncs: Distribution,
    /// Writes and syncs that failed, after which commits were refused.
    pub write_failures: u64,
    /// How often the file was reopened for commits after that.
    pub reopenings: u64,
    /// Errors that clients got as answers, by the name of the exception.
    pub errors: Vec<(&'static str, u64)>,
    /// The blobs; absent without a blob directory.
    pub blobs: Option<Blobs>,
    /// The cache of records; absent without a data file.
    pub cache: Option<Cache>,
    /// Checksums beside the data file; absent without one.
    pub checksums: Option<Checksums>,
    /// Packs.
    pub pack: Pack,
}

/// The blobs of a storage.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Blobs {
    /// The path of their directory.
    pub directory: String,
    /// Space left on the disk of the directory; absent where it cannot be told.
    pub disk_free_bytes: Option<u64>,
    /// Blobs received from clients.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Blobs sent to clients. Those in a directory that clients share are not sent.
    pub sent: u64,
    /// Bytes of blobs sent to clients.
    pub sent_bytes: u64,
}

/// Checksums of a data file, and the damage found in it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Checksums {
    /// Bytes of the data file that have checksums.
    pub covered_bytes: u64,
    /// Bytes that were read only to verify checksums.
    pub scrubbed_bytes: u64,
    /// Damaged places of the data file, with or without checksums.
    pub damaged: u64,
}

/// Durations of the requests of one method.
#[derive(Clone, Debug, Serialize)]
pub struct MethodMetrics {
    /// Its name in the protocol.
    pub method: &'static str,
    /// Time from arrival to answer.
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
    /// Records evicted from it.
    pub evictions: u64,
    /// Records in it.
    pub records: u64,
    /// Memory of the records in it.
    pub bytes: u64,
    /// Limit of that memory.
    pub bytes_max: u64,
}

/// Packs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pack {
    /// Packs that succeeded.
    pub succeeded: u64,
    /// Packs that failed.
    pub failed: u64,
    /// The one under way.
    pub running: Option<PackRun>,
    /// The last one that has ended.
    pub last: Option<PackEnd>,
}

/// A pack under way.
#[derive(Clone, Debug, Serialize)]
pub struct PackRun {
    /// Time since it began.
    pub seconds: f64,
    /// Its current step.
    pub step: &'static str,
    /// The part of the step that is done, from 0 to 1; absent at first.
    pub done: Option<f64>,
}

/// A pack that has ended.
#[derive(Clone, Debug, Serialize)]
pub struct PackEnd {
    /// When it ended.
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
    /// The address of the client.
    pub peer: String,
    /// The client's name for itself: untrusted text.
    pub label: String,
    /// The storage it uses.
    pub storage: Option<String>,
    /// Whether it is read-only.
    pub read_only: bool,
    /// Time since it was accepted.
    pub seconds: f64,
    /// Bytes that wait to be sent to it.
    pub unsent_bytes: u64,
    /// Its requests that wait for the disk, or take long.
    pub requests_under_way: u64,
    /// Its open iterators.
    pub iterators: u64,
    /// Its transaction.
    pub transaction: Option<Transaction>,
}

/// An open transaction.
#[derive(Clone, Debug, Serialize)]
pub struct Transaction {
    /// Its state.
    pub state: &'static str,
    /// Time since it began.
    pub seconds: f64,
    /// Its number, from its vote on.
    pub number: Option<u64>,
    /// The lock that it waits for.
    pub waits_for: Option<LockWait>,
}

/// A lock that a transaction waits for.
#[derive(Clone, Debug, Serialize)]
pub struct LockWait {
    /// The locked object, in words.
    pub what: String,
    /// The number of the transaction that is first in the queue.
    pub behind: u64,
    /// The client of that transaction; absent when it is not a client's, or has ended.
    pub behind_label: Option<String>,
}

/// Serializes a distribution as an object with its first bound, its buckets and its sum.
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
