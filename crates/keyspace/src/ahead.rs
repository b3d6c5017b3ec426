//! Looks up keys before their commands are executed, many at once.
//!
//! In a large database each lookup waits for memory several times, one access after the other: the
//! directory, the group, the place in it, and the record. These waits are most of what a short
//! command costs. Accesses for different keys do not depend on each other, so the processor makes
//! them at the same time if nothing is between them. Afterwards the commands find all of it in its
//! caches.

use std::hint::black_box;

use parking_lot::MutexGuard;

use crate::keyspace::Keyspace;
use crate::stripe::Stripe;
use crate::stripes::STRIPES;
use crate::{DATABASES, Record};

/// Most keys that are looked up together: about as many accesses as a processor has under way.
pub const AHEAD_KEYS_MAX: usize = 16;
/// A smaller part of a database is in the caches of the processor anyway.
const KEYS_MIN: usize = 256;
/// Bytes of a line of the processor's caches.
const LINE_BYTES: usize = 64;
/// Lines of a key with its value that are accessed: the processor sees by itself that more follow.
const RECORD_LINES_MAX: usize = 4;

/// Keys of a database that commands will need soon.
pub struct Ahead<'k> {
    keyspace: &'k Keyspace,
    database: usize,
    /// The stripe of each key, and its hash within that.
    places: [(usize, u64); AHEAD_KEYS_MAX],
    len: usize,
}

impl<'k> Ahead<'k> {
    /// No keys yet.
    #[must_use]
    pub fn new(keyspace: &'k Keyspace, database: usize) -> Ahead<'k> {
        let database = database.min(DATABASES - 1);
        Ahead { keyspace, database, places: [(0, 0); AHEAD_KEYS_MAX], len: 0 }
    }

    /// Adds a key, unless there are [`AHEAD_KEYS_MAX`].
    pub fn add(&mut self, key: &[u8]) {
        if let Some(place) = self.places.get_mut(self.len) {
            *place = self.keyspace.place(key);
            self.len += 1;
        }
    }

    /// Has the processor fetch what the keys lead to; `false` if the database is so small that it
    /// pays for nothing. Changes nothing, and waits for no lock: keys of locked stripes are left
    /// out.
    #[must_use]
    pub fn fetch(&self) -> bool {
        let places = &self.places[..self.len];
        // All locks are taken before the first access: each of them waits for the accesses before.
        let mut guards: [Option<MutexGuard<'_, Stripe>>; STRIPES] = [const { None }; STRIPES];
        for (stripe, _) in places {
            if guards[*stripe].is_none() {
                guards[*stripe] = self.keyspace.try_lock_one(*stripe);
            }
        }
        let tables = places.iter().filter_map(|(stripe, hash)| {
            let guard = guards[*stripe].as_ref()?;
            Some((&guard.databases[self.database].table, *hash))
        });
        let mut groups = [None; AHEAD_KEYS_MAX];
        for ((table, hash), group) in tables.zip(&mut groups) {
            if table.len() < KEYS_MIN {
                return false;
            }
            *group = table.group_of(hash).map(|group| (group, hash));
        }
        let mut items = [None; AHEAD_KEYS_MAX];
        for ((group, hash), item) in groups.iter().flatten().zip(&mut items) {
            *item = group.tagged(*hash);
        }
        let mut records = [None; AHEAD_KEYS_MAX];
        for (item, bytes) in items.iter().flatten().zip(&mut records) {
            *bytes = Record::packed_bytes(&item.key);
        }
        for bytes in records.iter().flatten() {
            for line in bytes.chunks(LINE_BYTES).take(RECORD_LINES_MAX) {
                black_box(line.first().copied());
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Stripes, now};

    fn filled(keys: usize) -> Keyspace {
        let keyspace = Keyspace::default();
        let mut hold = keyspace.lock(Stripes::ALL, now());
        for number in 0..keys {
            let key = number.to_string();
            hold.put_string(key.as_bytes(), key.as_bytes(), None);
        }
        drop(hold);
        keyspace
    }

    fn fetch(keyspace: &Keyspace, keys: impl Iterator<Item = usize>) -> bool {
        let mut ahead = Ahead::new(keyspace, 0);
        keys.for_each(|number| ahead.add(number.to_string().as_bytes()));
        ahead.fetch()
    }

    #[test]
    fn keys_are_looked_up_in_large_databases_whatever_is_locked() {
        let large = filled(STRIPES * KEYS_MIN * 2);
        // Some are not there, and there are too many.
        assert!(fetch(&large, (0..100).map(|number| number * 500)));
        let hold = large.lock(large.stripe(b"500"), now());
        assert!(fetch(&large, [500, 1000, 500].into_iter()));
        drop(hold);
        let hold = large.lock(Stripes::ALL, now());
        assert!(fetch(&large, 0..100));
        drop(hold);
        assert!(!fetch(&filled(100), 0..100));
    }
}
