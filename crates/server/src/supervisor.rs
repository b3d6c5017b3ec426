//! Notifies systemd that the server is ready, reloads, stops, and is alive.
//!
//! Without `NOTIFY_SOCKET` all this does nothing.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::task::JoinHandle;
use tracing::{debug, error};
use zodium_net::Workers;

/// Notifies that the server listens on all addresses and serves all storages.
pub(crate) fn ready(storages: usize) {
    let status = match storages {
        1 => "serving 1 storage".to_owned(),
        _ => format!("serving {storages} storages"),
    };
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Extends the time limit of the start: it makes progress, and may take `more` from now on.
pub(crate) fn starting(status: &str, more: Duration) {
    let more = u32::try_from(more.as_micros()).unwrap_or(u32::MAX);
    notify(&[NotifyState::Status(status), NotifyState::ExtendTimeoutUsec(more)]);
}

/// Notifies that the server reopens its log files; followed by [`ready`].
pub(crate) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// Notifies that an orderly stop has begun.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!(%error, "cannot notify the service manager");
    }
}

/// Notifies systemd's watchdog as long as every worker answers, if one is configured
/// (`WatchdogSec`).
pub(crate) struct Watchdog {
    task: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Must be called within a tokio runtime.
    pub(crate) fn start(workers: &Arc<Workers>) -> Watchdog {
        let watch = |limit: Duration| {
            let workers = Arc::clone(workers);
            // Twice as often as necessary, as systemd recommends.
            tokio::spawn(watch(workers, limit / 2))
        };
        Watchdog { task: sd_notify::watchdog_enabled().map(watch) }
    }

    /// Stops asking the workers, and returns when that is done.
    pub(crate) async fn stop(self) {
        if let Some(task) = self.task {
            task.abort();
            // The only error is that it was aborted.
            let _ = task.await;
        }
    }
}

async fn watch(workers: Arc<Workers>, interval: Duration) {
    let mut times = tokio::time::interval(interval);
    loop {
        times.tick().await;
        // While this waits there are no notifications, so the watchdog's limit passes.
        if !workers.answer().await {
            error!("a worker has ended");
            return;
        }
        notify(&[NotifyState::Watchdog]);
    }
}
