//! What a node says of itself, in the monitor's types.

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use tokio::time::timeout;
use zodium_disk::with_suffix;
use zodium_monitor::{
    Health, Network, Node, NodeCell, NodeTotals, Phase, Promise, Snapshot, Source, StorageHealth,
    StorageState,
};
use zodium_neo_server::{NodeReport, NodeWatch};
use zodium_neo_storage::{CellStatus, Counts, Missing, State, Status};
use zodium_sql::{Location, NodeDatabase};
use zodium_tls::ServerTls;
use zodium_types::Tid;

use crate::monitored_process::{network_of, server_of, unix_seconds, with_certificate};

/// How long the node may take to describe itself.
const PATIENCE: Duration = Duration::from_millis(500);

/// The source of the monitor's data.
pub(super) struct MonitoredNode {
    started: f64,
    watch: NodeWatch,
    cluster: String,
    database: PathBuf,
    /// The certificate of the node.
    tls: Option<Arc<ServerTls>>,
    /// The database, once it is open and the node runs.
    serving: OnceLock<Weak<NodeDatabase>>,
}

impl MonitoredNode {
    /// For a node whose database is not open yet.
    pub(super) fn new(
        watch: NodeWatch,
        cluster: &str,
        location: &Location,
        tls: Option<Arc<ServerTls>>,
    ) -> Arc<MonitoredNode> {
        Arc::new(MonitoredNode {
            started: unix_seconds(SystemTime::now()),
            watch,
            cluster: cluster.to_owned(),
            database: location.to_string().into(),
            tls,
            serving: OnceLock::new(),
        })
    }

    /// Notes that the database is open.
    pub(super) fn serves(&self, database: &Arc<NodeDatabase>) {
        // It is set once.
        let _ = self.serving.set(Arc::downgrade(database));
    }
}

impl Source for MonitoredNode {
    fn health(&self) -> Health {
        let mut notes: Vec<String> = self.tls.iter().filter_map(|tls| tls.note()).collect();
        let Some(database) = self.serving.get() else {
            let (phase, storages) = (Phase::Opening, Vec::new());
            return Health { phase, storages, keys_failure: None, notes };
        };
        let brief = self.watch.brief();
        let obstacle = database.upgrade().and_then(|database| database.obstacle());
        let (state, failure) = match brief.state {
            _ if obstacle.is_some() => (StorageState::Unreachable, obstacle),
            State::Operating => (StorageState::Writable, None),
            state => (StorageState::Waiting, Some(words(state).to_owned())),
        };
        if brief.has_corrupted_cells {
            let note = "cells of this node are marked as corrupted: a check found that they differ \
                from other replicas; drop the node and let a new one replicate";
            notes.push(note.to_owned());
        }
        let storage = StorageHealth { name: self.cluster.clone(), state, damaged: 0, failure };
        Health { phase: Phase::Serving, storages: vec![storage], keys_failure: None, notes }
    }

    fn snapshot(&self) -> Promise<'_, Snapshot> {
        Box::pin(async {
            let report = timeout(PATIENCE, self.watch.report()).await.ok().flatten();
            let (is_silent, report) = (report.is_none(), report.unwrap_or_default());
            let server = server_of(self.started, 1, is_silent.into());
            let server = with_certificate(server, self.tls.as_deref());
            let network = self.network(&report);
            let node = Some(self.node(report.status));
            Snapshot { server, network, node, ..Snapshot::default() }
        })
    }
}

impl MonitoredNode {
    fn network(&self, report: &NodeReport) -> Network {
        let unsent_bytes = report.unsent_bytes;
        Network { unsent_bytes, ..network_of(iter::once(self.watch.links())) }
    }

    fn node(&self, status: Status) -> Node {
        let cells: Vec<_> = status.cells.iter().map(cell_of).collect();
        let lag = cells.iter().filter_map(|cell| cell.lag_seconds).fold(0.0, f64::max);
        Node {
            cluster: self.cluster.clone(),
            id: status.node.map(|node| node.to_string()),
            state: words(status.state),
            is_operating: status.state == State::Operating,
            master: status.master,
            database_bytes: size(&self.database),
            database: self.database.display().to_string(),
            partitions: status.partitions.into(),
            cells,
            backup_tid: status.backup_tid.map(|tid| tid.to_string()),
            replicating: status.replicating.map(|partition| partition.0.into()),
            checking: status.checking.map(|partition| partition.0.into()),
            replication_lag_seconds: lag,
            open_transactions: status.transactions.open,
            voted_transactions: status.transactions.voted,
            locked_transactions: status.transactions.locked,
            unvoted_bytes: status.unvoted_bytes,
            delayed_reads: status.delayed_reads,
            client_connections: status.connections.clients,
            storage_connections: status.connections.storages,
            master_connections: status.connections.masters,
            totals: totals_of(&status.counts),
        }
    }
}

/// A state in words.
pub(super) fn words(state: State) -> &'static str {
    match state {
        State::LookingForMaster => "looking for the primary master",
        State::Waiting => "waiting for the master to start the cluster",
        State::Operating => "operating",
    }
}

fn cell_of(cell: &CellStatus) -> NodeCell {
    let CellStatus { partition, state, missing } = *cell;
    let replicated = missing.map(|Missing { from, .. }| Tid(from.0.saturating_sub(1)));
    let until = missing.and_then(|missing| missing.until);
    // A cell that has nothing yet has no time to count from.
    let replicated_until = replicated.filter(|tid| *tid != Tid::ZERO);
    let lag = replicated_until.zip(until).map(|(from, until)| seconds_between(from, until));
    NodeCell {
        partition: partition.0.into(),
        state: state.name(),
        replicated: replicated.map(|tid| tid.to_string()),
        until: until.map(|tid| tid.to_string()),
        lag_seconds: lag,
    }
}

fn seconds_between(from: Tid, until: Tid) -> f64 {
    let seconds = |tid: Tid| tid.to_unix_nanos() as f64 / 1e9;
    (seconds(until) - seconds(from)).max(0.0)
}

fn totals_of(counts: &Counts) -> NodeTotals {
    NodeTotals {
        loads: counts.loads,
        remembered_loads: counts.remembered_loads,
        stores: counts.stores,
        votes: counts.votes,
        commits: counts.commits,
        aborts: counts.aborts,
        conflicts: counts.conflicts,
        deadlocks: counts.deadlocks,
        fetched_transactions: counts.fetched_transactions,
        fetched_records: counts.fetched_records,
        fed_bytes: counts.fed_bytes,
        checked_partitions: counts.checked_partitions,
        differing_cells: counts.differing_cells,
    }
}

/// The size of the database with its log.
fn size(database: &Path) -> u64 {
    let files = [database.to_owned(), with_suffix(database, "-wal")];
    files.iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum()
}
