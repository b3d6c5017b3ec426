//! What a node without a database says of itself, in the monitor's types.

use std::iter;
use std::sync::Arc;
use std::time::SystemTime;

use zodium_monitor::{Health, Phase, Promise, Snapshot, Source, StorageHealth, StorageState};
use zodium_neo::NodeId;
use zodium_neo_server::LightWatch;
use zodium_tls::ServerTls;

use super::light_kind::LightKind;
use crate::monitored_process::{network_of, server_of, unix_seconds, with_certificate};

/// The source of the monitor's data.
pub(super) struct MonitoredLight<K: LightKind> {
    started: f64,
    watch: LightWatch<K::Status>,
    cluster: String,
    /// The certificate of the node.
    tls: Option<Arc<ServerTls>>,
}

impl<K: LightKind> MonitoredLight<K> {
    pub(super) fn new(
        watch: LightWatch<K::Status>,
        cluster: &str,
        tls: Option<Arc<ServerTls>>,
    ) -> MonitoredLight<K> {
        let started = unix_seconds(SystemTime::now());
        MonitoredLight { started, watch, cluster: cluster.to_owned(), tls }
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
        let storage = StorageHealth { name: self.cluster.clone(), state, damaged: 0, failure };
        let mut notes = notes(K::storages_down(&status), K::storages_starting(&status));
        notes.extend_from_slice(K::notes(&status));
        notes.extend(self.tls.iter().filter_map(|tls| tls.note()));
        Health { phase: Phase::Serving, storages: vec![storage], keys_failure: None, notes }
    }

    fn snapshot(&self) -> Promise<'_, Snapshot> {
        Box::pin(async {
            let cluster = K::cluster(&self.cluster, &self.watch.status());
            Snapshot {
                server: with_certificate(server_of(self.started, 1, 0), self.tls.as_deref()),
                cluster,
                network: network_of(iter::once(self.watch.links())),
                ..Snapshot::default()
            }
        })
    }
}

/// What an operator should know of storages.
fn notes(down: u64, starting: &[NodeId]) -> Vec<String> {
    let down = (down > 0).then(|| {
        format!(
            "storages of the cluster with cells that are not running: {down}; `zodium neo status` \
             names them"
        )
    });
    let starting = starting.iter().map(|storage| {
        format!(
            "transactions begin when {storage} is ready; if it hangs, `zodium neo ctl kill \
             {storage}` goes on without it"
        )
    });
    down.into_iter().chain(starting).collect()
}

#[cfg(test)]
mod tests {
    use zodium_neo::NodeType;

    use super::*;

    #[test]
    fn a_storage_that_transactions_wait_for_is_named() {
        let hangs = NodeId::of(NodeType::Storage, 2).unwrap();
        assert_eq!(notes(0, &[]), [""; 0]);
        let notes = notes(1, &[hangs]);
        assert!(
            notes[0].contains("not running: 1") && notes[1].contains("ctl kill S2"),
            "{notes:?}"
        );
    }
}
