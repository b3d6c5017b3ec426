//! What the monitor shows of keys that Redis and Valkey clients use.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use zodium_monitor::{Health, Network, Phase, Promise, Resp, RespFile, Snapshot, Source};
use zodium_net::{Arrivals, Limits, LinkMetrics, Workers};
use zodium_resp_server::Server;
use zodium_tls::ServerTls;

use crate::free_space::FreeSpace;
use crate::monitored_process::{
    limited, network_of, server_of, unix_seconds, with_arrivals, with_certificate,
};
use crate::monitored_storage::SLOW_WRITE;

/// The source of the monitor's data of a process that serves RESP only, from before its keys are
/// read until their file is closed.
pub(crate) struct WatchedResp {
    server: Arc<Server>,
    free_space: FreeSpace,
    started: f64,
    tls: Option<Arc<ServerTls>>,
    /// Empty while keys are being read.
    workers: OnceLock<WatchedWorkers>,
    is_closing: AtomicBool,
}

struct WatchedWorkers {
    links: Vec<Arc<LinkMetrics>>,
    turned_away: Arc<AtomicU64>,
    arrivals: Arc<Arrivals>,
    limits: Limits,
}

impl WatchedResp {
    /// For a server that reads its keys.
    pub(crate) fn opening(server: Arc<Server>, tls: Option<&Arc<ServerTls>>) -> WatchedResp {
        WatchedResp {
            server,
            free_space: FreeSpace::new(),
            started: unix_seconds(SystemTime::now()),
            tls: tls.map(Arc::clone),
            workers: OnceLock::new(),
            is_closing: AtomicBool::new(false),
        }
    }

    /// Notes that the server serves from now on, on these workers.
    pub(crate) fn serves(&self, workers: &Workers) {
        self.workers.get_or_init(|| WatchedWorkers {
            links: workers.metrics(),
            turned_away: workers.turned_away(),
            arrivals: workers.arrivals(),
            limits: workers.limits().clone(),
        });
    }

    /// Notes that the server is about to stop.
    pub(crate) fn closes(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }
}

impl WatchedWorkers {
    fn network(&self) -> Network {
        let turned_away = self.turned_away.load(Ordering::Relaxed);
        let links = self.links.iter().map(Arc::as_ref);
        let network = limited(Network { turned_away, ..network_of(links) }, &self.limits);
        with_arrivals(network, &self.arrivals)
    }
}

/// A sentence about a write of the file of keys that has been running for long.
pub(crate) fn slow_file_note(server: &Server) -> Option<String> {
    let time = server.file_write_time().filter(|time| *time >= SLOW_WRITE)?;
    Some(format!(
        "a write to {} has not ended for {} s: its disk does not answer, commands that write wait",
        server.file()?.display(),
        time.as_secs()
    ))
}

/// The figures of a server, in the types of the monitor.
pub(crate) async fn resp_of(server: &Server, free_space: &FreeSpace) -> Resp {
    let figures = server.figures();
    let path = server.file();
    free_space.look(path.map(Path::to_owned)).await;
    let file = figures.file_bytes.zip(path).map(|(bytes, path)| RespFile {
        bytes,
        disk_free_bytes: free_space.bytes(path),
        is_healthy: server.file_failure().is_none(),
    });
    Resp {
        keys: figures.keys,
        volatile_keys: figures.volatile_keys,
        data_bytes: figures.data_bytes,
        data_bytes_max: figures.data_bytes_max,
        connections: figures.connections,
        blocked_clients: figures.blocked_clients,
        commands: figures.commands,
        hits: figures.hits,
        misses: figures.misses,
        expired: figures.expired,
        evicted: figures.evicted,
        refused_for_memory: figures.refused_for_memory,
        refused_for_file: figures.refused_for_file,
        file,
    }
}

impl Source for WatchedResp {
    fn health(&self) -> Health {
        let phase = match self.workers.get() {
            _ if self.is_closing.load(Ordering::Relaxed) => Phase::Closing,
            None => Phase::Opening,
            Some(_) => Phase::Serving,
        };
        let keys_failure = self.server.file_failure();
        let tls = self.tls.iter().filter_map(|tls| tls.note());
        let notes = tls.chain(slow_file_note(&self.server)).collect();
        Health { phase, storages: Vec::new(), keys_failure, notes }
    }

    fn snapshot(&self) -> Promise<'_, Snapshot> {
        Box::pin(async {
            let server = |workers| {
                with_certificate(server_of(self.started, workers, 0), self.tls.as_deref())
            };
            let Some(workers) = self.workers.get() else {
                return Snapshot { server: server(0), ..Snapshot::default() };
            };
            Snapshot {
                server: server(workers.links.len()),
                network: workers.network(),
                resp: Some(resp_of(&self.server, &self.free_space).await),
                ..Snapshot::default()
            }
        })
    }
}
