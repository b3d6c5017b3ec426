//! The choice of the key that goes when memory is full, beside what samples make of it.
//!
//! Keys and chance differ from run to run. All bounds are six standard deviations or more from what
//! is expected, so that no run fails by chance.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use bytes::Bytes;
use zodium_keyspace::{Entry, Eviction, First, Keyspace, NotEvicted, Stripes, Uses, Value};

const BY_TIME: Eviction = Eviction { first: First::Shortest, only_volatile: true };
const BY_USE: Eviction = Eviction { first: First::LeastRecent, only_volatile: false };
const BY_COUNT: Eviction = Eviction { first: First::LeastFrequent, only_volatile: false };

fn key(rank: u16) -> [u8; 2] {
    rank.to_be_bytes()
}

fn put(keyspace: &Keyspace, database: usize, key: &[u8], seconds: u64, expires_at: Option<u64>) {
    let mut hold = keyspace.lock(Stripes::ALL, seconds * 1000);
    hold.database = database;
    hold.put(key, Entry::new(Value::String(Bytes::new())).expiring(expires_at));
}

/// A keyspace whose keys expire or were used in the order of their numbers.
fn ranked(keys: u16, eviction: Eviction) -> Keyspace {
    let keyspace = Keyspace::default();
    for rank in 0..keys {
        let expires_at = eviction.only_volatile.then(|| u64::MAX / 2 + u64::from(rank));
        put(&keyspace, usize::from(rank % 2), &key(rank), u64::from(rank), expires_at);
    }
    keyspace
}

/// The rank of the next key to go.
fn evict(keyspace: &Keyspace, eviction: Eviction, samples: usize) -> u16 {
    let (removed, _) = keyspace.evict(eviction, samples, 0, &|_| None).expect("a key");
    u16::from_be_bytes(removed.key[..].try_into().unwrap())
}

/// How often the rank of the first key to go is at least `rank`, of `runs` keyspaces.
fn first_ranks(keys: u16, eviction: Eviction, samples: usize, runs: usize) -> Vec<u16> {
    (0..runs).map(|_| evict(&ranked(keys, eviction), eviction, samples)).collect()
}

#[test]
fn the_first_to_go_is_the_best_of_samples_from_all_keys() {
    const KEYS: u16 = 60;
    const RUNS: usize = 1000;
    for (eviction, samples) in [(BY_TIME, 5), (BY_USE, 3), (BY_USE, 1)] {
        let ranks = first_ranks(KEYS, eviction, samples, RUNS);
        for rank in (4..KEYS).step_by(4) {
            // All samples are at least the rank, each independently.
            let share = 1.0 - f64::from(rank) / f64::from(KEYS);
            let expected = share.powi(i32::try_from(samples).unwrap());
            let found = ranks.iter().filter(|found| **found >= rank).count() as f64 / RUNS as f64;
            let deviation = (expected * (1.0 - expected) / RUNS as f64).sqrt();
            assert!(
                (found - expected).abs() < 6.0 * deviation + 0.005,
                "{eviction:?} {samples} samples, rank {rank}: {found} instead of {expected}"
            );
        }
    }
}

#[test]
fn many_samples_find_the_first_of_few_keys() {
    for eviction in [BY_TIME, BY_USE] {
        let keyspace = ranked(10, eviction);
        // A key is missed by 400 samples of at most ten in one of 10^18 cases.
        let evicted: Vec<u16> = (0..10).map(|_| evict(&keyspace, eviction, 400)).collect();
        assert_eq!(evicted, (0..10).collect::<Vec<u16>>());
    }
}

#[test]
fn earlier_samples_bring_the_choice_near_to_the_order_of_all() {
    let keyspace = ranked(400, BY_USE);
    let evicted: Vec<u16> = (0..200).map(|_| evict(&keyspace, BY_USE, 5)).collect();
    let old = evicted.iter().filter(|rank| **rank < 200).count();
    // 100 by chance. Five samples alone come to about 165.
    assert!(old > 165, "{old} of 200 are of the older half");
}

#[test]
fn only_keys_that_expire_go_however_few_they_are() {
    let keyspace = ranked(2000, BY_USE);
    for rank in [2001, 2000, 2003, 2002] {
        put(&keyspace, 15, &key(rank), 0, Some(u64::MAX / 2 + u64::from(rank)));
    }
    // One that got other times, and one that expires no more, leave entries behind.
    let mut hold = keyspace.lock(Stripes::ALL, 0);
    hold.database = 15;
    for at in 1..50 {
        hold.expire_at(&key(2000), Some(at));
    }
    hold.expire_at(&key(2000), Some(u64::MAX / 2));
    hold.expire_at(&key(2003), None);
    drop(hold);
    let evicted: Vec<u16> = (0..3).map(|_| evict(&keyspace, BY_TIME, 64)).collect();
    assert_eq!(evicted, [2000, 2001, 2002]);
    let left = keyspace.evict(BY_TIME, 64, 0, &|_| None).map(|(removed, _)| removed);
    assert_eq!(left, Err(NotEvicted::Nothing), "none of the others expires");
}

#[test]
fn a_candidate_that_was_used_since_stays() {
    let keyspace = ranked(8, BY_USE);
    // All are candidates after this.
    assert_eq!(evict(&keyspace, BY_USE, 400), 0);
    let mut hold = keyspace.lock(Stripes::ALL, 100_000);
    hold.database = 1;
    let entry = hold.entry(&key(1)).expect("there");
    hold.note_use(entry);
    drop(hold);
    let left: Vec<u16> = (0..7).map(|_| evict(&keyspace, BY_USE, 400)).collect();
    assert_eq!(left, [2, 3, 4, 5, 6, 7, 1]);
}

#[test]
fn keys_of_locked_stripes_stay() {
    let keyspace = ranked(100, BY_USE);
    let held = keyspace.lock(keyspace.stripe(&key(0)), 0);
    let mut left = 100;
    let why = loop {
        match keyspace.evict(BY_USE, 5, 0, &|_| None) {
            Ok((removed, _)) => {
                assert_ne!(keyspace.stripe(&removed.key), keyspace.stripe(&key(0)));
                left -= 1;
            }
            Err(why) => break why,
        }
    };
    assert_eq!(why, NotEvicted::Locked);
    drop(held);
    assert!(left > 0);
    let rest = std::iter::from_fn(|| keyspace.evict(BY_USE, 5, 0, &|_| None).ok()).count();
    assert_eq!(rest, left);
}

#[test]
fn locked_stripes_without_keys_that_may_go_are_no_reason_to_wait() {
    let keyspace = ranked(100, BY_USE);
    let held = keyspace.lock(Stripes::ALL, 0);
    let why = |eviction| keyspace.evict(eviction, 5, 0, &|_| None).map(|(removed, _)| removed);
    assert_eq!(why(BY_USE), Err(NotEvicted::Locked));
    // None of them expires.
    assert_eq!(why(BY_TIME), Err(NotEvicted::Nothing));
    drop(held);
}

#[test]
fn the_least_frequent_keys_go_first() {
    let keyspace = Keyspace::default();
    keyspace.set_uses(Uses::Frequencies { log_factor: 0, decay_minutes: 1 });
    for rank in 0..10 {
        for _ in 0..=rank {
            // A new value is one more use.
            put(&keyspace, 0, &key(rank), 1_795_000_000, None);
        }
    }
    let now = 1_795_000_000_000;
    let hold = keyspace.lock(Stripes::ALL, now);
    let counts = (0..10).map(|rank| hold.entry(&key(rank)).unwrap().frequency(now, hold.uses));
    assert_eq!(counts.collect::<Vec<u8>>(), (5..15).collect::<Vec<u8>>());
    drop(hold);
    for rank in 0..10 {
        let (removed, _) = keyspace.evict(BY_COUNT, 400, now, &|_| None).unwrap();
        assert_eq!(removed.key[..], key(rank));
    }
}

#[test]
fn an_entry_is_small() {
    assert!(size_of::<Entry>() <= 56, "{}", size_of::<Entry>());
}
