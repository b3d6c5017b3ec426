//! Reports of sessions, for the monitor.

use std::time::Instant;

use tokio::sync::oneshot;
use zodium_engine::commit::TransactionNumber;

/// A request for a worker's report: the number of sessions to describe, and where to send it.
pub(crate) type ReportRequest = (usize, oneshot::Sender<WorkerReport>);

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
