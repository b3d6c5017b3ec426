//! The limit of memory, and removing keys to keep it.
//!
//! Key decision: a command removes a few keys only, as its worker has other clients. What is still
//! too much goes between the requests of all clients. So that memory is bounded nevertheless, a
//! client whose command has taken more than it removed sends no other before there is room.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use zodium_keyspace::{Eviction, NotEvicted, Removed, now};

use crate::client::Client;
use crate::events::Class;
use crate::local::LocalServer;
use crate::server::Server;

/// Most keys that are removed in one go: a key takes microseconds.
const EVICTED_MAX: usize = 100;

/// Whether there is memory for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// Not yet: more keys may go at once.
    Soon,
    /// Keys may go when they are unlocked.
    Later,
    None,
}

/// Makes room for more, as the policy says, or a part of it. The caller may hold stripes: keys of
/// these stay.
pub(crate) fn make_room(server: &Server) -> Room {
    let mut used = used_if_limited(server);
    if used <= server.settings.memory_max.load(Ordering::Relaxed) {
        return Room::Enough;
    }
    // The limit may have been changed meanwhile, together with the policy.
    let (most, policy) = server.settings.memory_limit();
    if most == 0 || used <= most {
        return Room::Enough;
    }
    let Some(eviction) = policy else { return Room::None };
    let samples = server.settings.samples.load(Ordering::Relaxed);
    for _ in 0..EVICTED_MAX {
        match evict(server, eviction, samples) {
            Ok(bytes) => {
                // What others add meanwhile is seen by the next command.
                used = used.saturating_sub(bytes);
                if used <= most {
                    return Room::Enough;
                }
            }
            Err(NotEvicted::Locked) => return Room::Later,
            Err(NotEvicted::Nothing) => return Room::None,
        }
    }
    Room::Soon
}

/// The bytes of all keys and values; 0 if there is no limit for them.
pub(crate) fn used_if_limited(server: &Server) -> u64 {
    match server.settings.memory_max.load(Ordering::Relaxed) {
        0 => 0,
        _ => server.keyspace.used_bytes(),
    }
}

/// Removes a key; how many bytes that gives.
fn evict(server: &Server, eviction: Eviction, samples: usize) -> Result<u64, NotEvicted> {
    let now = now();
    let log = |removed: &[Removed]| server.log.append_removed(removed, now);
    let (removed, entry) = server.keyspace.evict(eviction, samples, now, &log)?;
    let bytes = entry.counted_bytes();
    // No lock is held while the value is freed.
    if entry.is_large() {
        drop_elsewhere(vec![entry]);
    }
    server.tracking.invalidate_removed(&server.clients, std::slice::from_ref(&removed));
    let Removed { database, key } = removed;
    server.statistics.evicted.fetch_add(1, Ordering::Relaxed);
    server.publishing.announce(&server.clients, (database, &key), Class::Evicted, "evicted");
    Ok(bytes)
}

/// Makes all the room that is wanted. Clients of the worker come in between. Also while a script
/// runs, as clients may add to keys that it has not locked; what it has locked goes later.
pub(crate) async fn make_all_room(server: &Server) {
    while server.pause.until().is_none() && make_room(server) == Room::Soon {
        tokio::task::yield_now().await;
    }
}

/// Makes room after a command of a client, before which `before` bytes were used. If the command
/// has taken more than goes at once, the client waits for the rest.
pub(crate) fn make_room_behind(local: &Rc<LocalServer>, client: &Rc<Client>, before: u64) {
    let server = &*local.server;
    if make_room(server) != Room::Soon || server.keyspace.used_bytes() <= before {
        return;
    }
    client.is_over.set(true);
    let (local, client) = (Rc::clone(local), Rc::downgrade(client));
    tokio::task::spawn_local(async move {
        make_all_room(&local.server).await;
        if let Some(client) = client.upgrade() {
            client.is_over.set(false);
            client.link.wake();
        }
    });
}

/// Drops values that take long to free: on another thread, so that clients need not wait for it.
pub(crate) fn drop_elsewhere<T: Send + 'static>(values: Vec<T>) {
    if !values.is_empty()
        && let Ok(runtime) = tokio::runtime::Handle::try_current()
    {
        runtime.spawn_blocking(move || drop(values));
    }
}

/// Whether no keys are looked for now whose time is past. A script may hold their stripes for long.
pub(crate) fn is_off(server: &Server) -> bool {
    server.scripts.running.is_any() || server.pause.until().is_some()
}
