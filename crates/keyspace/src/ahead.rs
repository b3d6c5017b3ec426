//! Looks up keys before their commands are executed, many at once.
//!
//! In a large database each lookup waits for memory several times, one access after the other: the
//! directory, the group, the place in it, and the record. These waits are most of what a short
//! command costs. Accesses for different keys do not depend on each other, so the processor makes
//! them at the same time if nothing is between them. Afterwards the commands find all of it in its
//! caches.

use std::hint::black_box;

use zodium_readlocks::Reader;

use crate::keyspace::Keyspace;
use crate::{DATABASES, Place, Record, Stripes};

/// Most keys that are looked up together: about as many accesses as a processor has under way.
pub const KEYS_AHEAD_MAX: usize = 16;
/// A smaller stripe is in the caches of the processor anyway.
const KEYS_MIN: usize = 256;
/// Bytes of a line of the processor's caches.
const LINE_BYTES: usize = 64;
/// Lines of a key with its value that are accessed: the processor sees by itself that more follow.
const RECORD_LINES_MAX: usize = 4;

impl Keyspace {
    /// Whether it is worth to look ahead: there are more keys than the caches hold anyway.
    #[must_use]
    pub fn pays_to_look_ahead(&self) -> bool {
        // All stripes have about as many keys.
        self.has_keys(0, KEYS_MIN)
    }

    /// Has the processor fetch what some keys of a database lead to, up to [`KEYS_AHEAD_MAX`];
    /// returns how many it has found. Changes nothing, and waits for no lock: keys of stripes that
    /// are written to are left out.
    pub fn look_ahead(
        &self,
        reader: &Reader,
        database: usize,
        places: impl Iterator<Item = Place> + Clone,
    ) -> usize {
        let places = places.take(KEYS_AHEAD_MAX);
        // All are announced before the first access: an announcement waits for the accesses before.
        let wanted = places.clone().fold(Stripes::NONE, |all, place| all | place.stripes());
        let guards = self.stripes.read_each(reader, wanted.bits());
        let mut groups = [None; KEYS_AHEAD_MAX];
        for (place, group) in places.zip(&mut groups) {
            let Some(stripe) = guards.get(place.stripe) else { continue };
            let table = &stripe.databases[database.min(DATABASES - 1)].table;
            *group = table.group_of(place.hash).map(|group| (group, place.hash));
        }
        let mut items = [None; KEYS_AHEAD_MAX];
        for ((group, hash), item) in groups.iter().flatten().zip(&mut items) {
            *item = group.tagged(*hash);
        }
        let mut records = [None; KEYS_AHEAD_MAX];
        for (item, bytes) in items.iter().flatten().zip(&mut records) {
            *bytes = Record::packed_bytes(&item.key);
        }
        for bytes in records.iter().flatten() {
            for line in bytes.chunks(LINE_BYTES).take(RECORD_LINES_MAX) {
                black_box(line.first().copied());
            }
        }
        items.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::now;
    use crate::stripes::STRIPES;

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

    fn look_ahead(keyspace: &Keyspace, keys: impl Iterator<Item = usize> + Clone) -> usize {
        let reader = keyspace.reader();
        keyspace.look_ahead(&reader, 0, keys.map(|key| keyspace.place(key.to_string().as_bytes())))
    }

    #[test]
    fn keys_are_looked_up_in_large_databases_whatever_is_locked() {
        let large = filled(STRIPES * KEYS_MIN * 2);
        assert!(large.pays_to_look_ahead() && !filled(100).pays_to_look_ahead());
        // Some are not there, and there are too many.
        assert_eq!(look_ahead(&large, (0..100).map(|number| number * 500)), KEYS_AHEAD_MAX);
        let hold = large.lock(large.stripe(b"500"), now());
        assert!(look_ahead(&large, [500, 1000, 500].into_iter()) <= 1);
        drop(hold);
        let hold = large.lock(Stripes::ALL, now());
        assert_eq!(look_ahead(&large, 0..100), 0);
        drop(hold);
    }
}
