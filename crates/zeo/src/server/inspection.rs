//! Inspection of the sessions of all workers, for the monitor.
//!
//! Each worker answers between two batches of requests. Nothing is kept up to date for this, so it
//! has no cost without an inquiry.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use zodium_engine::Storage;
use zodium_engine::commit::TransactionNumber;
use zodium_types::{Distribution, Durations};

use super::call::Method;
use super::service::{LocalServer, ServedStorage, Server};
use super::session::{Session, SessionHandle};
use super::statistics::Statistics;
use super::transaction::TransactionState;

/// A request for a worker's report: the number of sessions to describe, and where to send it.
pub(crate) type Inquiry = (usize, oneshot::Sender<WorkerReport>);

/// The reports of all workers.
#[derive(Debug, Default)]
pub struct Inspection {
    /// The reports of workers that answered in time.
    pub workers: Vec<WorkerReport>,
    /// The number of workers that did not.
    pub silent: usize,
}

/// The sessions of one worker.
#[derive(Debug, Default)]
pub struct WorkerReport {
    /// The number of sessions.
    pub connections: usize,
    /// Bytes that wait to be sent to their clients.
    pub unsent_bytes: u64,
    /// Some of the sessions; those with a transaction first.
    pub sessions: Vec<SessionReport>,
}

/// One session.
#[derive(Debug)]
pub struct SessionReport {
    /// The address of the client.
    pub peer: String,
    /// The client's name for itself: untrusted text.
    pub label: String,
    /// The storage it has registered for.
    pub storage: Option<String>,
    /// Whether it is read-only.
    pub read_only: bool,
    /// When it connected.
    pub connected: Instant,
    /// Bytes that wait to be sent to it.
    pub unsent_bytes: u64,
    /// Its requests in progress on blocking threads.
    pub jobs: usize,
    /// Its open iterators.
    pub iterators: usize,
    /// Its transaction.
    pub transaction: Option<TransactionReport>,
}

/// An open transaction.
#[derive(Debug)]
pub struct TransactionReport {
    /// Its number in the commit machine, from its vote on.
    pub number: Option<TransactionNumber>,
    /// Its state.
    pub state: &'static str,
    /// When it was begun.
    pub begun: Instant,
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
    /// Transactions that clients have aborted.
    pub aborts: u64,
    /// Transactions whose client was disconnected because they held their locks for too long.
    pub expired: u64,
    /// Objects whose revision was not the one that the transaction replaced.
    pub conflicts: u64,
    /// Those of them that the server resolved.
    pub conflicts_resolved: u64,
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
            self.inquiries.lock().iter().map(|worker| ask(worker, listed_max)).collect();
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
    pub fn storages(&self) -> impl Iterator<Item = (&str, &Arc<Storage>)> {
        self.storages.iter().map(|(name, served)| (&name[..], &served.storage))
    }

    /// The storages by name, with the metrics of their sessions.
    pub fn metrics(&self) -> Vec<(&str, &Arc<Storage>, SessionMetrics)> {
        let storages = self.storages.iter();
        storages
            .map(|(name, served)| (&name[..], &served.storage, SessionMetrics::of(served)))
            .collect()
    }
}

fn ask(
    worker: &mpsc::UnboundedSender<Inquiry>,
    listed_max: usize,
) -> oneshot::Receiver<WorkerReport> {
    let (answer, answered) = oneshot::channel();
    // A worker that has stopped drops the receiver, and counts as silent.
    let _ = worker.send((listed_max, answer));
    answered
}

/// Answers inquiries for one worker, until the server is dropped.
pub(crate) async fn answer(
    local: Rc<LocalServer>,
    mut inquiries: mpsc::UnboundedReceiver<Inquiry>,
) {
    while let Some((listed_max, answer)) = inquiries.recv().await {
        // The receiver may be gone; ignore the error.
        let _ = answer.send(local.report(listed_max));
    }
}

impl LocalServer {
    fn report(&self, listed_max: usize) -> WorkerReport {
        let sessions = self.sessions.borrow();
        let (mut busy, mut idle) = (Vec::new(), Vec::new());
        let mut unsent_bytes = 0;
        for handle in sessions.values() {
            unsent_bytes += handle.link().output().len() as u64;
            let session = handle.session.borrow();
            let list = if session.transaction.is_some() { &mut busy } else { &mut idle };
            if list.len() < listed_max {
                list.push(session.report(handle));
            }
        }
        busy.extend(idle);
        busy.truncate(listed_max);
        WorkerReport { connections: sessions.len(), unsent_bytes, sessions: busy }
    }
}

impl Session {
    fn report(&self, handle: &SessionHandle) -> SessionReport {
        let registration = self.registration.as_ref();
        let transaction = self.transaction.as_ref().map(|open| TransactionReport {
            number: open.state.number(),
            state: open.state.name(),
            begun: open.begun,
        });
        SessionReport {
            peer: self.link.peer().to_owned(),
            label: self.label().to_owned(),
            storage: registration.map(|registration| registration.name.clone()),
            read_only: registration.is_some_and(|registration| registration.read_only),
            connected: self.connected,
            unsent_bytes: handle.link().output().len() as u64,
            jobs: self.jobs,
            iterators: self.iterators.len(),
            transaction,
        }
    }
}

impl TransactionState {
    fn number(&self) -> Option<TransactionNumber> {
        match self {
            TransactionState::Open { held, .. } => *held,
            TransactionState::Doomed(_) | TransactionState::Finding { .. } => None,
            TransactionState::Waiting { number, .. }
            | TransactionState::Checking { number }
            | TransactionState::Voted { number, .. }
            | TransactionState::Finishing { number, .. } => Some(*number),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            TransactionState::Open { held: None, .. } => "open",
            TransactionState::Open { held: Some(_), .. } => "resolving",
            TransactionState::Doomed(_) => "refused",
            TransactionState::Waiting { .. } => "waiting",
            TransactionState::Finding { .. } => "undoing",
            TransactionState::Checking { .. } => "checking",
            TransactionState::Voted { .. } => "voted",
            TransactionState::Finishing { .. } => "finishing",
        }
    }
}

impl SessionMetrics {
    fn of(served: &ServedStorage) -> SessionMetrics {
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
            requests: requests.collect(),
            cold_loads: total(&|worker| worker.cold_loads.distribution()),
            lock_waits: total(&|worker| worker.lock_waits.distribution()),
            errors: errors.into_iter().collect(),
        }
    }
}
