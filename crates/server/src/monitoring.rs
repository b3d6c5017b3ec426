//! Collects the metrics of all crates for the monitor, in its types.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tracing::info;
use zodium_blobs::BlobDirectory;
use zodium_configuration::MonitorOptions;
use zodium_engine::commit::{LockKey, LockWait};
use zodium_engine::{Database, PackStatus, WriteFailure};
use zodium_filestorage::FileStorage;
use zodium_monitor::{
    Blobs, Cache, Checksums, Connection, Health, Listener, Messages, MethodMetrics, Monitor,
    Network, Pack, PackEnd, PackRun, Phase, Promise, Snapshot, Source, StorageHealth, StorageState,
    Transaction,
};
use zodium_net::{Limits, LinkMetrics, Workers};
use zodium_storage::{PackStep, WriteState};
use zodium_types::Tid;
use zodium_zeo_server::{BlobTraffic, Inspection, Server, SessionMetrics, SessionReport};

use crate::listen_error::cannot_listen;
use crate::monitored_process::{network_of, server_of, unix_seconds};
use crate::resp_monitoring::resp_of;

/// How long workers may take to describe their sessions.
const WORKER_PATIENCE: Duration = Duration::from_millis(500);
/// Connections that each worker describes. If it has more, some without a transaction are left
/// out.
const CONNECTIONS_LISTED_MAX: usize = 200;

/// The files of the storages, by the names of these.
type Files = BTreeMap<String, Arc<FileStorage>>;

/// The source of the monitor's data, from before storages are open until they are closed.
pub(crate) struct Watched {
    started: f64,
    serving: Mutex<Serving>,
}

struct Serving {
    phase: Phase,
    server: Option<Arc<Server>>,
    /// By the name of their storage.
    files: Files,
    links: Vec<Arc<LinkMetrics>>,
    limits: Option<Limits>,
    turned_away: Arc<AtomicU64>,
    /// The keys of Redis and Valkey clients, if they are served.
    resp: Option<Arc<zodium_resp_server::Server>>,
}

impl Watched {
    /// For a server that opens its storages.
    pub(crate) fn opening() -> Arc<Watched> {
        let serving = Serving {
            phase: Phase::Opening,
            server: None,
            files: Files::new(),
            links: Vec::new(),
            limits: None,
            turned_away: Arc::default(),
            resp: None,
        };
        Arc::new(Watched { started: unix_seconds(SystemTime::now()), serving: Mutex::new(serving) })
    }

    /// Notes that the server serves from now on.
    pub(crate) fn serves(
        &self,
        server: &Arc<Server>,
        resp: Option<&Arc<zodium_resp_server::Server>>,
        files: Files,
        workers: &Workers,
    ) {
        *self.serving.lock() = Serving {
            phase: Phase::Serving,
            server: Some(Arc::clone(server)),
            files,
            links: workers.metrics(),
            limits: Some(workers.limits().clone()),
            turned_away: workers.turned_away(),
            resp: resp.map(Arc::clone),
        };
    }

    /// Notes that the server is about to stop.
    pub(crate) fn closes(&self) {
        self.serving.lock().phase = Phase::Closing;
    }

    fn server(&self) -> Option<Arc<Server>> {
        self.serving.lock().server.clone()
    }

    fn file(&self, name: &str) -> Option<Arc<FileStorage>> {
        self.serving.lock().files.get(name).cloned()
    }
}

/// Starts the monitor, if one is configured.
pub(crate) fn start(
    options: Option<&MonitorOptions>,
    source: Arc<dyn Source>,
    messages: Messages,
) -> Result<Option<Monitor>> {
    let Some(MonitorOptions { address }) = options else { return Ok(None) };
    let address = &Listener::meant(address);
    let failed = || format!("cannot serve the monitor on {address}");
    let listener = Listener::bind(address).map_err(|error| cannot_listen(address, error));
    let listener = listener.with_context(failed)?;
    info!(address = %listener.address(), "monitor: /, /metrics, /health");
    Monitor::start(listener, source, messages).map(Some).with_context(failed)
}

impl Source for Watched {
    fn health(&self) -> Health {
        let phase = self.serving.lock().phase;
        let storages = self.server().map_or(Vec::new(), |server| {
            let storages = server.storages();
            let health = |(name, storage): (&str, &Arc<Database>)| {
                let damaged = self.file(name).map_or(0, |file| file.damaged_places());
                health_of(name, storage, damaged)
            };
            storages.map(health).collect()
        });
        Health { phase, storages, notes: Vec::new() }
    }

    fn snapshot(&self) -> Promise<'_, Snapshot> {
        Box::pin(async {
            let Some(server) = self.server() else { return self.of_server(0, 0) };
            let inspection = server.inspect(CONNECTIONS_LISTED_MAX, WORKER_PATIENCE).await;
            let silent = inspection.silent;
            let mut snapshot = self.of_server(inspection.workers.len() + silent, silent);
            snapshot.network = self.network(&inspection);
            snapshot.storages = server
                .metrics()
                .into_iter()
                .map(|(name, storage, sessions)| {
                    let file = self.file(name);
                    storage_of(name, storage, file.as_deref(), sessions)
                })
                .collect();
            let resp = self.serving.lock().resp.clone();
            snapshot.resp = resp.map(|resp| resp_of(&resp));
            snapshot.connections = connections_of(&server, inspection);
            snapshot
        })
    }
}

impl Watched {
    fn of_server(&self, workers: usize, workers_silent: usize) -> Snapshot {
        Snapshot { server: server_of(self.started, workers, workers_silent), ..Snapshot::default() }
    }

    fn network(&self, inspection: &Inspection) -> Network {
        let serving = self.serving.lock();
        let mut network = Network {
            unsent_bytes: inspection.workers.iter().map(|worker| worker.unsent_bytes).sum(),
            turned_away: serving.turned_away.load(Ordering::Relaxed),
            ..network_of(serving.links.iter().map(Arc::as_ref))
        };
        if let Some(limits) = &serving.limits {
            let limit = limits.memory.limit_bytes();
            network.connections_max = limits.connections_max as u64;
            network.held_bytes = limits.memory.held_bytes();
            network.held_bytes_max = (limit != u64::MAX).then_some(limit);
        }
        network
    }
}

fn health_of(name: &str, storage: &Database, damaged: u64) -> StorageHealth {
    let state = match storage.write_state() {
        _ if storage.is_closing() => StorageState::Closing,
        WriteState::Changed => StorageState::Changed,
        _ if storage.commit_status().failed => StorageState::Failed,
        WriteState::Failed => StorageState::Failed,
        WriteState::Full => StorageState::Full,
        WriteState::ReadOnly => StorageState::ReadOnly,
        WriteState::Writable => StorageState::Writable,
    };
    let failure = storage
        .write_failure()
        .filter(|_| matches!(state, StorageState::Failed | StorageState::Changed));
    let failure = failure.map(|failure| failure_of(storage, &failure));
    StorageHealth { name: name.to_owned(), state, damaged, failure }
}

/// Describes a failure, and what comes next.
fn failure_of(storage: &Database, failure: &WriteFailure) -> String {
    let next = failure.next_attempt.map(|at| storage.unix_seconds_at(at));
    let next = next.map(|at| (at - unix_seconds(SystemTime::now())).max(0.0).ceil());
    let next = match next {
        Some(seconds) => format!("the file will be reopened in {seconds} s"),
        None if storage.write_state() == WriteState::Changed => {
            "put the file back, then send SIGUSR1, or restart the server".to_owned()
        }
        None => "repair the disk, then send SIGUSR1, or restart the server".to_owned(),
    };
    format!("{}; reopening failed {} times, {next}", failure.reason, failure.attempts)
}

fn storage_of(
    name: &str,
    storage: &Database,
    file: Option<&FileStorage>,
    sessions: SessionMetrics,
) -> zodium_monitor::Storage {
    let (kept, metrics) = (storage.reader(), storage.metrics());
    let commits = metrics.commits;
    let last = storage.last_tid();
    let held_since = commits.oldest_grant.map(|at| storage.unix_seconds_at(at));
    let now = unix_seconds(SystemTime::now());
    let requests = sessions.requests.into_iter();
    zodium_monitor::Storage {
        name: name.to_owned(),
        file: kept.name(),
        size_bytes: kept.size(),
        disk_free_bytes: file.and_then(|_| disk_free(Path::new(&kept.name()))),
        objects: kept.object_count(),
        last_transaction: last.to_string(),
        last_transaction_time: (last != Tid::ZERO).then(|| last.to_unix_nanos() as f64 / 1e9),
        connections: sessions.connections,
        open_transactions: sessions.active_transactions,
        waiting_for_locks: commits.waiting as u64,
        holding_locks: commits.locking as u64,
        oldest_lock_seconds: held_since.map(|since| (now - since).max(0.0)),
        finish_queue: (commits.ready + commits.writing) as u64,
        commits: sessions.commits,
        aborts: sessions.aborts,
        expired: sessions.expired,
        conflicts: sessions.conflicts,
        conflicts_resolved: sessions.conflicts_resolved,
        requests: requests.map(|(method, seconds)| MethodMetrics { method, seconds }).collect(),
        cold_loads: sessions.cold_loads,
        lock_waits: sessions.lock_waits,
        batches: metrics.batches,
        appends: metrics.appends,
        syncs: metrics.syncs,
        write_failures: metrics.write_failures,
        reopenings: metrics.reopenings,
        errors: sessions.errors,
        blobs: storage.blobs().map(|directory| blobs_of(directory, sessions.blobs)),
        cache: file.map(cache_of).unwrap_or_default(),
        checksums: file.map(checksums_of).unwrap_or_default(),
        pack: pack_of(&metrics.pack),
    }
}

/// Space left for programs without privileges on the disk of a file.
fn disk_free(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

fn blobs_of(directory: &BlobDirectory, traffic: BlobTraffic) -> Blobs {
    let path = directory.path();
    Blobs {
        directory: path.display().to_string(),
        disk_free_bytes: disk_free(path),
        received: traffic.received,
        received_bytes: traffic.received_bytes,
        sent: traffic.sent,
        sent_bytes: traffic.sent_bytes,
    }
}

fn cache_of(file: &FileStorage) -> Cache {
    let cache = file.reader().cache_statistics();
    Cache {
        hits: cache.hits,
        misses: cache.misses,
        evictions: cache.evictions,
        records: cache.entries as u64,
        bytes: cache.bytes as u64,
        bytes_max: cache.budget_bytes as u64,
    }
}

fn checksums_of(file: &FileStorage) -> Checksums {
    let metrics = file.checksum_metrics().unwrap_or_default();
    Checksums {
        covered_bytes: metrics.covered_bytes,
        scrubbed_bytes: metrics.scrubbed_bytes,
        damaged: file.damaged_places(),
    }
}

fn pack_of(status: &PackStatus) -> Pack {
    let running = status.running.map(|run| {
        let seconds = run.started.elapsed().as_secs_f64();
        let Some((step, done, total)) = run.progress else {
            return PackRun { seconds, step: "beginning", done: None };
        };
        let step = match step {
            PackStep::Checking => "looking for damage",
            PackStep::Marking => "finding what is in use",
            PackStep::Copying => "copying",
            PackStep::Waiting => "waiting for undos and restores",
        };
        let done = (total > 0).then(|| (done as f64 / total as f64).min(1.0));
        PackRun { seconds, step, done }
    });
    let last = status.last.as_ref().map(|last| PackEnd {
        time: unix_seconds(last.at),
        seconds: last.duration.as_secs_f64(),
        freed_bytes: last.result.as_ref().ok().copied(),
        error: last.result.as_ref().err().cloned(),
    });
    Pack { succeeded: status.succeeded, failed: status.failed, running, last }
}

/// Waits for locks, by storage and number of the waiting transaction.
type Waits = BTreeMap<(String, u64), LockWait>;

fn connections_of(server: &Server, inspection: Inspection) -> Vec<Connection> {
    let reports = inspection.workers.into_iter().flat_map(|worker| worker.sessions);
    let reports: Vec<SessionReport> = reports.collect();
    let mut waits = Waits::new();
    for (name, storage) in server.storages() {
        let waiting = storage.lock_waits().into_iter();
        waits.extend(waiting.map(|wait| ((name.to_owned(), wait.owner.0), wait)));
    }
    let labels: BTreeMap<(String, u64), String> =
        reports.iter().filter_map(|report| Some((key(report)?, name_of(report)))).collect();
    let mut connections: Vec<_> =
        reports.into_iter().map(|report| connection_of(report, &waits, &labels)).collect();
    connections.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    connections
}

/// The key of a session's transaction in [`Waits`].
fn key(report: &SessionReport) -> Option<(String, u64)> {
    let number = report.transaction.as_ref()?.number?;
    Some((report.storage.clone()?, number.0))
}

fn name_of(report: &SessionReport) -> String {
    if report.label.is_empty() { report.peer.clone() } else { report.label.clone() }
}

fn connection_of(
    report: SessionReport,
    waits: &Waits,
    labels: &BTreeMap<(String, u64), String>,
) -> Connection {
    let wait = key(&report).and_then(|key| waits.get(&key));
    let waits_for = wait.map(|wait| {
        let behind = wait.behind.0;
        let storage = report.storage.clone().unwrap_or_default();
        zodium_monitor::LockWait {
            what: what_is_locked(wait.key),
            behind,
            behind_label: labels.get(&(storage, behind)).cloned(),
        }
    });
    let transaction = report.transaction.map(|transaction| Transaction {
        state: transaction.state,
        seconds: seconds_since(transaction.begun),
        number: transaction.number.map(|number| number.0),
        waits_for,
    });
    Connection {
        peer: report.peer,
        label: report.label,
        storage: report.storage,
        read_only: report.read_only,
        seconds: seconds_since(report.connected),
        unsent_bytes: report.unsent_bytes,
        requests_under_way: report.jobs as u64,
        iterators: report.iterators as u64,
        transaction,
    }
}

fn what_is_locked(key: LockKey) -> String {
    match key {
        LockKey::Object(oid) => format!("object {oid}"),
        LockKey::Clock => "a transaction that brings its own tid, or others before it".to_owned(),
    }
}

fn seconds_since(instant: Instant) -> f64 {
    instant.elapsed().as_secs_f64()
}
