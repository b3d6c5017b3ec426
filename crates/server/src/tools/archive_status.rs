//! The file that shows how an archiver is: for monitoring.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use zodium_disk::with_suffix;
use zodium_types::Tid;

use crate::streams::complain;
use crate::supervisor;

/// How often the file is written while nothing else happens.
const INTERVAL: Duration = Duration::from_secs(1);

/// How an archiver is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    /// The last restore point.
    pub(super) point: u64,
    /// Its last transaction.
    pub(super) last: Tid,
    /// Transactions that were archived since the last call.
    pub(super) transactions: u64,
    /// Whether the storage has no more.
    pub(super) is_caught_up: bool,
    /// Whether the whole storage is read once more.
    pub(super) is_rereading: bool,
}

/// Writes the state to a file, and tells the service manager.
pub(super) struct StatusFile {
    path: Option<PathBuf>,
    last: Option<Status>,
    transactions: u64,
    errors: u64,
    /// When all that the storage had was archived.
    caught_up: Instant,
    /// When the file was written: with which state and point, and whether all was being reread.
    written: Option<(Instant, (&'static str, u64, bool))>,
}

impl StatusFile {
    pub(super) fn new(path: Option<PathBuf>) -> StatusFile {
        let (last, written, caught_up) = (None, None, Instant::now());
        StatusFile { path, last, transactions: 0, errors: 0, caught_up, written }
    }

    /// A look at the storage succeeded.
    pub(super) fn archived(&mut self, status: &Status) {
        self.transactions += status.transactions;
        if status.is_caught_up {
            self.caught_up = Instant::now();
        }
        self.last = Some(*status);
        let state = if status.is_caught_up { "following" } else { "catching up" };
        self.write(state, None);
    }

    /// It failed.
    pub(super) fn failed(&mut self, error: &str) {
        self.errors += 1;
        self.write("retrying", Some(error));
    }

    /// The archiver ends.
    pub(super) fn ended(&mut self) {
        self.write("ended", None);
    }

    fn write(&mut self, state: &'static str, error: Option<&str>) {
        let point = self.last.map_or(0, |status| status.point);
        let is_rereading = self.last.is_some_and(|status| status.is_rereading);
        let now = (state, point, is_rereading);
        let is_recent =
            self.written.is_some_and(|(at, before)| before == now && at.elapsed() < INTERVAL);
        if is_recent {
            return;
        }
        self.written = Some((Instant::now(), now));
        let lag = match state {
            "following" => 0.0,
            _ => self.caught_up.elapsed().as_secs_f64(),
        };
        let last = self.last.map_or(Tid::ZERO, |status| status.last);
        supervisor::status(&format!("{state}, {lag:.0} s behind, at transaction {last}"));
        let Some(path) = &self.path else { return };
        let text = match path.extension().is_some_and(|end| end == "prom") {
            true => self.metrics(state, lag),
            false => self.json(state, lag, error),
        };
        if let Err(error) = replace(path, &text) {
            complain!("zodium: cannot write {}: {error}", path.display());
        }
    }

    fn json(&self, state: &str, lag: f64, error: Option<&str>) -> String {
        let status = self.last;
        let text = json!({
            "state": state,
            "lag_seconds": lag,
            "point": status.map(|status| status.point),
            "last": status.map(|status| status.last.to_string()),
            "transactions": self.transactions,
            "rereading": status.is_some_and(|status| status.is_rereading),
            "errors": self.errors,
            "error": error,
            "pid": std::process::id(),
            "updated": Timestamp::now().to_string(),
        });
        format!("{text}\n")
    }

    fn metrics(&self, state: &str, lag: f64) -> String {
        let last = self.last.map_or(Tid::ZERO, |status| status.last);
        let time = last.to_unix_nanos() as f64 / 1e9;
        let metric = |name: &str, kind: &str, help: &str, value: f64| {
            let name = format!("zodium_backup_{name}");
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
        };
        let is_following = f64::from(u8::from(state == "following"));
        [
            metric(
                "following",
                "gauge",
                "1 while all that was committed is archived.",
                is_following,
            ),
            metric("lag_seconds", "gauge", "Time since all was archived.", lag),
            metric("last_transaction_seconds", "gauge", "Time of the last tid, Unix.", time),
            metric(
                "transactions_total",
                "counter",
                "Transactions that were archived.",
                self.transactions as f64,
            ),
            metric("errors_total", "counter", "Attempts that failed.", self.errors as f64),
        ]
        .concat()
    }
}

/// Replaces a file, so that no reader sees a part of it.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = with_suffix(path, ".tmp");
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_says_how_the_archiver_is() {
        let folder = tempfile::tempdir().unwrap();
        let status = Status {
            point: 3,
            last: Tid(1 << 50),
            transactions: 7,
            is_caught_up: true,
            is_rereading: false,
        };
        for name in ["status.json", "status.prom"] {
            let path = folder.path().join(name);
            let mut file = StatusFile::new(Some(path.clone()));
            file.archived(&status);
            let text = fs::read_to_string(&path).unwrap();
            let expected = match name {
                "status.json" => ["\"state\":\"following\"", "\"transactions\":7"],
                _ => ["zodium_backup_following 1\n", "zodium_backup_transactions_total 7\n"],
            };
            for part in expected {
                assert!(text.contains(part), "{text}");
            }
            file.failed("no route");
            assert_ne!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
