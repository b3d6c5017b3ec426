//! What the monitor shows of keys that Redis and Valkey clients use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use zodium_monitor::{Health, Network, Phase, Promise, Resp, Snapshot, Source};
use zodium_net::{Limits, LinkMetrics, Workers};
use zodium_resp_server::Server;

use crate::monitored_process::{limited, network_of, server_of, unix_seconds};

/// The source of the monitor's data of a process that serves RESP only.
pub(crate) struct WatchedResp {
    server: Arc<Server>,
    links: Vec<Arc<LinkMetrics>>,
    turned_away: Arc<AtomicU64>,
    limits: Limits,
    started: f64,
    workers: usize,
    is_closing: AtomicBool,
}

impl WatchedResp {
    /// For a server on these workers.
    pub(crate) fn new(server: Arc<Server>, workers: &Workers) -> WatchedResp {
        let links = workers.metrics();
        WatchedResp {
            server,
            turned_away: workers.turned_away(),
            limits: workers.limits().clone(),
            started: unix_seconds(SystemTime::now()),
            workers: links.len(),
            links,
            is_closing: AtomicBool::new(false),
        }
    }

    /// Notes that the server is about to stop.
    pub(crate) fn closes(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    fn network(&self) -> Network {
        let turned_away = self.turned_away.load(Ordering::Relaxed);
        let links = self.links.iter().map(Arc::as_ref);
        limited(Network { turned_away, ..network_of(links) }, &self.limits)
    }
}

/// The figures of a server, in the types of the monitor.
pub(crate) fn resp_of(server: &Server) -> Resp {
    let figures = server.figures();
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
    }
}

impl Source for WatchedResp {
    fn health(&self) -> Health {
        let is_closing = self.is_closing.load(Ordering::Relaxed);
        let phase = if is_closing { Phase::Closing } else { Phase::Serving };
        Health { phase, storages: Vec::new(), notes: Vec::new() }
    }

    fn snapshot(&self) -> Promise<'_, Snapshot> {
        Box::pin(async {
            Snapshot {
                server: server_of(self.started, self.workers, 0),
                network: self.network(),
                resp: Some(resp_of(&self.server)),
                ..Snapshot::default()
            }
        })
    }
}
