//! What a master says of itself, in the monitor's types.

use std::time::SystemTime;

use zodium_monitor::{
    Health, Network, Phase, Promise, Snapshot, Source, StorageHealth, StorageState,
};
use zodium_neo::ClusterState;
use zodium_neo_master::Status;
use zodium_neo_server::MasterWatch;

use crate::monitoring::unix_seconds;

/// The source of the monitor's data.
pub(super) struct MonitoredMaster {
    started: f64,
    watch: MasterWatch,
    cluster: String,
}

impl MonitoredMaster {
    pub(super) fn new(watch: MasterWatch, cluster: &str) -> MonitoredMaster {
        let started = unix_seconds(SystemTime::now());
        MonitoredMaster { started, watch, cluster: cluster.to_owned() }
    }
}

impl Source for MonitoredMaster {
    fn health(&self) -> Health {
        let status = self.watch.status();
        let failure = failure_of(&status);
        let state = match failure {
            None => StorageState::Writable,
            Some(_) => StorageState::Waiting,
        };
        let down = (status.storages_down > 0).then(|| {
            format!(
                "storages with cells that are not running: {}; `zodium neo status` names them",
                status.storages_down
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
            let links = self.watch.links();
            // The ended ones first: one that ends meanwhile must not make it negative.
            let ended = links.ended.value();
            let accepted = links.accepted.value();
            let network = Network {
                connections: accepted.saturating_sub(ended),
                accepted,
                refused: links.refused.value(),
                bytes_received: links.bytes_received.value(),
                bytes_sent: links.bytes_sent.value(),
                ..Network::default()
            };
            Snapshot { server, network, ..Snapshot::default() }
        })
    }
}

/// Why this master does not do its part, if so: the primary one serves, others know a primary.
fn failure_of(status: &Status) -> Option<String> {
    match (status.state, &status.primary) {
        (Some(ClusterState::Running), _) | (None, Some(_)) => None,
        (Some(state), _) => Some(format!("the cluster is {state}")),
        (None, None) => Some("looking for the primary master".to_owned()),
    }
}
