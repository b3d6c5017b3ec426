//! What the monitor shows of connections: their transactions, and the locks that these wait for.

use std::collections::BTreeMap;
use std::time::Instant;

use zodium_engine::commit::{LockKey, LockWait};
use zodium_monitor::{Connection, Transaction};
use zodium_zeo_server::{Inspection, Server, SessionReport};

/// Waits for locks, by storage and number of the waiting transaction.
type Waits = BTreeMap<(String, u64), LockWait>;

/// The connections that the workers have described, the oldest first.
pub(crate) fn connections_of(server: &Server, inspection: Inspection) -> Vec<Connection> {
    let reports = inspection.workers.into_iter().flat_map(|worker| worker.sessions);
    let reports: Vec<SessionReport> = reports.collect();
    let mut waits = Waits::new();
    for (name, storage) in server.storages() {
        let waiting = storage.lock_waits().into_iter();
        waits.extend(waiting.map(|wait| ((name.to_owned(), wait.owner.0), wait)));
    }
    let labels: BTreeMap<(String, u64), String> =
        reports.iter().filter_map(|report| Some((key(report)?, name_of(report)))).collect();
    let mut connections: Vec<_> =
        reports.into_iter().map(|report| connection_of(report, &waits, &labels)).collect();
    connections.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    connections
}

/// The key of a session's transaction in [`Waits`].
fn key(report: &SessionReport) -> Option<(String, u64)> {
    let number = report.transaction.as_ref()?.number?;
    Some((report.storage.clone()?, number.0))
}

fn name_of(report: &SessionReport) -> String {
    if report.label.is_empty() { report.peer.clone() } else { report.label.clone() }
}

fn connection_of(
    report: SessionReport,
    waits: &Waits,
    labels: &BTreeMap<(String, u64), String>,
) -> Connection {
    let wait = key(&report).and_then(|key| waits.get(&key));
    let waits_for = wait.map(|wait| {
        let behind = wait.behind.0;
        let storage = report.storage.clone().unwrap_or_default();
        zodium_monitor::LockWait {
            what: what_is_locked(wait.key),
            behind,
            behind_label: labels.get(&(storage, behind)).cloned(),
        }
    });
    let transaction = report.transaction.map(|transaction| Transaction {
        state: transaction.state,
        seconds: seconds_since(transaction.begun),
        number: transaction.number.map(|number| number.0),
        waits_for,
    });
    Connection {
        peer: report.peer,
        label: report.label,
        storage: report.storage,
        read_only: report.read_only,
        seconds: seconds_since(report.connected),
        unsent_bytes: report.unsent_bytes,
        requests_under_way: report.jobs as u64,
        iterators: report.iterators as u64,
        transaction,
    }
}

fn what_is_locked(key: LockKey) -> String {
    match key {
        LockKey::Object(oid) => format!("object {oid}"),
        LockKey::Clock => "a transaction that brings its own tid, or others before it".to_owned(),
    }
}

fn seconds_since(instant: Instant) -> f64 {
    instant.elapsed().as_secs_f64()
}
