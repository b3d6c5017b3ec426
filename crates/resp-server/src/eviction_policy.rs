//! `maxmemory-policy`: which keys go first.

use zodium_keyspace::{Eviction, First, Keyspace, Uses};

use crate::settings::Settings;

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
