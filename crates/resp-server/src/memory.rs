//! The limit of memory, and removing keys to keep it.

use std::sync::atomic::Ordering;

use zodium_keyspace::{Eviction, First, NotEvicted, Removed, Uses, now};

use crate::events::Class;
use crate::server::Server;

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

impl Server {
    /// Has keys keep of their uses what the policy looks at.
    pub(crate) fn apply_policy(&self) {
        let number = |name| u32::try_from(self.settings.number(name)).unwrap_or(0);
        let policy = eviction(&self.settings.text("maxmemory-policy"));
        let counts = policy.is_some_and(|policy| policy.first == First::LeastFrequent);
        self.keyspace.set_uses(match counts {
            false => Uses::Times,
            true => Uses::Frequencies {
                log_factor: number("lfu-log-factor"),
                decay_minutes: number("lfu-decay-time"),
            },
        });
    }

    /// Makes room for more, as the policy says. The caller may hold stripes: keys of these stay.
    pub(crate) fn make_room(&self) -> Room {
        let most = self.settings.memory_max.load(Ordering::Relaxed);
        if most == 0 || self.keyspace.used_bytes() <= most {
            return Room::Enough;
        }
        let Some(eviction) = eviction(&self.settings.text("maxmemory-policy")) else {
            return Room::None;
        };
        let samples = usize::try_from(self.settings.number("maxmemory-samples")).unwrap_or(1);
        while self.keyspace.used_bytes() > most {
            let now = now();
            let log = |removed: &[Removed]| self.log.append_removed(removed, now);
            let (removed, entry) = match self.keyspace.evict(eviction, samples, now, &log) {
                Ok(evicted) => evicted,
                Err(NotEvicted::Locked) => return Room::Later,
                Err(NotEvicted::Nothing) => return Room::None,
            };
            // No lock is held while the value is freed.
            drop(entry);
            self.tracking.invalidate_removed(&self.clients, std::slice::from_ref(&removed));
            let Removed { database, key } = removed;
            self.statistics.evicted.fetch_add(1, Ordering::Relaxed);
            self.publishing.announce(&self.clients, (database, &key), Class::Evicted, "evicted");
        }
        Room::Enough
    }
}
