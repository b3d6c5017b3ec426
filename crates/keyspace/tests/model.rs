//! The keyspace beside a map, and locks that no thread sees through.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;
use zodium_keyspace::{
    Entry, EntryRef, Hold, Keyspace, PACKED_BYTES_MAX, Reader, Removed, Set, Stripes, Text, Tie,
    Value, ValueRef, Watcher, WrongType,
};

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Content, Option<u8>),
    /// Appends bytes to the string of a key.
    Append(u8, Content),
    /// Sets the string of a key, and keeps its time.
    Replace(u8, Content),
    Take(u8),
    ExpireAt(u8, Option<u8>),
    Sleep(u8),
    Expire,
    Flush,
}

/// A string of a byte repeated, or a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    String(u8, usize),
    Set,
}

fn content() -> impl Strategy<Value = Content> {
    let length = prop_oneof![
        8 => 0..40_usize,
        2 => Just(9_usize),
        1 => PACKED_BYTES_MAX - 1..PACKED_BYTES_MAX + 2,
    ];
    prop_oneof![
        9 => (any::<u8>(), length).prop_map(|(byte, length)| Content::String(byte, length)),
        1 => prop::bool::weighted(0.2).prop_map(|is_set| match is_set {
            true => Content::Set,
            false => Content::String(0, 0),
        }),
    ]
}

/// The name of a key: some are too long to be kept with their strings.
fn name(key: u8) -> Vec<u8> {
    vec![key; if key < 2 { 70_000 } else { usize::from(key % 50) + 1 }]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Some keys come often.
    let key = || prop_oneof![any::<u8>(), 0..6_u8];
    let step = prop_oneof![
        8 => (key(), content(), any::<Option<u8>>())
            .prop_map(|(key, value, later)| Step::Put(key, value, later)),
        2 => (key(), content()).prop_map(|(key, value)| Step::Append(key, value)),
        2 => (key(), content()).prop_map(|(key, value)| Step::Replace(key, value)),
        4 => key().prop_map(Step::Take),
        4 => (key(), any::<Option<u8>>()).prop_map(|(k, e)| Step::ExpireAt(k, e)),
        2 => any::<u8>().prop_map(Step::Sleep),
        1 => Just(Step::Expire),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 0..300)
}

/// Values and times by key.
type Model = HashMap<u8, (Seen, Option<u64>)>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    String(Vec<u8>),
    Set,
}

impl Content {
    fn seen(self) -> Seen {
        match self {
            Content::String(byte, length) => Seen::String(vec![byte; length]),
            Content::Set => Seen::Set,
        }
    }

    fn value(self) -> Value {
        match self {
            Content::String(byte, length) => Value::String(vec![byte; length].into()),
            Content::Set => Value::Set([&b"member"[..]].into_iter().collect::<Set>()),
        }
    }
}

fn seen(entry: EntryRef<'_>) -> Seen {
    match entry.value() {
        ValueRef::String(text) => Seen::String(text.to_vec()),
        _ => Seen::Set,
    }
}

fn value(byte: u8) -> Value {
    Value::String(Bytes::copy_from_slice(&[byte]))
}

fn apply(keyspace: &Keyspace, model: &mut Model, now: &mut u64, step: &Step) {
    let mut hold = keyspace.lock(Stripes::ALL, *now);
    hold.database = 3;
    let at = |later: Option<u8>| later.map(|later| *now + u64::from(later));
    match *step {
        Step::Put(key, content, later) => {
            match content.seen() {
                Seen::String(bytes) if key % 2 == 0 => {
                    hold.put_string(&name(key), &bytes, at(later));
                }
                _ => hold.put(&name(key), Entry::new(content.value()).expiring(at(later))),
            }
            hold.changed(&name(key));
            model.insert(key, (content.seen(), at(later)));
        }
        Step::Append(key, content) | Step::Replace(key, content) => {
            let Seen::String(bytes) = content.seen() else { return };
            let replaces = matches!(step, Step::Replace(..));
            let change = |old: &mut Vec<u8>| {
                if replaces {
                    old.clear();
                }
                old.extend_from_slice(&bytes);
            };
            let result = match replaces {
                true => hold.replace_string(&name(key), &bytes).map(|()| bytes.len()),
                false => hold.change_string(&name(key), change),
            };
            hold.changed(&name(key));
            model.retain(|other, (_, at)| *other != key || is_there(*at, *now));
            let (there, _) = model.entry(key).or_insert((Seen::String(Vec::new()), None));
            match there {
                Seen::String(old) => {
                    change(old);
                    assert_eq!(result, Ok(old.len()));
                }
                Seen::Set => assert_eq!(result, Err(WrongType)),
            }
        }
        Step::Take(key) => {
            let taken = hold.take(&name(key)).is_some();
            assert_eq!(taken, model.remove(&key).is_some_and(|(_, at)| is_there(at, *now)));
        }
        Step::ExpireAt(key, later) => {
            let there = model.get_mut(&key).filter(|(_, at)| is_there(*at, *now));
            assert_eq!(hold.expire_at(&name(key), at(later)), there.is_some());
            if let Some(there) = there {
                there.1 = at(later);
            }
        }
        Step::Sleep(time) => *now += u64::from(time),
        Step::Expire => {
            drop(hold);
            let mut removed = Vec::new();
            while keyspace.expire(*now, 2, &mut removed, &|_| None) {}
            for Removed { database, key } in removed {
                assert_eq!(database, 3);
                assert!(model.remove(&key[0]).is_some_and(|(_, at)| !is_there(at, *now)));
            }
            model.retain(|_, (_, at)| is_there(*at, *now));
            assert_eq!(keyspace.totals(3).keys, model.len());
        }
        Step::Flush => {
            drop(hold.flush());
            model.clear();
        }
    }
}

fn is_there(at: Option<u64>, now: u64) -> bool {
    at.is_none_or(|at| at > now)
}

proptest! {
    #[test]
    fn it_holds_what_a_map_holds(steps in steps()) {
        let (keyspace, mut model, mut now) = (Keyspace::default(), Model::new(), 1_000);
        for step in &steps {
            apply(&keyspace, &mut model, &mut now, step);
            let mut hold = keyspace.lock(Stripes::ALL, now);
            hold.database = 3;
            let mut found: Vec<_> = hold.iter().map(|entry| {
                assert_eq!(entry.key(), name(entry.key()[0]));
                (entry.key()[0], (seen(entry), entry.expires_at()))
            }).collect();
            let there = model.iter().filter(|(_, (_, at))| is_there(*at, now));
            let mut expected: Vec<_> = there.map(|(key, value)| (*key, value.clone())).collect();
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
            let volatile = hold.iter().filter(|entry| entry.expires_at().is_some()).count();
            drop(hold);
            prop_assert!(keyspace.totals(3).volatile >= volatile);
            prop_assert_eq!(keyspace.totals(0).keys, 0);
            if let Some(bytes) = bytes_of_strings(&keyspace, 3) {
                prop_assert_eq!(keyspace.used_bytes(), bytes);
            }
        }
    }
}

/// Bytes of a database, counted anew; `None` if there are others than strings, which are counted by
/// an estimate of their own.
fn bytes_of_strings(keyspace: &Keyspace, database: usize) -> Option<u64> {
    let (mut sum, mut are_strings) = (0, true);
    for part in 0..Keyspace::PARTS {
        keyspace.visit_part(part, database, 0, usize::MAX, &mut |entry, _| {
            sum += match entry.value() {
                ValueRef::String(Text::Packed(_)) => entry.estimated_bytes(0),
                // Long ones are counted in steps of 16.
                ValueRef::String(Text::Shared(_)) => entry.estimated_bytes(0).next_multiple_of(16),
                _ => 0,
            };
            are_strings &= matches!(entry.value(), ValueRef::String(_));
        });
    }
    are_strings.then_some(sum as u64)
}

fn numbers(hold: &Hold) -> [u8; 2] {
    [b"one", b"two"].map(|key| hold.read_string(key).unwrap().map_or(0, |text| text[0]))
}

#[test]
fn no_thread_sees_half_a_change_of_two_keys() {
    const ROUNDS: usize = 50_000;
    let keyspace = Keyspace::default();
    let stripes = keyspace.stripes([&b"one"[..], b"two"]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let mut hold = keyspace.lock(stripes, 1);
                    for key in [b"one", b"two"] {
                        hold.put(key, Entry::new(value((round % 250) as u8)));
                    }
                }
            });
        }
        scope.spawn(|| {
            let reader = keyspace.reader();
            let mut reads = 0;
            while reads < ROUNDS {
                let Some(hold) = keyspace.try_read(&reader, stripes, 1) else { continue };
                let [one, two] = numbers(&hold);
                assert_eq!(one, two);
                reads += 1;
            }
        });
        for _ in 0..ROUNDS {
            let [one, two] = numbers(&keyspace.lock(stripes, 1));
            assert_eq!(one, two);
        }
    });
}

/// As scripts do: it begins with one key, and comes to the others in another order than that in
/// which transactions lock them.
#[test]
fn a_hold_that_locks_more_as_it_goes_waits_for_none_that_waits_for_it() {
    const ROUNDS: usize = 5_000;
    let keys: Vec<[u8; 1]> = (0..20).map(|key| [key]).collect();
    let keyspace = Keyspace::default();
    let put = |hold: &mut Hold, key: &[u8], round: usize| {
        hold.put(key, Entry::new(value((round % 250) as u8)));
    };
    let all = || keyspace.stripes(keys.iter().map(|key| &key[..]));
    let are_equal = |hold: &Hold| {
        let text = |key: &[u8; 1]| hold.read_string(key).unwrap().map(|text| text[0]);
        keys.iter().all(|key| text(key) == text(&keys[0]))
    };
    std::thread::scope(|scope| {
        let widening = |order: Vec<[u8; 1]>| {
            let (keyspace, put) = (&keyspace, &put);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let until = Instant::now() + Duration::from_secs(60);
                    let first = keyspace.stripe(&order[0]);
                    let mut hold = keyspace.try_lock_first(first, 1, Some(until)).unwrap();
                    for key in &order {
                        hold.widen(keyspace.stripe(key));
                        put(&mut hold, key, round);
                    }
                }
            });
        };
        widening(keys.iter().rev().copied().collect());
        widening(keys.clone());
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let mut hold = keyspace.lock(all(), 1);
                keys.iter().for_each(|key| put(&mut hold, key, round));
            }
        });
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let key = &keys[round % keys.len()];
                drop(keyspace.lock(keyspace.stripe(key), 1));
                let whole = keyspace.try_lock(all(), 1, None);
                assert!(whole.is_none_or(|hold| are_equal(&hold)));
            }
        });
        let reader = keyspace.reader();
        for _ in 0..ROUNDS {
            let hold = keyspace.try_read(&reader, all(), 1);
            assert!(hold.is_none_or(|hold| are_equal(&hold)));
        }
    });
}

/// A key that is in none of these stripes.
fn key_elsewhere(keyspace: &Keyspace, stripes: Stripes) -> Vec<u8> {
    let mut keys = (0..).map(|number: u32| number.to_string().into_bytes());
    keys.find(|key| keyspace.stripe(key) | stripes != stripes).unwrap()
}

#[test]
fn a_hold_that_locks_more_has_what_it_comes_to_and_leaves_the_rest_to_others() {
    let keyspace = Keyspace::default();
    let one = keyspace.stripe(b"one");
    let key = key_elsewhere(&keyspace, one);
    let other = keyspace.stripe(&key);
    let mut hold = keyspace.try_lock_first(one, 1, None).unwrap();
    assert!(keyspace.try_lock(one, 1, None).is_none());
    keyspace.try_lock(other, 1, None).unwrap().put(&key, Entry::new(value(7)));
    assert!(keyspace.try_lock_first(Stripes::NONE, 1, None).is_none(), "there is one at a time");
    let third = keyspace.stripe(&key_elsewhere(&keyspace, one | other));
    assert!(keyspace.try_lock(other | third, 1, None).is_none(), "and none of several stripes");
    assert!(keyspace.try_lock(third, 1, None).is_some());
    assert!(hold.widen(other) && !hold.widen(one | other));
    assert!(hold.has(&key) && !hold.has(b"one"));
    assert!(keyspace.try_lock(other, 1, None).is_none());
    assert!(hold.widen(Stripes::ALL));
    hold.put(b"one", Entry::new(value(1)));
    assert_eq!(hold.len(), 2);
    drop(hold);
    let mut hold = keyspace.try_lock(Stripes::ALL, 1, None).unwrap();
    assert_eq!(hold.len(), 2);
    assert!(!hold.widen(Stripes::ALL), "it has all from the start");
}

/// Ties are cut without a lock: what a hold comes to later must not be older than what others have
/// done meanwhile.
#[test]
fn ties_are_cut_for_what_a_hold_comes_to_later() {
    let keyspace = Keyspace::default();
    let tie = Tie::default();
    let one = keyspace.stripe(b"one");
    let mut hold = keyspace.try_lock_first(one, 1, None).unwrap();
    let key = key_elsewhere(&keyspace, one);
    let stripe = keyspace.stripe(&key);
    let mut others = keyspace.lock(stripe, 1);
    others.put(&key, Entry::new(value(7)));
    others.tie(&key, vec![tie.clone()]);
    drop(others);
    keyspace.cut(&[tie]);
    assert!(!hold.has_ties());
    assert!(hold.widen(stripe) && hold.has_ties());
    assert!(!hold.has(&key));
}

/// A hold that widens has the time of its begin. Others may have seen since that a key is gone.
#[test]
fn keys_whose_time_passes_before_a_hold_comes_to_them_are_gone() {
    zodium_keyspace::set_time(1000 * 1000);
    let keyspace = Keyspace::default();
    let one = keyspace.stripe(b"one");
    let key = key_elsewhere(&keyspace, one);
    let stripe = keyspace.stripe(&key);
    keyspace.lock(one, 1000).put_string(b"one", b"", Some(1500));
    let (mut others, watcher) = (keyspace.lock(stripe, 1000), Watcher::default());
    others.put_string(&key, b"", Some(1501));
    others.database = 5;
    others.put_string(&key, b"", Some(1500));
    others.watch(&key, &watcher);
    drop(others);
    let mut hold = keyspace.try_lock_first(one, 1000, None).unwrap();
    hold.journal.is_kept = true;
    zodium_keyspace::set_time(1500 * 1000);
    assert!(hold.widen(stripe));
    assert!(hold.has(b"one") && hold.has(&key));
    let removed = Removed { database: 5, key: (&*key).into() };
    assert_eq!(hold.news.expired, [removed]);
    assert!(watcher.is_changed());
    hold.database = 5;
    assert!(!hold.has(&key));
    // What the hold sets stays for it, as its time stands still.
    hold.put_string(&key, b"", Some(1200));
    zodium_keyspace::set_time(2000 * 1000);
    assert!(hold.widen(Stripes::ALL));
    assert!(hold.has(&key));
    keyspace.begin_changes();
    hold.end_touches(None);
    assert!(keyspace.take_changes().keys.contains(&(5, (&*key).into())));
}

#[test]
fn stripes_that_are_read_are_open_to_readers_only() {
    let keyspace = Keyspace::default();
    let readers = [keyspace.reader(), keyspace.reader()];
    keyspace.lock(Stripes::ALL, 1).put(b"key", Entry::new(value(7)));
    let stripe = keyspace.stripe(b"key");
    let read = |number: usize, stripes| keyspace.try_read(&readers[number], stripes, 1);
    let holds = [read(0, Stripes::ALL).unwrap(), read(1, stripe).unwrap()];
    for hold in &holds {
        assert_eq!(hold.read_string(b"key").unwrap().unwrap()[0], 7);
    }
    assert_eq!(holds.each_ref().map(Hold::len), [1, 1]);
    assert_eq!(holds[0].scan(0, 10, &mut |entry| assert_eq!(entry.key(), b"key")), 0);
    drop(holds);
    let writes = keyspace.lock(stripe, 1);
    assert!(read(0, Stripes::ALL).is_none(), "one of them is written to");
    drop(writes);
    assert!(read(0, Stripes::ALL).is_some());
}

#[test]
#[should_panic(expected = "is not locked to change it")]
fn stripes_that_are_read_are_not_changed() {
    let keyspace = Keyspace::default();
    let reader = keyspace.reader();
    let mut hold = keyspace.try_read(&reader, keyspace.stripe(b"key"), 1).unwrap();
    hold.put(b"key", Entry::new(value(1)));
}

/// Readers of single strings take no lock while a stripe is open. A transaction of two keys happens
/// for them at one moment too: a reader that has seen it in one key sees it in the other.
#[test]
fn a_string_that_is_read_after_another_one_is_not_older() {
    const READS: usize = 200_000;
    let keyspace = Keyspace::default();
    let keys = [&b"one"[..], b"two"];
    let stripes = keyspace.stripes(keys);
    let set = |number: u64| {
        let mut hold = keyspace.lock(stripes, 1);
        // Of several lengths, so that strings move.
        let text = format!("{number}{}", " ".repeat((number % 3) as usize * 100));
        keys.iter().for_each(|key| hold.put_string(key, text.as_bytes(), None));
    };
    let read = |reader: &Reader, key: &[u8]| loop {
        let Some(key) = keyspace.try_read_key(reader, keyspace.place(key), 0, key, 1) else {
            continue;
        };
        let text = key.read_string(true).unwrap().unwrap();
        return std::str::from_utf8(&text).unwrap().trim_end().parse::<u64>().unwrap();
    };
    set(0);
    let reading = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (reader, mut last) = (keyspace.reader(), 0);
                for round in 0..READS {
                    let number = read(&reader, keys[round % 2]);
                    assert!(last <= number, "{number} after {last}");
                    last = number;
                }
                reading.fetch_sub(1, Ordering::Relaxed);
            });
        }
        for number in 1.. {
            set(number);
            // Some reads come between, so that stripes are opened.
            (0..500).for_each(|_| std::hint::spin_loop());
            if reading.load(Ordering::Relaxed) == 0 || number > 1_000_000 {
                break;
            }
        }
    });
}

#[test]
fn a_watcher_learns_of_changes_of_its_keys_only() {
    let keyspace = Keyspace::default();
    let watched = |change: &dyn Fn(&Keyspace)| {
        let watcher = Watcher::default();
        let lock = || keyspace.lock(Stripes::ALL, 100);
        drop(lock().flush());
        lock().put(b"key", Entry::new(value(1)).expiring(Some(150)));
        lock().watch(b"key", &watcher);
        lock().watch(b"other", &watcher);
        change(&keyspace);
        lock().unwatch(b"key", &watcher);
        lock().unwatch(b"other", &watcher);
        watcher.is_changed()
    };
    assert!(!watched(&|_| ()));
    assert!(!watched(&|keyspace| keyspace.lock(Stripes::ALL, 100).changed(b"a third")));
    assert!(watched(&|keyspace| keyspace.lock(Stripes::ALL, 100).changed(b"other")));
    assert!(watched(&|keyspace| drop(keyspace.lock(Stripes::ALL, 100).flush())));
    assert!(watched(&|keyspace| keyspace.lock(Stripes::ALL, 100).swap(0, 5)));
    assert!(!watched(&|keyspace| keyspace.lock(Stripes::ALL, 100).swap(4, 5)));
    assert!(watched(&|keyspace| _ = keyspace.expire(150, 10, &mut Vec::new(), &|_| None)));
    assert!(!watched(&|keyspace| _ = keyspace.expire(149, 10, &mut Vec::new(), &|_| None)));
}

#[test]
fn a_scan_meets_all_keys_by_short_cursors() {
    let keyspace = Keyspace::default();
    for key in 0..5_000_u32 {
        let key = key.to_be_bytes();
        keyspace.lock(keyspace.stripe(&key), 1).put(&key, Entry::new(value(1)));
    }
    let (mut met, mut cursor, mut calls) = (Vec::new(), 0, 0);
    loop {
        let hold = keyspace.lock(Stripes::ALL, 1);
        cursor = hold.scan(cursor, 10, &mut |entry| met.push(entry.key().to_vec()));
        calls += 1;
        assert!(cursor < 1 << 20, "{cursor}");
        if cursor == 0 {
            break;
        }
    }
    assert!((200..=500).contains(&calls), "{calls}");
    met.sort_unstable();
    met.dedup();
    assert_eq!(met.len(), 5_000);
    // Any cursor is taken.
    keyspace.lock(Stripes::ALL, 1).scan(u64::MAX, 10, &mut |_| ());
}

#[test]
fn keys_of_a_locked_stripe_expire_when_it_is_unlocked() {
    let keyspace = Keyspace::default();
    let stripe = keyspace.stripe(b"locked");
    let other = (0..).map(|number: u32| number.to_be_bytes());
    let other = other.into_iter().find(|key| keyspace.stripe(key) != stripe).unwrap();
    for key in [&b"locked"[..], &other] {
        keyspace.lock(keyspace.stripe(key), 1).put_string(key, b"", Some(2));
    }
    let expire = || {
        let mut removed = Vec::new();
        assert!(!keyspace.expire(3, 10, &mut removed, &|_| None));
        removed.into_iter().map(|removed| removed.key.to_vec()).collect::<Vec<_>>()
    };
    let hold = keyspace.lock(stripe, 1);
    assert_eq!(expire(), [other]);
    drop(hold);
    assert_eq!(expire(), [b"locked"]);
}
