//! Prefetches the objects of a list, on a thread of its own.
//!
//! Key decision: few loads at a time. A server answers in order, so a load of the application waits
//! for those that were sent before it. The list is in the order of the last run's loads, so what
//! the application needs next is mostly among them.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tracing::{debug, warn};
use zodium_types::Oid;

use crate::shared::Shared;
use crate::standing::Established;
use crate::table::LoadKey;

/// Loads sent with one write.
const BATCH_LOADS: usize = 128;
/// Batches that are under way at a time. The second keeps the server busy while a reply travels.
const BATCHES: usize = 2;
/// At most one part in this many of the cache is filled, so that nothing is evicted for a guess.
const CACHE_SHARE: usize = 2;

/// Starts to prefetch the list, once in a client's life. The thread ends with the connection.
pub(crate) fn start(shared: &Arc<Shared>, current: &Established) -> Option<JoinHandle<()>> {
    let oids = shared.warm_up.take();
    if oids.is_empty() {
        return None;
    }
    let (shared, connection) = (Arc::clone(shared), Arc::clone(&current.connection));
    let builder = thread::Builder::new().name("zodium-warm-up".to_owned());
    let started = builder.spawn(move || {
        let requested = run(&shared, &connection, &oids);
        debug!(listed = oids.len(), requested, "warmed up");
    });
    started.inspect_err(|error| warn!(%error, "cannot start the thread that warms up")).ok()
}

/// Loads the objects that are not in the cache; returns how many were requested.
fn run(shared: &Shared, connection: &crate::connection::Connection, oids: &[Oid]) -> usize {
    let mut requested = 0;
    let mut under_way = std::collections::VecDeque::new();
    for batch in oids.chunks(BATCH_LOADS) {
        let cache = shared.cache.metrics();
        if cache.bytes > cache.bytes_max / CACHE_SHARE {
            break;
        }
        let before = shared.told.so_far().next();
        let keys: Vec<LoadKey> = batch.iter().map(|oid| (*oid, before)).collect();
        let is_known = |(oid, before): &LoadKey| shared.cache.knows(*oid, *before);
        let Ok(promises) = connection.start_loads(&keys, is_known) else { break };
        requested += promises.len();
        under_way.extend(promises.into_iter().next_back());
        if under_way.len() >= BATCHES
            && under_way.pop_front().is_some_and(|last| connection.wait(&last).is_err())
        {
            break;
        }
    }
    // So that the replies are read although the application may ask for nothing yet.
    for last in under_way {
        if connection.wait(&last).is_err() {
            break;
        }
    }
    requested
}
