//! Notifies systemd that the server, or a node, is ready, reloads, stops, and is alive.
//!
//! Without `NOTIFY_SOCKET` all this does nothing.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::task::JoinHandle;
use tracing::{debug, error};
use zodium_net::Workers;
use zodium_resp_server::Server;

/// Notifies that the server listens on all addresses and serves all storages.
pub(crate) fn ready(storages: usize) {
    let status = match storages {
        0 => "serving keys".to_owned(),
        1 => "serving 1 storage".to_owned(),
        _ => format!("serving {storages} storages"),
    };
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Notifies that a node listens. Whether it serves depends on its cluster, and [`status`] says so.
pub(crate) fn node_ready() {
    notify(&[NotifyState::Ready]);
}

/// Describes the state, in words.
pub(crate) fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
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

/// Notifies systemd's watchdog as long as the threads that serve clients answer, if one is
/// configured (`WatchdogSec`).
pub(crate) struct Watchdog {
    task: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// `answer` asks the threads, and is `false` when one has ended. Must be called within a tokio
    /// runtime.
    pub(crate) fn start<F>(answer: impl Fn() -> F + Send + 'static) -> Watchdog
    where
        F: Future<Output = bool> + Send + 'static,
    {
        Watchdog::start_with(answer, || false)
    }

    /// As [`Watchdog::start`], for workers. A script may keep them from answering for longer than
    /// the watchdog's limit: while it runs for no longer than it may, they count as answering.
    pub(crate) fn of_workers(workers: &Arc<Workers>, resp: Option<&Arc<Server>>) -> Watchdog {
        let (workers, resp) = (Arc::clone(workers), resp.cloned());
        let answer = move || {
            let workers = Arc::clone(&workers);
            async move { workers.answer().await }
        };
        Watchdog::start_with(answer, move || resp.as_ref().is_some_and(|resp| resp.is_in_script()))
    }

    fn start_with<F>(
        answer: impl Fn() -> F + Send + 'static,
        may_wait: impl Fn() -> bool + Send + 'static,
    ) -> Watchdog
    where
        F: Future<Output = bool> + Send + 'static,
    {
        // Twice as often as necessary, as systemd recommends.
        let watch = |limit: Duration| tokio::spawn(watch(answer, may_wait, limit / 2));
        Watchdog { task: watchdog_limit().map(watch) }
    }

    /// Stops asking, and returns when that is done.
    pub(crate) async fn stop(self) {
        if let Some(task) = self.task {
            task.abort();
            // The only error is that it was aborted.
            let _ = task.await;
        }
    }
}

/// The limit of the watchdog; a limit of nothing is none, as for systemd's own library.
fn watchdog_limit() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero())
}

async fn watch<F: Future<Output = bool>>(
    answer: impl Fn() -> F,
    may_wait: impl Fn() -> bool,
    interval: Duration,
) {
    let mut times = tokio::time::interval(interval);
    loop {
        times.tick().await;
        let mut answered = pin!(answer());
        // While this waits there are no other notifications, so the watchdog's limit passes.
        let is_whole = loop {
            tokio::select! {
                is_whole = &mut answered => break is_whole,
                _ = times.tick() => {
                    if may_wait() {
                        notify(&[NotifyState::Watchdog]);
                    }
                }
            }
        };
        if !is_whole {
            error!("a thread that serves clients has ended");
            return;
        }
        notify(&[NotifyState::Watchdog]);
    }
}
