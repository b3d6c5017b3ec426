//! What a node without a database says of itself, in the monitor's types.

use std::iter;
use std::time::SystemTime;

use zodium_monitor::{Health, Phase, Promise, Snapshot, Source, StorageHealth, StorageState};
use zodium_neo_server::LightWatch;

use super::light_kind::LightKind;
use crate::monitored_process::{network_of, server_of, unix_seconds};

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
            let cluster = K::cluster(&self.cluster, &self.watch.status());
            Snapshot {
                server: server_of(self.started, 1, 0),
                cluster,
                network: network_of(iter::once(self.watch.links())),
                ..Snapshot::default()
            }
        })
    }
}
