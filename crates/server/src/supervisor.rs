//! What systemd is told: that we serve, stop, reload, are alive.
//!
//! Without `NOTIFY_SOCKET` nobody listens, and all this does nothing.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::task::JoinHandle;
use tracing::{debug, error};
use zodium_net::Workers;

/// All addresses are listened on, all storages served.
pub(crate) fn ready(storages: usize) {
    let status = match storages {
        1 => "serving 1 storage".to_owned(),
        _ => format!("serving {storages} storages"),
    };
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// The start makes progress, and may take `more` from now on without being given up.
pub(crate) fn starting(status: &str, more: Duration) {
    let more = u32::try_from(more.as_micros()).unwrap_or(u32::MAX);
    notify(&[NotifyState::Status(status), NotifyState::ExtendTimeoutUsec(more)]);
}

/// The log files are being opened anew; followed by [`ready`].
pub(crate) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// A stop in order has begun.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!(%error, "the service manager cannot be told");
    }
}

/// Tells systemd that we are alive for as long as every worker answers, if it wants to know
/// (`WatchdogSec`).
pub(crate) struct Watchdog {
    task: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Within a tokio runtime.
    pub(crate) fn start(workers: &Arc<Workers>) -> Watchdog {
        let watch = |limit: Duration| {
            let workers = Arc::clone(workers);
            // Twice as often as it has to be, which is what systemd recommends.
            tokio::spawn(watch(workers, limit / 2))
        };
        Watchdog { task: sd_notify::watchdog_enabled().map(watch) }
    }

    /// Returns when the workers are no longer asked.
    pub(crate) async fn stop(self) {
        if let Some(task) = self.task {
            task.abort();
            // Aborted, which is what was wanted.
            let _ = task.await;
        }
    }
}

async fn watch(workers: Arc<Workers>, interval: Duration) {
    let mut times = tokio::time::interval(interval);
    loop {
        times.tick().await;
        // As long as this waits nothing is said, and the limit passes.
        if !workers.answer().await {
            error!("a worker has ended");
            return;
        }
        notify(&[NotifyState::Watchdog]);
    }
}
