//! The answers to `server_status` and `ruok`.

use std::sync::Arc;

use zodium_pickle::Value;
use zodium_tls::PeerIdentity;
use zodium_types::Counter;

use crate::call::Method;
use crate::exception::text_value;
use crate::server::{Server, StorageState};
use crate::statistics::Statistics;

/// The status of one storage, with the names that `zeo-nagios` reads.
#[derive(serde::Serialize)]
struct Status {
    connections: u64,
    loads: u64,
    stores: u64,
    commits: u64,
    aborts: u64,
    active_txns: u64,
    lock_time: Option<f64>,
    conflicts: u64,
    conflicts_resolved: u64,
    start: String,
    waiting: u64,
    #[serde(rename = "timeout-thread-is-alive")]
    timeout_thread_is_alive: bool,
    #[serde(rename = "last-transaction")]
    last_transaction: String,
}

impl Server {
    /// The answer to `server_status`; `None` if there is no such storage.
    pub(crate) fn status(&self, name: &str) -> Option<Value<'static>> {
        let served = self.storages.get(name)?;
        Some(Status::of(self, served).to_value())
    }

    /// The answer to `ruok`: the status by storage name, for storages that this client may use.
    pub(crate) fn status_json(&self, peer: Option<&PeerIdentity>) -> String {
        let storages = self.storages.iter().filter(|(_, served)| served.admits(peer));
        let statuses = storages.map(|(name, served)| (name, Status::of(self, served)));
        let statuses: std::collections::BTreeMap<_, _> = statuses.collect();
        serde_json::to_string(&statuses).unwrap_or_default()
    }
}

impl Status {
    fn of(server: &Server, served: &StorageState) -> Status {
        let workers: Vec<Arc<Statistics>> = served.statistics.lock().clone();
        let sum = |counter: fn(&Statistics) -> &Counter| {
            workers.iter().map(|worker| counter(worker).value()).sum()
        };
        let requests = |method| workers.iter().map(|worker| worker.requests(method).values()).sum();
        let commits = served.storage.commit_status();
        Status {
            connections: sum(|s| &s.connections),
            loads: requests(Method::LoadBefore),
            stores: requests(Method::Store),
            commits: sum(|s| &s.commits),
            aborts: sum(|s| &s.aborts),
            active_txns: sum(|s| &s.active_transactions),
            lock_time: commits.oldest_grant.map(|at| served.storage.unix_seconds_at(at)),
            conflicts: sum(|s| &s.conflicts),
            conflicts_resolved: sum(|s| &s.conflicts_resolved),
            start: ctime(server.started),
            waiting: commits.waiting as u64,
            timeout_thread_is_alive: true,
            last_transaction: served.storage.last_tid().to_string(),
        }
    }

    fn to_value(&self) -> Value<'static> {
        let number = |value: u64| Value::Int(value.into());
        Value::dict([
            ("connections", number(self.connections)),
            ("loads", number(self.loads)),
            ("stores", number(self.stores)),
            ("commits", number(self.commits)),
            ("aborts", number(self.aborts)),
            ("active_txns", number(self.active_txns)),
            ("lock_time", self.lock_time.map_or(Value::None, Value::Float)),
            ("conflicts", number(self.conflicts)),
            ("conflicts_resolved", number(self.conflicts_resolved)),
            ("start", text_value(self.start.clone())),
            ("waiting", number(self.waiting)),
            ("timeout-thread-is-alive", Value::Bool(self.timeout_thread_is_alive)),
            ("last-transaction", text_value(self.last_transaction.clone())),
        ])
    }
}

/// A time as Python's `time.ctime` writes it, in UTC.
fn ctime(unix_seconds: u64) -> String {
    match i64::try_from(unix_seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok()) {
        Some(time) => time.strftime("%a %b %e %H:%M:%S %Y").to_string(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_by_time_ctime_of_python() {
        assert_eq!(ctime(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(ctime(1_704_164_645), "Tue Jan  2 03:04:05 2024");
        assert_eq!(ctime(1_763_726_574), "Fri Nov 21 12:02:54 2025");
        assert_eq!(ctime(u64::MAX), "", "there is no such time");
    }
}
