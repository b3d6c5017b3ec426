//! `maxmemory-policy`: which keys go first.

use zodium_keyspace::{Eviction, First};

/// What a policy removes; `None` for nothing.
pub(crate) fn eviction(policy: &str) -> Option<Eviction> {
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
