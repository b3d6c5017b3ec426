//! Warns of clients that hold locks for long: they voted, and do not finish.
//!
//! Key decision: it looks now and then from outside. Commits do nothing for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tracing::warn;
use zodium_engine::Database;
use zodium_engine::commit::TransactionNumber;
use zodium_zeo_server::{Server, SessionReport};

use super::reminder::Reminder;

/// Interval between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Clients that hold locks for longer are warned of.
const HELD_MAX: Duration = Duration::from_secs(60);
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
            let mut reminders: BTreeMap<_, Reminder<TransactionNumber>> = BTreeMap::new();
            loop {
                let began = Instant::now();
                tokio::time::sleep(LOOK_INTERVAL).await;
                if began.elapsed() > 2 * LOOK_INTERVAL {
                    // This process stood still: clients could not finish.
                    continue;
                }
                for (name, storage) in server.storages() {
                    let Some((number, time)) = storage.longest_client_time() else { continue };
                    let reminder = reminders.entry(name.to_owned()).or_default();
                    if reminder.is_due(number, time, HELD_MAX) {
                        warn_of(&server, (name, storage), number, time).await;
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

async fn warn_of(
    server: &Server,
    (name, storage): (&str, &Database),
    number: TransactionNumber,
    time: Duration,
) {
    let inspection = server.inspect(SESSIONS_LISTED_MAX, WORKER_PATIENCE).await;
    let mut sessions = inspection.workers.into_iter().flat_map(|worker| worker.sessions);
    let holder = sessions.find(|session: &SessionReport| {
        let held = session.transaction.as_ref().and_then(|transaction| transaction.number);
        session.storage.as_deref() == Some(name) && held == Some(number)
    });
    warn!(
        storage = name,
        peer = holder.as_ref().map(|session| &*session.peer),
        label = holder.as_ref().map(|session| &*session.label),
        seconds = time.as_secs(),
        waiting = storage.commit_status().waiting,
        "a client has voted, and holds locks without finishing: transactions that need them wait. \
         Restart the client; --transaction-timeout disconnects such clients"
    );
}
