//! Disconnects clients that have sent nothing for a time: the setting `timeout`.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use zodium_keyspace::now;
use zodium_net::CloseReason;

use crate::local::LocalServer;

/// Interval between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Looks at the clients of a worker until it ends.
pub(crate) async fn watch(local: Rc<LocalServer>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let seconds = local.server.settings.idle_seconds_max.load(Ordering::Relaxed);
        if seconds > 0 {
            disconnect(&local, seconds);
        }
    }
}

/// Subscribers, monitors, and clients that wait for an element, may be silent.
fn disconnect(local: &LocalServer, seconds: u64) {
    let now = now();
    let oldest = now.saturating_sub(seconds.saturating_mul(1000));
    local.each_client(|client| {
        let used_at = &client.shared.used_at;
        // The session is not told of each part of a long request, nor of those of a long answer.
        let unsent = client.link.output().len();
        let is_sent_to = client.unsent.replace(unsent) != unsent;
        if client.link.takes_activity() || is_sent_to {
            used_at.store(now, Ordering::Relaxed);
        }
        let is_silent = used_at.load(Ordering::Relaxed) < oldest;
        let may_be = client.is_blocked()
            || client.is_monitor.get()
            || client.subscriptions.borrow().count() > 0;
        if is_silent && !may_be {
            // It may be silent since it reads nothing: it would never take what is left.
            client.link.cut(CloseReason::Done);
        }
    });
}
