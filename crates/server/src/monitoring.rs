//! The source of the monitor's data: the server with its storages, links and keys.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tracing::info;
use zodium_configuration::MonitorOptions;
use zodium_engine::Database;
use zodium_filestorage::FileStorage;
use zodium_monitor::{
    Health, Listener, Messages, Monitor, Network, Phase, Promise, Snapshot, Source,
};
use zodium_neo_client::NeoStorage;
use zodium_net::{Arrivals, Limits, LinkMetrics, Workers};
use zodium_sql::SqlStorage;
use zodium_storage::WriteState;
use zodium_tls::ServerTls;
use zodium_zeo_server::Server;

use crate::free_space::FreeSpace;
use crate::listen_error::cannot_listen;
use crate::monitored_connections::connections_of;
use crate::monitored_process::{
    limited, network_of, server_of, unix_seconds, with_arrivals, with_certificate,
};
use crate::monitored_storage::{health_of, paths_of, slow_write_note, storage_of};
use crate::resp_monitoring::{resp_of, slow_file_note};

/// How long workers may take to describe their sessions.
const WORKER_PATIENCE: Duration = Duration::from_millis(500);
/// Connections that each worker describes. If it has more, some without a transaction are left
/// out.
const CONNECTIONS_LISTED_MAX: usize = 200;

/// The files of the storages, by the names of these.
type Files = BTreeMap<String, Arc<FileStorage>>;
/// What keeps storages on other machines, by the names of these, until they are closed.
pub(crate) type Remotes = BTreeMap<String, Weak<dyn Remote>>;

/// A NEO cluster, or a database, that may be away.
pub(crate) trait Remote: Send + Sync {
    /// Why nothing can be committed there, if so.
    fn obstacle(&self) -> Option<String>;
    /// Sentences about what is wrong there.
    fn notes(&self) -> Vec<String>;
}

impl Remote for NeoStorage {
    fn obstacle(&self) -> Option<String> {
        self.obstacle()
    }

    fn notes(&self) -> Vec<String> {
        self.notes()
    }
}

impl Remote for SqlStorage {
    fn obstacle(&self) -> Option<String> {
        self.obstacle()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The source of the monitor's data, from before storages are open until they are closed.
pub(crate) struct Watched {
    started: f64,
    free_space: FreeSpace,
    tls: Option<Arc<ServerTls>>,
    serving: Mutex<Serving>,
}

struct Serving {
    phase: Phase,
    server: Option<Arc<Server>>,
    /// By the name of their storage.
    files: Files,
    remotes: Remotes,
    links: Vec<Arc<LinkMetrics>>,
    limits: Option<Limits>,
    turned_away: Arc<AtomicU64>,
    arrivals: Arc<Arrivals>,
    /// The keys of Redis and Valkey clients, if they are served.
    resp: Option<Arc<zodium_resp_server::Server>>,
}

impl Watched {
    /// For a server that opens its storages.
    pub(crate) fn opening(tls: Option<&Arc<ServerTls>>) -> Arc<Watched> {
        let serving = Serving {
            phase: Phase::Opening,
            server: None,
            files: Files::new(),
            remotes: Remotes::new(),
            links: Vec::new(),
            limits: None,
            turned_away: Arc::default(),
            arrivals: Arc::default(),
            resp: None,
        };
        Arc::new(Watched {
            started: unix_seconds(SystemTime::now()),
            free_space: FreeSpace::new(),
            tls: tls.map(Arc::clone),
            serving: Mutex::new(serving),
        })
    }

    /// Notes that the server serves from now on.
    pub(crate) fn serves(
        &self,
        server: &Arc<Server>,
        resp: Option<&Arc<zodium_resp_server::Server>>,
        files: Files,
        remotes: Remotes,
        workers: &Workers,
    ) {
        *self.serving.lock() = Serving {
            phase: Phase::Serving,
            server: Some(Arc::clone(server)),
            files,
            remotes,
            links: workers.metrics(),
            limits: Some(workers.limits().clone()),
            turned_away: workers.turned_away(),
            arrivals: workers.arrivals(),
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

    fn remote(&self, name: &str) -> Option<Arc<dyn Remote>> {
        self.serving.lock().remotes.get(name)?.upgrade()
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
        let mut notes: Vec<_> = self.tls.iter().filter_map(|tls| tls.note()).collect();
        let storages = self.server().map_or(Vec::new(), |server| {
            let storages = server.storages();
            let health = |(name, storage): (&str, &Arc<Database>)| {
                let file = self.file(name);
                let damaged = file.as_deref().map_or(0, FileStorage::damaged_places);
                let is_full = matches!(storage.write_state(), WriteState::Full { .. });
                let path = file.as_deref().filter(|_| is_full).map(FileStorage::path);
                let free_bytes = path.and_then(|path| self.free_space.last_bytes(path));
                notes.extend(storage.blobs().and_then(|directory| directory.away()));
                let remote = self.remote(name);
                notes.extend(remote.iter().flat_map(|remote| remote.notes()));
                let obstacle = remote.and_then(|remote| remote.obstacle());
                notes.extend(slow_write_note(name, storage));
                health_of(name, storage, damaged, free_bytes, obstacle)
            };
            storages.map(health).collect()
        });
        let resp = self.serving.lock().resp.clone();
        notes.extend(resp.as_deref().and_then(slow_file_note));
        let keys_failure = resp.and_then(|resp| resp.file_failure());
        Health { phase, storages, keys_failure, notes }
    }

    fn snapshot(&self) -> Promise<'_, Snapshot> {
        Box::pin(async {
            let Some(server) = self.server() else { return self.of_server(0, 0) };
            let inspection = server.inspect(CONNECTIONS_LISTED_MAX, WORKER_PATIENCE).await;
            let silent = inspection.silent;
            let mut snapshot = self.of_server(inspection.workers.len() + silent, silent);
            snapshot.network = self.network();
            let storages = server.storages();
            let paths = storages.flat_map(|(name, storage)| {
                paths_of(storage, self.file(name).as_deref()).collect::<Vec<_>>()
            });
            self.free_space.look(paths.collect::<Vec<_>>()).await;
            snapshot.storages = server
                .metrics()
                .into_iter()
                .map(|(name, storage, sessions)| {
                    let file = self.file(name);
                    storage_of(name, storage, file.as_deref(), sessions, &self.free_space)
                })
                .collect();
            let resp = self.serving.lock().resp.clone();
            if let Some(resp) = resp {
                snapshot.resp = Some(resp_of(&resp, &self.free_space).await);
            }
            snapshot.connections = connections_of(&server, inspection);
            snapshot
        })
    }
}

impl Watched {
    fn of_server(&self, workers: usize, workers_silent: usize) -> Snapshot {
        let server = server_of(self.started, workers, workers_silent);
        Snapshot { server: with_certificate(server, self.tls.as_deref()), ..Snapshot::default() }
    }

    fn network(&self) -> Network {
        let serving = self.serving.lock();
        let turned_away = serving.turned_away.load(Ordering::Relaxed);
        let links = serving.links.iter().map(Arc::as_ref);
        let network = Network { turned_away, ..network_of(links) };
        let network = with_arrivals(network, &serving.arrivals);
        match &serving.limits {
            Some(limits) => limited(network, limits),
            None => network,
        }
    }
}
