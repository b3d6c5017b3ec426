//! The limit of memory, and removing keys to keep it.

use std::sync::atomic::Ordering;

use zodium_keyspace::{Eviction, First, Keyspace, NotEvicted, Removed, Uses, now};

use crate::events::Class;
use crate::server::Server;
use crate::settings::Settings;

/// What a policy removes; `None` for nothing.
fn eviction(policy: &str) -> Option<Eviction> {
    let (which, order) = policy.split_once('-')?;
    let first = match order {
        "lru" => First::LeastRecent,
        "lfu" => First::LeastFrequent,
        "random" => First::Random,
        "ttl" => First::Shortest,
        _ => return None,
    };
    Some(Eviction { first, only_volatile: which == "volatile" })
}

/// Whether there is memory for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// Keys may go when they are unlocked.
    Later,
    None,
}

/// Has keys keep of their uses what the policy looks at.
pub(crate) fn apply_policy(settings: &Settings, keyspace: &Keyspace) {
    let number = |name| u32::try_from(settings.number(name)).unwrap_or(0);
    let policy = eviction(&settings.text("maxmemory-policy"));
    let counts = policy.is_some_and(|policy| policy.first == First::LeastFrequent);
    keyspace.set_uses(match counts {
        false => Uses::Times,
        true => Uses::Frequencies {
            log_factor: number("lfu-log-factor"),
            decay_minutes: number("lfu-decay-time"),
        },
    });
}

/// Makes room for more, as the policy says. The caller may hold stripes: keys of these stay.
pub(crate) fn make_room(server: &Server) -> Room {
    let most = server.settings.memory_max.load(Ordering::Relaxed);
    if most == 0 || server.keyspace.used_bytes() <= most {
        return Room::Enough;
    }
    let Some(eviction) = eviction(&server.settings.text("maxmemory-policy")) else {
        return Room::None;
    };
    let samples = usize::try_from(server.settings.number("maxmemory-samples")).unwrap_or(1);
    while server.keyspace.used_bytes() > most {
        let now = now();
        let log = |removed: &[Removed]| server.log.append_removed(removed, now);
        let (removed, entry) = match server.keyspace.evict(eviction, samples, now, &log) {
            Ok(evicted) => evicted,
            Err(NotEvicted::Locked) => return Room::Later,
            Err(NotEvicted::Nothing) => return Room::None,
        };
        // No lock is held while the value is freed.
        drop(entry);
        server.tracking.invalidate_removed(&server.clients, std::slice::from_ref(&removed));
        let Removed { database, key } = removed;
        server.statistics.evicted.fetch_add(1, Ordering::Relaxed);
        server.publishing.announce(&server.clients, (database, &key), Class::Evicted, "evicted");
    }
    Room::Enough
}
