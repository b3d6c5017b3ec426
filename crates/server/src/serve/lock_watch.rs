//! Warns of clients that hold locks for long: they voted, and do not finish.
//!
//! Key decision: it looks now and then from outside. Commits do nothing for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::JoinHandle;
use tracing::warn;
use zodium_engine::Database;
use zodium_zeo_server::{Server, SessionReport};

use crate::monitored_process::unix_seconds;

/// Interval between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Locks that are held for longer are warned of.
const HELD_MAX: Duration = Duration::from_secs(60);
/// Interval between two warnings about a storage.
const WARNING_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// How long workers may take to describe their sessions.
const WORKER_PATIENCE: Duration = Duration::from_millis(500);
/// Sessions that each worker describes, those with a transaction first.
const SESSIONS_LISTED_MAX: usize = 200;

/// The task that looks at all storages. It ends when dropped.
pub(super) struct LockWatch(JoinHandle<()>);

impl LockWatch {
    /// Starts to look. Must be called within a tokio runtime.
    pub(super) fn start(server: &Arc<Server>) -> LockWatch {
        let server = Arc::clone(server);
        LockWatch(tokio::spawn(async move {
            let mut told = BTreeMap::new();
            loop {
                tokio::time::sleep(LOOK_INTERVAL).await;
                for (name, storage) in server.storages() {
                    let told: &mut Option<Told> = told.entry(name.to_owned()).or_default();
                    let Some(granted) = storage.commit_status().oldest_grant else { continue };
                    let age = age_of(storage, granted);
                    if is_to_be_told(granted, age, told) {
                        warn_of(&server, (name, storage), age).await;
                    }
                }
            }
        }))
    }
}

impl Drop for LockWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The last warning about a storage.
struct Told {
    /// When the oldest locks were granted (monotonic), which tells them from others.
    granted: Duration,
    /// Their age then.
    age: Duration,
}

fn age_of(storage: &Database, granted: Duration) -> Duration {
    let seconds = unix_seconds(SystemTime::now()) - storage.unix_seconds_at(granted);
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Whether the oldest locks are to be warned of now.
fn is_to_be_told(granted: Duration, age: Duration, told: &mut Option<Told>) -> bool {
    let last = told.as_ref().filter(|told| told.granted == granted);
    let is_due = age >= last.map_or(HELD_MAX, |told| told.age + WARNING_INTERVAL);
    if is_due {
        *told = Some(Told { granted, age });
    }
    is_due
}

async fn warn_of(server: &Server, (name, storage): (&str, &Database), age: Duration) {
    let inspection = server.inspect(SESSIONS_LISTED_MAX, WORKER_PATIENCE).await;
    let owner = storage.oldest_lock_owner();
    let mut sessions = inspection.workers.into_iter().flat_map(|worker| worker.sessions);
    let holder = sessions.find(|session: &SessionReport| {
        let number = session.transaction.as_ref().and_then(|transaction| transaction.number);
        session.storage.as_deref() == Some(name) && number.is_some() && number == owner
    });
    warn!(
        storage = name,
        peer = holder.as_ref().map(|session| &*session.peer),
        label = holder.as_ref().map(|session| &*session.label),
        seconds = age.as_secs(),
        waiting = storage.commit_status().waiting,
        "a client has voted, and holds locks without finishing: transactions that need them wait. \
         Restart the client; --transaction-timeout disconnects such clients"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_told_of_after_a_minute_and_then_every_ten_minutes() {
        let mut told = None;
        let mut looks = |granted: u64, ages: &[u64]| {
            let granted = Duration::from_secs(granted);
            let mut is_told = |age| is_to_be_told(granted, Duration::from_secs(age), &mut told);
            ages.iter().copied().filter(|age| is_told(*age)).collect::<Vec<_>>()
        };
        assert_eq!(looks(1, &[0, 59, 60, 70, 650, 660, 1250, 1260]), [60, 660, 1260]);
        assert_eq!(looks(2, &[5, 61, 62]), [61], "other locks");
    }
}
