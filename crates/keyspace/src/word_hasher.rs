//! The hashes of keys, and of the words in collections.

use std::cell::Cell;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

use crate::random::begin_random;

thread_local! {
    /// What decides the hashes of the keyspaces that this thread makes, if not chance.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Has `seed` decide the places of keys in the keyspaces that this thread makes from now on, and
/// the elements that it chooses. For simulations, which a seed replays.
pub fn seed_key_hashes(seed: u64) {
    SEED.set(Some(seed));
    begin_random(seed);
}

/// Makes hashers.
pub(crate) enum WordHasher {
    /// The seed is secret, or clients could choose words that meet.
    Secret(RandomState),
    Seeded(u64),
}

impl WordHasher {
    /// Of a keyspace.
    pub(crate) fn new() -> WordHasher {
        WordHasher::with(SEED.get())
    }

    /// Of all collections of a process, whatever the seeds of its threads are.
    pub(crate) fn shared() -> WordHasher {
        WordHasher::with(SEED.get().map(|_| 0))
    }

    fn with(seed: Option<u64>) -> WordHasher {
        seed.map_or_else(|| WordHasher::Secret(RandomState::new()), WordHasher::Seeded)
    }
}

impl BuildHasher for WordHasher {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        match self {
            WordHasher::Secret(state) => state.build_hasher(),
            WordHasher::Seeded(seed) => {
                let mut hasher = DefaultHasher::new();
                hasher.write_u64(*seed);
                hasher
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_hashes() {
        let hash = |seed| WordHasher::with(seed).hash_one("key");
        assert_eq!(hash(Some(1)), hash(Some(1)));
        assert_ne!(hash(Some(1)), hash(Some(2)));
        assert_ne!(hash(None), hash(None));
    }
}
