//! What a node without a database says of itself, in the monitor's types.

use std::time::SystemTime;

use zodium_monitor::{
    Health, Network, Phase, Promise, Snapshot, Source, StorageHealth, StorageState,
};
use zodium_neo_server::LightWatch;
use zodium_net::LinkMetrics;

use super::light_kind::LightKind;
use crate::monitoring::unix_seconds;

/// The source of the monitor's data.
pub(super) struct MonitoredLight<K: LightKind> {
    started: f64,
    watch: LightWatch<K::Status>,
    cluster: String,
}

impl<K: LightKind> MonitoredLight<K> {
    pub(super) fn new(watch: LightWatch<K::Status>, cluster: &str) -> MonitoredLight<K> {
        let started = unix_seconds(SystemTime::now());
        MonitoredLight { started, watch, cluster: cluster.to_owned() }
    }
}

impl<K: LightKind> Source for MonitoredLight<K> {
    fn health(&self) -> Health {
        let status = self.watch.status();
        let failure = K::failure(&status);
        let state = match failure {
            None => StorageState::Writable,
            Some(_) => StorageState::Waiting,
        };
        let count = K::storages_down(&status);
        let down = (count > 0).then(|| {
            format!(
                "storages of the cluster with cells that are not running: {count}; \
                 `zodium neo status` names them"
            )
        });
        let storage = StorageHealth { name: self.cluster.clone(), state, damaged: 0, failure };
        let notes = down.into_iter().collect();
        Health { phase: Phase::Serving, storages: vec![storage], notes }
    }

    fn snapshot(&self) -> Promise<'_, Snapshot> {
        Box::pin(async {
            let server = zodium_monitor::Server {
                version: env!("CARGO_PKG_VERSION"),
                started: self.started,
                workers: 1,
                workers_silent: 0,
            };
            let cluster = K::cluster(&self.cluster, &self.watch.status());
            Snapshot {
                server,
                cluster,
                network: network(self.watch.links()),
                ..Snapshot::default()
            }
        })
    }
}

/// The traffic of a node.
pub(super) fn network(links: &LinkMetrics) -> Network {
    // The ended ones first: one that ends meanwhile must not make it negative.
    let ended = links.ended.value();
    let accepted = links.accepted.value();
    Network {
        connections: accepted.saturating_sub(ended),
        accepted,
        refused: links.refused.value(),
        bytes_received: links.bytes_received.value(),
        bytes_sent: links.bytes_sent.value(),
        ..Network::default()
    }
}
