//! Warns of a disk that does not answer: a write or sync of a storage has not ended for long.
//!
//! Key decision: it looks now and then from outside, as the thread that writes is the one that
//! hangs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tracing::{info, warn};
use zodium_zeo_server::Server;

use super::reminder::Reminder;
use crate::monitored_storage::SLOW_WRITE;

/// Interval between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The task that looks at all storages. It ends when dropped.
pub(super) struct WriteWatch(JoinHandle<()>);

/// What is known of the writes of a storage.
#[derive(Default)]
struct Writes {
    reminder: Reminder<u64>,
    /// Number of the write that hangs; changes when one was seen to end.
    number: u64,
    /// Whether the current one was warned of.
    is_told: bool,
    /// Age of the current one at the last look.
    age: Duration,
}

impl WriteWatch {
    /// Starts to look. Must be called within a tokio runtime.
    pub(super) fn start(server: &Arc<Server>) -> WriteWatch {
        let server = Arc::clone(server);
        WriteWatch(tokio::spawn(async move {
            let mut writes: BTreeMap<_, Writes> = BTreeMap::new();
            loop {
                let began = Instant::now();
                tokio::time::sleep(LOOK_INTERVAL).await;
                if began.elapsed() > 2 * LOOK_INTERVAL {
                    // This process stood still, and its writes with it.
                    continue;
                }
                for (name, storage) in server.storages() {
                    let file = || storage.reader().name();
                    writes.entry(name.to_owned()).or_default().look(storage.write_time(), file);
                }
            }
        }))
    }
}

impl Drop for WriteWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Writes {
    /// Looks at the write that has been running for `time`.
    fn look(&mut self, time: Option<Duration>, file: impl Fn() -> String) {
        if time.is_none_or(|time| time < self.age) {
            if std::mem::take(&mut self.is_told) {
                info!(file = %file(), "the disk answers again: the write has ended");
            }
            self.number += 1;
        }
        self.age = time.unwrap_or_default();
        let Some(time) = time else { return };
        if self.reminder.is_due(self.number, time, SLOW_WRITE) {
            self.is_told = true;
            warn!(
                file = %file(), seconds = time.as_secs(),
                "a write has not ended: the disk does not answer, commits wait for it. Look at the \
                 disk, and at the log of the kernel"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_hangs_is_told_of_until_it_ends() {
        let mut writes = Writes::default();
        let mut told = |seconds: Option<u64>| {
            writes.look(seconds.map(Duration::from_secs), || "Data.fs".to_owned());
            writes.is_told
        };
        assert!(!told(None) && !told(Some(1)) && !told(Some(9)));
        assert!(told(Some(10)) && told(Some(12)), "it hangs");
        assert!(!told(Some(2)), "another write");
        assert!(told(Some(11)) && !told(None));
    }
}
