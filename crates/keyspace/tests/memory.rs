//! Bytes of keys and values: what is counted comes back to nothing.

#![forbid(unsafe_code)]

use bytes::Bytes;
use proptest::prelude::*;
use zodium_keyspace::{
    Entry, Eviction, First, Hash, Hold, Keyspace, List, Set, SortedSet, Stream, StreamId, Stripes,
    Value,
};

/// Something that happens to a key.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, usize),
    PutQuickly(u8, usize),
    Expire(u8),
    Push(u8),
    Field(u8, u8),
    Member(u8, u8),
    Score(u8, u8),
    Entry(u8),
    Take(u8),
    Swap,
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..8_u8;
    prop_oneof![
        (key.clone(), 0..8000_usize).prop_map(|(key, length)| Step::Put(key, length)),
        (key.clone(), 0..8000_usize).prop_map(|(key, length)| Step::PutQuickly(key, length)),
        key.clone().prop_map(Step::Expire),
        key.clone().prop_map(Step::Push),
        (key.clone(), any::<u8>()).prop_map(|(key, field)| Step::Field(key, field)),
        (key.clone(), any::<u8>()).prop_map(|(key, member)| Step::Member(key, member)),
        (key.clone(), any::<u8>()).prop_map(|(key, member)| Step::Score(key, member)),
        key.clone().prop_map(Step::Entry),
        key.prop_map(Step::Take),
        Just(Step::Swap),
        Just(Step::Flush),
    ]
}

fn apply(keyspace: &Keyspace, step: &Step, now: u64) {
    let mut hold = keyspace.lock(Stripes::ALL, now);
    let changed = match step {
        Step::Put(key, length) => {
            hold.put(&[*key], Entry::new(Value::String(Bytes::from(vec![0; *length]))));
            *key
        }
        Step::PutQuickly(key, length) => {
            drop(hold);
            return put_quickly(keyspace, &[*key], *length, now);
        }
        Step::Expire(key) => {
            hold.expire_at(&[*key], Some(now + 1));
            *key
        }
        Step::Push(key) => {
            if let Ok(list) = hold.make::<List>(&[*key]) {
                list.push_back(&[0; 100]);
            }
            *key
        }
        Step::Field(key, field) => {
            if let Ok(hash) = hold.make::<Hash>(&[*key]) {
                hash.set(&[*field], &[0; 50]);
            }
            *key
        }
        Step::Member(key, member) => {
            if let Ok(set) = hold.make::<Set>(&[*key]) {
                set.add(&[*member; 30]);
            }
            *key
        }
        Step::Score(key, member) => {
            if let Ok(set) = hold.make::<SortedSet>(&[*key]) {
                set.set(&[*member], f64::from(*member));
            }
            *key
        }
        Step::Entry(key) => {
            if let Ok(stream) = hold.make::<Stream>(&[*key]) {
                let id = stream.last.next().unwrap_or(StreamId::MAX);
                stream.add(id, vec![vec![0; 10].into()].into());
            }
            *key
        }
        Step::Take(key) => {
            hold.take(&[*key]);
            *key
        }
        Step::Swap => return hold.swap(0, 1),
        Step::Flush => return drop(hold.flush()),
    };
    hold.changed(&[changed]);
}

/// As a plain `SET` does it.
fn put_quickly(keyspace: &Keyspace, key: &[u8], length: usize, now: u64) {
    let mut locked = keyspace.lock_key(keyspace.place(key), 0, key, now);
    locked.put_string(&vec![0; length], None);
}

proptest! {
    #[test]
    fn what_was_counted_is_given_back(steps in proptest::collection::vec(step(), 1..80)) {
        let keyspace = Keyspace::default();
        for (now, step) in (1..).zip(&steps) {
            apply(&keyspace, step, now);
            let mut hold = keyspace.lock(Stripes::ALL, now);
            let mut keys = 0;
            for database in 0..2 {
                hold.database = database;
                keys += hold.len();
            }
            drop(hold);
            let used = keyspace.used_bytes();
            prop_assert!(used >= keys as u64 * 16, "{used} bytes of {keys} keys");
        }
        // All that is left: by time, by eviction, by hand.
        keyspace.expire(u64::MAX / 2, usize::MAX, &mut Vec::new(), &|_| None);
        let any = Eviction { first: First::LeastRecent, only_volatile: false };
        while keyspace.evict(any, 3, u64::MAX / 2, &|_| None).is_ok() {}
        prop_assert_eq!(keyspace.used_bytes(), 0);
        prop_assert_eq!(keyspace.totals(0).keys + keyspace.totals(1).keys, 0);
    }
}

#[test]
fn bytes_are_about_those_of_the_values() {
    let hold_put = |keyspace: &Keyspace, key: &[u8], length| {
        let mut hold = keyspace.lock(Stripes::ALL, 1);
        hold.put(key, Entry::new(Value::String(Bytes::from(vec![0; length]))));
        hold.changed(key);
    };
    let quick_put = |keyspace: &Keyspace, key: &[u8], length| put_quickly(keyspace, key, length, 1);
    for put in [&hold_put as &dyn Fn(&Keyspace, &[u8], usize), &quick_put] {
        for length in [1000, 100_000] {
            let keyspace = Keyspace::default();
            (0..100_u8).for_each(|number| put(&keyspace, &[number], length));
            let (used, all) = (keyspace.used_bytes(), 100 * length as u64);
            assert!((all..all + 20_000).contains(&used), "{used} of {all}");
        }
    }
}

#[test]
fn what_takes_long_to_free_is_left_to_the_caller() {
    let large = || {
        let mut set = Set::default();
        (0..20_000_u32).for_each(|number| _ = set.add(&number.to_be_bytes()));
        Entry::new(Value::Set(set))
    };
    let small = || Entry::new(Value::String(Bytes::from(vec![0; 100_000])));
    let keyspace = Keyspace::default();
    let garbage = |entry, end: fn(&mut Hold)| {
        let mut hold = keyspace.lock(Stripes::ALL, 10);
        hold.put(b"k", entry);
        assert!(hold.take_garbage().is_empty());
        end(&mut hold);
        let garbage = hold.take_garbage().len();
        hold.take(b"k");
        assert!(hold.take_garbage().is_empty());
        garbage
    };
    let ends: [fn(&mut Hold); 3] = [
        |hold| hold.put_string(b"k", b"value", None),
        |hold| assert!(hold.remove(b"k")),
        |hold| {
            assert!(hold.expire_at(b"k", Some(5)));
            hold.remove_expired(b"k");
        },
    ];
    for end in ends {
        assert_eq!((garbage(large(), end), garbage(small(), end)), (1, 0));
    }
    assert_eq!(keyspace.used_bytes(), 0);
}

#[test]
fn a_flush_returns_only_what_takes_long_to_drop() {
    let keyspace = Keyspace::default();
    let flushed = |length| {
        let mut hold = keyspace.lock(Stripes::ALL, 1);
        for number in 0..100_u8 {
            hold.put(&[number], Entry::new(Value::String(Bytes::from(vec![0; length]))));
            hold.changed(&[number]);
        }
        let flushed = hold.flush().len();
        assert_eq!((hold.len(), keyspace.used_bytes()), (0, 0));
        flushed
    };
    assert_eq!(flushed(100), 0);
    assert!(flushed(1000) > 0);
}

#[test]
fn few_keys_expire_at_their_last_times_beside_many_that_do_not() {
    let keyspace = Keyspace::default();
    let mut hold = keyspace.lock(Stripes::ALL, 1);
    for number in 0..40_000_u32 {
        hold.put_string(&number.to_be_bytes(), b"value", None);
    }
    for number in 0..1000_u32 {
        hold.put_string(&number.to_be_bytes(), b"value", Some(500));
    }
    // Each of them leaves entries behind that are of no key, or of one with the same time.
    for round in 0..1000 {
        for number in 1000..1010_u32 {
            assert!(hold.expire_at(&number.to_be_bytes(), Some(1000 + 500 * (round % 3))));
        }
    }
    drop(hold);
    let expired = |now| {
        let mut removed = Vec::new();
        while keyspace.expire(now, 10, &mut removed, &|_| None) {}
        removed.len()
    };
    assert_eq!([499, 500, 1499, 1500, 3000].map(expired), [0, 1000, 10, 0, 0]);
    assert_eq!(keyspace.totals(0).volatile, 0);
}

#[test]
fn a_large_part_that_was_cut_off_is_garbage_too() {
    let keyspace = Keyspace::default();
    let mut hold = keyspace.lock(Stripes::ALL, 10);
    for (length, garbage) in [(10, 0), (600, 0), (20_000_u32, 1)] {
        let elements = (0..length).map(|number| number.to_be_bytes().into());
        let mut list = elements.collect::<List>();
        list.keep_only(0..0).into_iter().for_each(|cut| hold.discard(cut));
        assert!(list.is_empty());
        assert_eq!(hold.take_garbage().len(), garbage);
    }
    drop(hold);
    assert_eq!(keyspace.used_bytes(), 0);
}
