//! What is done ten times a second: above all, keys are removed whose time is past, or that memory
//! has no room for.

use std::sync::Arc;
use std::time::Duration;

use zodium_keyspace::now;

use crate::durability::compact_if_due;
use crate::memory::{is_off, make_all_room};
use crate::parked::take_effect_of_torn;
use crate::server::Server;
use crate::ties::free_cut;
use crate::transaction::end_left_watches;
use crate::waiting::serve_put_off;

/// Interval between two removals.
const INTERVAL: Duration = Duration::from_millis(100);
/// Keys of each database that are removed while a stripe is locked.
const KEYS_MAX: usize = 64;

/// Removes keys until the worker ends.
pub(crate) async fn expire(server: Arc<Server>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        if is_off(&server) {
            continue;
        }
        compact_if_due(&server);
        serve_put_off(&server);
        take_effect_of_torn(&server);
        end_left_watches(&server);
        let keys_max = server.settings.number("tracking-table-max-keys");
        server.tracking.limit(&server.clients, keys_max);
        loop {
            let mut removed = Vec::new();
            let is_more = {
                let now = now();
                let log = |removed: &[_]| server.log.append_removed(removed, now);
                server.keyspace.expire(now, KEYS_MAX, &mut removed, &log)
            };
            server.tell_expired(&removed);
            let is_more = free_cut(&server, KEYS_MAX) || is_more;
            if !is_more {
                break;
            }
            // Clients of the worker come in between.
            tokio::task::yield_now().await;
        }
        make_all_room(&server).await;
    }
}
