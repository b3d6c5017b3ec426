//! Inspection of the sessions of all workers, for the monitor.
//!
//! Each worker answers between two batches of requests. Nothing is kept up to date for this, so it
//! has no cost without a request for reports.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use zodium_engine::Database;
use zodium_types::{Distribution, Durations};

use crate::call::Method;
use crate::reports::{Inspection, ReportRequest, WorkerReport};
use crate::server::{Server, StorageState};
use crate::statistics::Statistics;

/// Blobs that clients have sent and loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlobTraffic {
    /// Blobs received for transactions.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Blobs sent to clients.
    pub sent: u64,
    /// Bytes of blobs sent to clients.
    pub sent_bytes: u64,
}

/// The metrics of a storage's sessions, on all workers together.
#[derive(Clone, Debug)]
pub struct SessionMetrics {
    /// Connected clients that have registered for it.
    pub connections: u64,
    /// Transactions that are open.
    pub active_transactions: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Transactions that clients have aborted, or left behind when their connections ended.
    pub aborts: u64,
    /// Transactions whose client was disconnected because they held their locks for too long.
    pub expired: u64,
    /// Objects whose revision was not the one that the transaction replaced.
    pub conflicts: u64,
    /// Those of them that the server resolved.
    pub conflicts_resolved: u64,
    /// Blobs that were received and sent.
    pub blobs: BlobTraffic,
    /// Durations of requests from arrival to answer, by method.
    pub requests: Vec<(&'static str, Distribution)>,
    /// Durations of loads that waited for the disk.
    pub cold_loads: Distribution,
    /// Times that votes waited for locks.
    pub lock_waits: Distribution,
    /// Errors that clients got as answers, by the name of the exception.
    pub errors: Vec<(&'static str, u64)>,
}

impl Server {
    /// Asks all workers for a report of their sessions, of which each describes up to `listed_max`.
    /// A worker that does not answer within `patience` counts as silent.
    pub async fn inspect(&self, listed_max: usize, patience: Duration) -> Inspection {
        let asked: Vec<_> =
            self.report_requests.lock().iter().map(|worker| ask(worker, listed_max)).collect();
        let end = tokio::time::Instant::now() + patience;
        let mut inspection = Inspection::default();
        for answer in asked {
            match tokio::time::timeout_at(end, answer).await {
                Ok(Ok(report)) => inspection.workers.push(report),
                _ => inspection.silent += 1,
            }
        }
        inspection
    }

    /// The storages by name.
    pub fn storages(&self) -> impl Iterator<Item = (&str, &Arc<Database>)> {
        self.storages.iter().map(|(name, served)| (&name[..], &served.storage))
    }

    /// The storages by name, with the metrics of their sessions.
    pub fn metrics(&self) -> Vec<(&str, &Arc<Database>, SessionMetrics)> {
        let storages = self.storages.iter();
        storages
            .map(|(name, served)| (&name[..], &served.storage, SessionMetrics::of(served)))
            .collect()
    }
}

fn ask(
    worker: &mpsc::UnboundedSender<ReportRequest>,
    listed_max: usize,
) -> oneshot::Receiver<WorkerReport> {
    let (answer, answered) = oneshot::channel();
    // A worker that has stopped drops the receiver, and counts as silent.
    let _ = worker.send((listed_max, answer));
    answered
}

impl SessionMetrics {
    fn of(served: &StorageState) -> SessionMetrics {
        let workers: Vec<Arc<Statistics>> = served.statistics.lock().clone();
        let sum = |counter: fn(&Statistics) -> u64| workers.iter().map(|w| counter(w)).sum();
        let total = |durations: &dyn Fn(&Statistics) -> Distribution| {
            let mut total = Durations::default().distribution();
            workers.iter().for_each(|worker| total.add(&durations(worker)));
            total
        };
        let requests = Method::all()
            .map(|(name, method)| (name, total(&|worker| worker.requests(method).distribution())))
            .filter(|(_, requests)| requests.count() > 0);
        let mut errors = std::collections::BTreeMap::new();
        for (name, count) in workers.iter().flat_map(|worker| worker.errors()) {
            *errors.entry(name).or_default() += count;
        }
        SessionMetrics {
            connections: sum(|worker| worker.connections.value()),
            active_transactions: sum(|worker| worker.active_transactions.value()),
            commits: sum(|worker| worker.commits.value()),
            aborts: sum(|worker| worker.aborts.value()),
            expired: sum(|worker| worker.expired.value()),
            conflicts: sum(|worker| worker.conflicts.value()),
            conflicts_resolved: sum(|worker| worker.conflicts_resolved.value()),
            blobs: BlobTraffic {
                received: sum(|worker| worker.blobs_received.value()),
                received_bytes: sum(|worker| worker.blob_bytes_received.value()),
                sent: sum(|worker| worker.blobs_sent.value()),
                sent_bytes: sum(|worker| worker.blob_bytes_sent.value()),
            },
            requests: requests.collect(),
            cold_loads: total(&|worker| worker.cold_loads.distribution()),
            lock_waits: total(&|worker| worker.lock_waits.distribution()),
            errors: errors.into_iter().collect(),
        }
    }
}
