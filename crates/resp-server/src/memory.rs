//! The limit of memory, and removing keys to keep it.

use std::sync::atomic::Ordering;

use zodium_keyspace::{Entry, Removed, now, random_below};

use crate::events::Class;
use crate::server::Server;

/// Which keys go first. A lower number goes before a higher one; `None` stays.
type Rank = fn(&Entry) -> Option<u64>;

/// The rank of a policy, and whether only keys that expire go. `None`: none goes.
fn policy(name: &str) -> Option<(Rank, bool)> {
    let rank: (Rank, bool) = match name {
        "allkeys-lru" => (|entry| Some(entry.used_at().into()), false),
        "volatile-lru" => (|entry| entry.expires_at().map(|_| entry.used_at().into()), true),
        "allkeys-random" => (|_| Some(random_below(usize::MAX) as u64), false),
        "volatile-random" => {
            (|entry| entry.expires_at().map(|_| random_below(usize::MAX) as u64), true)
        }
        "volatile-ttl" => (Entry::expires_at, true),
        _ => return None,
    };
    Some(rank)
}

impl Server {
    /// Whether commands may take more memory. Removes keys for that, as the policy says. The
    /// caller may hold stripes: keys of these stay.
    pub(crate) fn may_grow(&self) -> bool {
        let most = self.settings.memory_max.load(Ordering::Relaxed);
        if most == 0 || self.keyspace.used_bytes() <= most {
            return true;
        }
        let Some((rank, only_volatile)) = policy(&self.settings.text("maxmemory-policy")) else {
            return false;
        };
        let samples = usize::try_from(self.settings.number("maxmemory-samples")).unwrap_or(1);
        while self.keyspace.used_bytes() > most {
            let Some((removed, entry)) =
                self.keyspace.evict(samples, only_volatile, rank, &|removed| {
                    self.log_removed(removed, now())
                })
            else {
                return false;
            };
            // No lock is held while the value is freed.
            drop(entry);
            self.invalidate_removed(std::slice::from_ref(&removed));
            let Removed { database, key } = removed;
            self.statistics.evicted.fetch_add(1, Ordering::Relaxed);
            self.announce(database, &key, Class::Evicted, "evicted");
        }
        true
    }
}
