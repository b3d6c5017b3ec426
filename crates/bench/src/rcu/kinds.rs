//! The kinds of keyspace: how readers are kept apart from writers.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError, RwLock};

use bytes::Bytes;
use clap::ValueEnum;
use crossbeam_skiplist::SkipMap;
use zodium_keyspace::{KEYS_AHEAD_MAX, Keyspace, Place, Reader};

use crate::options::KindName;

/// A keyspace that threads share.
pub(super) trait Keys: Sync {
    /// What a thread reads with, if it needs something of its own.
    fn reader(&self) -> Option<Reader> {
        None
    }

    /// Gets keys ready that are about to be read or set, up to [`TOGETHER`]: writes their places.
    fn prepare(&self, _: Option<&Reader>, _keys: &[&[u8]], _places: &mut [Place; TOGETHER]) {}

    /// Appends the value of a key to `out`; whether there is one. `now` is in milliseconds.
    fn get(&self, wanted: Wanted<'_>, now: u64, out: &mut Vec<u8>) -> bool;

    /// Sets the value of a key.
    fn set(&self, key: &[u8], place: Place, now: u64, value: &[u8]);
}

/// A key that a thread reads.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) key: &'a [u8],
    pub(super) place: Place,
    pub(super) reader: Option<&'a Reader>,
}

/// Number of keys that are known at once, as in a pipeline.
pub(super) const TOGETHER: usize = KEYS_AHEAD_MAX;

/// Number of the locks of `shards`, as many as a keyspace has stripes.
const SHARDS: usize = 64;

/// After so many tries a key is missing from `epochs`.
const TRIES_MAX: usize = 1_000_000;

type Map = HashMap<Box<[u8]>, Bytes>;

/// A kind, and what its threads use.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// One that all threads share, or one for each.
    keys: Vec<Box<dyn Keys>>,
}

impl Kind {
    fn shared(name: &'static str, keys: impl Keys + 'static) -> Kind {
        Kind { name, keys: vec![Box::new(keys)] }
    }

    /// All keyspaces of it.
    pub(super) fn all_keys(&self) -> impl Iterator<Item = &dyn Keys> {
        self.keys.iter().map(|keys| &**keys)
    }

    /// What the thread with this number uses.
    pub(super) fn keys_of(&self, thread: usize) -> &dyn Keys {
        &*self.keys[thread % self.keys.len()]
    }
}

/// Kinds by their names, all if there are none, for as many threads.
pub(super) fn chosen(names: &[KindName], threads: usize) -> Vec<Kind> {
    let names = if names.is_empty() { KindName::value_variants() } else { names };
    names.iter().map(|name| Kind::new(*name, threads)).collect()
}

impl Kind {
    fn new(name: KindName, threads: usize) -> Kind {
        let striped = |way| Striped { keyspace: Keyspace::default(), way };
        match name {
            KindName::Nothing => Kind::shared("nothing", Nothing),
            KindName::Mutex => Kind::shared("mutex", Locked(Mutex::default())),
            KindName::Shards => {
                let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
                Kind::shared("shards", Sharded { shards, hasher: RandomState::new() })
            }
            KindName::Epochs => Kind::shared("epochs", Epochs(SkipMap::new())),
            KindName::Hyaline => Kind::shared("hyaline", Hyaline(papaya::HashMap::new())),
            KindName::Zodium => Kind::shared("zodium", striped(Way::Single)),
            KindName::ZodiumBy16 => Kind::shared("zodium by 16", striped(Way::Together)),
            KindName::ZodiumHold => Kind::shared("zodium hold", striped(Way::Hold)),
            KindName::ZodiumOwn => {
                let own = (0..threads).map(|_| Box::new(striped(Way::Single)) as Box<dyn Keys>);
                Kind { name: "zodium own", keys: own.collect() }
            }
        }
    }
}

/// No keyspace: what the thread itself costs.
struct Nothing;

impl Keys for Nothing {
    fn get(&self, Wanted { key, .. }: Wanted<'_>, _: u64, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(key);
        true
    }

    fn set(&self, _: &[u8], _: Place, _: u64, _: &[u8]) {}
}

/// One lock around a map.
struct Locked(Mutex<Map>);

impl Keys for Locked {
    fn get(&self, Wanted { key, .. }: Wanted<'_>, _: u64, out: &mut Vec<u8>) -> bool {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        copy(map.get(key), out)
    }

    fn set(&self, key: &[u8], _: Place, _: u64, value: &[u8]) {
        let value = Bytes::copy_from_slice(value);
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.insert(key.into(), value);
    }
}

/// Maps by hash, each behind a lock that readers share.
struct Sharded {
    shards: Vec<RwLock<Map>>,
    hasher: RandomState,
}

impl Sharded {
    fn shard(&self, key: &[u8]) -> &RwLock<Map> {
        &self.shards[(self.hasher.hash_one(key) >> 32) as usize % SHARDS]
    }
}

impl Keys for Sharded {
    fn get(&self, Wanted { key, .. }: Wanted<'_>, _: u64, out: &mut Vec<u8>) -> bool {
        let map = self.shard(key).read().unwrap_or_else(PoisonError::into_inner);
        copy(map.get(key), out)
    }

    fn set(&self, key: &[u8], _: Place, _: u64, value: &[u8]) {
        let value = Bytes::copy_from_slice(value);
        let mut map = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        map.insert(key.into(), value);
    }
}

/// A list that is read without locks; what is removed is freed after the epochs of its readers.
struct Epochs(SkipMap<Box<[u8]>, Bytes>);

impl Keys for Epochs {
    fn get(&self, Wanted { key, .. }: Wanted<'_>, _: u64, out: &mut Vec<u8>) -> bool {
        // While a value is replaced, its key is missing for a moment.
        let mut tries = (0..TRIES_MAX).map(|_| self.0.get(key));
        tries.any(|entry| copy(entry.as_ref().map(|entry| entry.value()), out))
    }

    fn set(&self, key: &[u8], _: Place, _: u64, value: &[u8]) {
        self.0.insert(key.into(), Bytes::copy_from_slice(value));
    }
}

/// A map that is read without locks; what is removed is freed by the last reader that may see it.
struct Hyaline(papaya::HashMap<Box<[u8]>, Bytes>);

impl Keys for Hyaline {
    fn get(&self, Wanted { key, .. }: Wanted<'_>, _: u64, out: &mut Vec<u8>) -> bool {
        copy(self.0.pin().get(key), out)
    }

    fn set(&self, key: &[u8], _: Place, _: u64, value: &[u8]) {
        self.0.pin().insert(key.into(), Bytes::copy_from_slice(value));
    }
}

/// The keyspace of our RESP server.
struct Striped {
    keyspace: Keyspace,
    way: Way,
}

/// How commands use a keyspace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As short `GET` and `SET`.
    Single,
    /// The same, with keys that are looked up together, as those of a pipeline are.
    Together,
    /// As other commands that read.
    Hold,
}

impl Keys for Striped {
    fn reader(&self) -> Option<Reader> {
        Some(self.keyspace.reader())
    }

    fn prepare(&self, reader: Option<&Reader>, keys: &[&[u8]], places: &mut [Place; TOGETHER]) {
        for (key, place) in keys.iter().zip(&mut *places) {
            *place = self.keyspace.place(key);
        }
        if let Some(reader) = reader.filter(|_| self.way == Way::Together) {
            self.keyspace.look_ahead(reader, 0, places[..keys.len()].iter().copied());
        }
    }

    fn get(&self, wanted: Wanted<'_>, now: u64, out: &mut Vec<u8>) -> bool {
        let Wanted { key, place, reader } = wanted;
        let read = |reader| self.keyspace.try_read_key(reader, place, 0, key, now);
        if let Some(locked) = reader.filter(|_| self.way != Way::Hold).and_then(read) {
            let found = locked.read_string(true).ok().flatten();
            return found.inspect(|text| out.extend_from_slice(text)).is_some();
        }
        let stripe = self.keyspace.stripe(key);
        let hold = reader
            .and_then(|reader| self.keyspace.try_read(reader, stripe, now))
            .unwrap_or_else(|| self.keyspace.lock(stripe, now));
        let found = hold.read_string(key).ok().flatten();
        found.inspect(|text| out.extend_from_slice(text)).is_some()
    }

    fn set(&self, key: &[u8], place: Place, now: u64, value: &[u8]) {
        if let Some(mut locked) = self.keyspace.try_lock_key(place, 0, key, now) {
            return locked.put_string(value, None);
        }
        let mut hold = self.keyspace.lock(self.keyspace.stripe(key), now);
        hold.put_string(key, value, None);
        hold.changed(key);
    }
}

fn copy(value: Option<&Bytes>, out: &mut Vec<u8>) -> bool {
    value.inspect(|value| out.extend_from_slice(value)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_give_what_was_set() {
        for kind in chosen(&[], 2).into_iter().filter(|kind| kind.name != "nothing") {
            let (name, keys) = (kind.name, kind.keys_of(3));
            let (mut out, mut places) = (Vec::new(), [Place::default(); TOGETHER]);
            let reader = keys.reader();
            keys.prepare(reader.as_ref(), &[b"key"], &mut places);
            let [place, ..] = places;
            let wanted = Wanted { key: b"key", place, reader: reader.as_ref() };
            for (value, now) in [(b"one", 1000), (b"two", 1001)] {
                keys.set(b"key", place, now, value);
                for _ in 0..3 {
                    out.clear();
                    assert!(keys.get(wanted, now, &mut out), "{name}");
                    assert_eq!(out, value, "{name}");
                }
            }
        }
    }
}
