//! A hash table that grows a group at a time, and can be scanned while it changes.
//!
//! Key decision: extendible hashing. A directory leads from the first bits of a hash to a group of
//! at most [`GROUP_ENTRIES_MAX`] entries; a full group is split by one more bit. So no insertion
//! moves more than a group, and a range of hashes is always a range of groups. A scan goes through
//! the hashes in order: what is there from its beginning to its end is met, whatever comes and
//! goes meanwhile.

use crate::random::random_below;

/// Most entries of a group before it is split.
const GROUP_ENTRIES_MAX: usize = 16;
/// Places that a group gets at once. With fewer, its allocation grows so often that it leaves holes
/// which fit nothing else.
const PLACES_STEP: usize = 4;
/// Places to spare from which a group gives some back. With fewer, one that now grows and now
/// shrinks would be moved each time.
const SPARE_MAX: usize = PLACES_STEP + PLACES_STEP / 2;
/// Two halves of a group with so few entries together become one.
const MERGED_ENTRIES_MAX: usize = 8;
/// Bits of the hash that an entry keeps.
pub(crate) const HASH_BITS: u32 = 32;
/// Most places of the directory for each group. Beyond it a group grows instead: so many of its
/// hashes are equal in all bits that count.
const PLACES_PER_GROUP_MAX: usize = 32;

/// Entries by hash and key. The caller hashes: each key must always come with the same hash.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    /// The group of each value of the first `depth` bits of a hash.
    directory: Vec<u32>,
    depth: u32,
    /// How many groups need all bits of the directory. With none it can be halved.
    deepest: u32,
    groups: Vec<Group<K, V>>,
    len: usize,
    /// Entries of the largest group that there was.
    largest: usize,
    /// Places of all groups for entries: those taken, and those to spare.
    places: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Group<K, V> {
    /// Bits of the hash that all its entries have in common.
    depth: u32,
    /// These bits, at the upper end of the number.
    prefix: u64,
    /// A byte of each entry's hash, of as many as fit: most keys need not be compared.
    tags: [u8; GROUP_ENTRIES_MAX],
    entries: Vec<Item<K, V>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Item<K, V> {
    /// The first bits of the hash. The others are not needed: no directory is that deep.
    hash: u32,
    pub(crate) key: K,
    value: V,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table {
            directory: Vec::new(),
            depth: 0,
            deepest: 0,
            groups: Vec::new(),
            len: 0,
            largest: 0,
            places: 0,
        }
    }
}

/// A copy has no places to spare.
impl<K: Clone, V: Clone> Clone for Table<K, V> {
    fn clone(&self) -> Table<K, V> {
        let groups = self.groups.clone();
        let places = groups.iter().map(|group| group.entries.capacity()).sum();
        Table { directory: self.directory.clone(), groups, places, ..*self }
    }
}

impl<K, V> Table<K, V> {
    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries. A small table has them in the order of their insertion.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let items = self.groups.iter().flat_map(|group| &group.entries);
        items.map(|item| (&item.key, &item.value))
    }

    /// The hash and the key of all entries. Of the hash only the bits are there that a table looks
    /// at.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = (u64, &K)> {
        let items = self.groups.iter().flat_map(|group| &group.entries);
        items.map(|item| (item.hash(), &item.key))
    }

    /// An entry by chance, each as likely as any other.
    pub(crate) fn random(&self) -> Option<(&K, &V)> {
        if self.is_empty() {
            return None;
        }
        // All groups have the same number of places, so that entries of full ones are no rarer.
        let places = if self.groups.len() == 1 { self.len } else { self.largest };
        loop {
            let group = &self.groups[random_below(self.groups.len())];
            if let Some(item) = group.entries.get(random_below(places)) {
                return Some((&item.key, &item.value));
            }
        }
    }

    /// Visits the group that holds hashes from `position` on, and returns where the next one
    /// begins; `None` at the end.
    pub(crate) fn scan<'a>(
        &'a self,
        position: u64,
        visit: &mut dyn FnMut(&'a K, &'a V),
    ) -> Option<u64> {
        let group = self.group_of(position)?;
        for item in &group.entries {
            visit(&item.key, &item.value);
        }
        match group.depth {
            0 => None,
            depth => group.prefix.checked_add(1 << (64 - depth)),
        }
    }

    /// Bytes of the table itself, without those that keys and values point to.
    pub(crate) fn own_bytes(&self) -> usize {
        let groups = self.groups.capacity() * size_of::<Group<K, V>>();
        4 * self.directory.capacity() + groups + self.places * size_of::<Item<K, V>>()
    }

    /// The group that has a hash, if any has it.
    pub(crate) fn group_of(&self, hash: u64) -> Option<&Group<K, V>> {
        let number = *self.directory.get(self.slot(hash))?;
        self.groups.get(number as usize)
    }

    /// The place of a hash in the directory.
    fn slot(&self, hash: u64) -> usize {
        match self.depth {
            0 => 0,
            depth => (hash >> (64 - depth)) as usize,
        }
    }
}

impl<K: AsRef<[u8]>, V> Table<K, V> {
    /// The value of a key.
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Option<&V> {
        let group = self.group_of(hash)?;
        group.find(hash, key).map(|place| &group.entries[place].value)
    }

    /// The value of a key, to change it.
    pub(crate) fn get_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut V> {
        let (group, place) = self.find(hash, key)?;
        self.groups.get_mut(group)?.entries.get_mut(place).map(|item| &mut item.value)
    }

    /// The key as it is stored, and its value.
    pub(crate) fn entry(&self, hash: u64, key: &[u8]) -> Option<(&K, &V)> {
        let group = self.group_of(hash)?;
        let item = &group.entries[group.find(hash, key)?];
        Some((&item.key, &item.value))
    }

    /// The same, to change it: the key only to one that is equal.
    pub(crate) fn entry_mut(&mut self, hash: u64, key: &[u8]) -> Option<(&mut K, &mut V)> {
        let (group, place) = self.find(hash, key)?;
        let item = self.groups.get_mut(group)?.entries.get_mut(place)?;
        Some((&mut item.key, &mut item.value))
    }

    /// Sets the value of a key, and returns the one that it had. The key stays if there is one.
    pub(crate) fn insert(&mut self, hash: u64, key: K, value: V) -> Option<V> {
        if let Some(there) = self.get_mut(hash, key.as_ref()) {
            return Some(std::mem::replace(there, value));
        }
        self.add(Item { hash: kept(hash), key, value });
        self.len += 1;
        None
    }

    /// Removes a key, and returns it with its value.
    pub(crate) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<(K, V)> {
        let (group, place) = self.find(hash, key)?;
        Some(self.remove_at(group, place))
    }

    /// Removes the entries that may have this hash and whose key `is_removed` says, and gives their
    /// keys to `removed`.
    pub(crate) fn remove_hash(
        &mut self,
        hash: u64,
        is_removed: impl Fn(&K) -> bool,
        mut removed: impl FnMut(K),
    ) {
        loop {
            let Some(number) = self.directory.get(self.slot(hash)).copied() else { return };
            let items = &self.groups[number as usize].entries;
            let is_it = |item: &Item<K, V>| item.hash == kept(hash) && is_removed(&item.key);
            let Some(place) = items.iter().position(is_it) else { return };
            let (key, _) = self.remove_at(number as usize, place);
            removed(key);
        }
    }

    /// An entry that may have this hash and whose key `is_it` says.
    pub(crate) fn by_hash(&self, hash: u64, is_it: impl Fn(&K) -> bool) -> Option<(&K, &V)> {
        let items = &self.group_of(hash)?.entries;
        let item = items.iter().find(|item| item.hash == kept(hash) && is_it(&item.key))?;
        Some((&item.key, &item.value))
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<(usize, usize)> {
        let number = *self.directory.get(self.slot(hash))? as usize;
        Some((number, self.groups.get(number)?.find(hash, key)?))
    }

    fn remove_at(&mut self, number: usize, place: usize) -> (K, V) {
        // The order of the others is that of a small table.
        let item = self.change(number, |group| group.take(place));
        self.len -= 1;
        if self.len == 0 {
            *self = Table::default();
        }
        // The result may fit to its other half in turn.
        while self.merge(item.hash()) {}
        (item.key, item.value)
    }

    fn add(&mut self, item: Item<K, V>) {
        if self.groups.is_empty() {
            // Most collections stay that small: a push would make room for four of each.
            self.groups.reserve_exact(1);
            self.directory.reserve_exact(1);
            self.groups.push(Group::new(0, 0));
            self.directory.push(0);
            self.deepest = 1;
        }
        loop {
            let number = self.directory[self.slot(item.hash())];
            let is_deep = self.directory.len() >= PLACES_PER_GROUP_MAX * (self.groups.len() + 1);
            let group = &self.groups[number as usize];
            let doubles = group.depth == self.depth;
            let is_full = group.depth == HASH_BITS || doubles && is_deep;
            if group.entries.len() < GROUP_ENTRIES_MAX || is_full {
                self.largest = self.largest.max(group.entries.len() + 1);
                self.change(number as usize, |group| group.push(item));
                return;
            }
            self.split(number);
        }
    }

    /// Changes the entries of a group, and counts the places that it gets or gives back.
    fn change<T>(&mut self, number: usize, change: impl FnOnce(&mut Group<K, V>) -> T) -> T {
        let group = &mut self.groups[number];
        let before = group.entries.capacity();
        let changed = change(group);
        self.places = self.places + group.entries.capacity() - before;
        changed
    }

    /// Takes all entries of a group.
    fn take_all(&mut self, number: u32) -> Vec<Item<K, V>> {
        self.change(number as usize, |group| std::mem::take(&mut group.entries))
    }

    /// Splits a group by the next bit of its entries' hashes.
    fn split(&mut self, number: u32) {
        let items = self.take_all(number);
        let group = &self.groups[number as usize];
        let depth = group.depth + 1;
        let bit = 1 << (64 - depth);
        let is_upper = |item: &Item<K, V>| item.hash() & bit != 0;
        let uppers = items.iter().filter(|item| is_upper(item)).count();
        let mut upper = Group::with_room(depth, group.prefix | bit, uppers);
        let mut lower = Group::with_room(depth, group.prefix, items.len() - uppers);
        self.places += upper.entries.capacity() + lower.entries.capacity();
        for item in items {
            let half = if is_upper(&item) { &mut upper } else { &mut lower };
            half.push(item);
        }
        if depth > self.depth {
            self.directory = self.directory.iter().flat_map(|number| [*number; 2]).collect();
            self.depth = depth;
            self.deepest = 0;
        }
        if depth == self.depth {
            self.deepest += 2;
        }
        let new = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        self.point(&upper, new);
        self.groups[number as usize] = lower;
        self.groups.push(upper);
    }

    /// Has the directory lead to a group.
    fn point(&mut self, group: &Group<K, V>, number: u32) {
        let first = self.slot(group.prefix);
        let count = 1 << (self.depth - group.depth);
        self.directory[first..first + count].fill(number);
    }

    /// Makes one group of the one of this hash and its other half, if both are small.
    fn merge(&mut self, hash: u64) -> bool {
        let Some(number) = self.directory.get(self.slot(hash)).copied() else { return false };
        let group = &self.groups[number as usize];
        if group.depth == 0 {
            return false;
        }
        let bit = 1 << (64 - group.depth);
        let other_number = self.directory[self.slot(group.prefix ^ bit)];
        let other = &self.groups[other_number as usize];
        if other.depth != group.depth
            || group.entries.len() + other.entries.len() > MERGED_ENTRIES_MAX
        {
            return false;
        }
        let count = group.entries.len() + other.entries.len();
        let mut merged = Group::with_room(group.depth - 1, group.prefix & !bit, count);
        self.places += merged.entries.capacity();
        if group.depth == self.depth {
            self.deepest -= 2;
        }
        for half in [number, other_number] {
            self.take_all(half).into_iter().for_each(|item| merged.push(item));
        }
        self.point(&merged, number);
        self.groups[number as usize] = merged;
        self.drop_group(other_number);
        self.shrink_directory();
        true
    }

    /// Drops a group that nothing leads to; the last one takes its number.
    fn drop_group(&mut self, number: u32) {
        self.groups.swap_remove(number as usize);
        if self.groups.capacity() > 2 * self.groups.len() + GROUP_ENTRIES_MAX {
            self.groups.shrink_to(self.groups.len() + self.groups.len() / 2);
        }
        if let Some(moved) = self.groups.get(number as usize) {
            let (prefix, depth) = (moved.prefix, moved.depth);
            let first = self.slot(prefix);
            let count = 1 << (self.depth - depth);
            self.directory[first..first + count].fill(number);
        }
    }

    /// Halves the directory while no group needs its last bit. Looked at only when it has become
    /// much larger than the groups are many.
    fn shrink_directory(&mut self) {
        if self.directory.len() < 8 * self.groups.len() {
            return;
        }
        while self.deepest == 0 && self.depth > 0 {
            self.directory = self.directory.iter().step_by(2).copied().collect();
            self.depth -= 1;
            self.deepest = self.count_deepest();
        }
    }

    fn count_deepest(&self) -> u32 {
        let deepest = self.groups.iter().filter(|group| group.depth == self.depth);
        u32::try_from(deepest.count()).unwrap_or(u32::MAX)
    }
}

impl<K, V> Group<K, V> {
    fn new(depth: u32, prefix: u64) -> Group<K, V> {
        Group { depth, prefix, tags: [0; GROUP_ENTRIES_MAX], entries: Vec::new() }
    }

    /// A group that gets so many entries at once.
    fn with_room(depth: u32, prefix: u64, entries: usize) -> Group<K, V> {
        let mut group = Group::new(depth, prefix);
        group.entries.reserve_exact(entries.next_multiple_of(PLACES_STEP));
        group
    }

    fn push(&mut self, item: Item<K, V>) {
        let place = self.entries.len();
        if let Some(slot) = self.tags.get_mut(place) {
            *slot = tag(item.hash());
        }
        if place == self.entries.capacity() {
            // A small collection has no room to spare.
            self.entries.reserve_exact(if place < PLACES_STEP { 1 } else { PLACES_STEP });
        }
        self.entries.push(item);
    }

    /// Removes the entry at a place. The others keep their order.
    fn take(&mut self, place: usize) -> Item<K, V> {
        let item = self.entries.remove(place);
        self.tag_from(place);
        if self.entries.capacity() >= self.entries.len() + SPARE_MAX {
            self.entries.shrink_to(self.entries.len().next_multiple_of(PLACES_STEP));
        }
        item
    }

    /// The first entry that may have a hash, by its tag: no entry is accessed.
    pub(crate) fn tagged(&self, hash: u64) -> Option<&Item<K, V>> {
        self.entries.get(Matches::of(&self.tags, tag(hash)).next()?)
    }

    /// Writes the tags anew, from a place on.
    fn tag_from(&mut self, place: usize) {
        let items = self.entries.iter().zip(&mut self.tags);
        for (item, slot) in items.skip(place) {
            *slot = tag(item.hash());
        }
    }
}

impl<K: AsRef<[u8]>, V> Group<K, V> {
    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it = |item: &Item<K, V>| item.hash == kept(hash) && item.key.as_ref() == key;
        let mut tagged = Matches::of(&self.tags, tag(hash));
        let found = tagged.find(|place| self.entries.get(*place).is_some_and(is_it));
        if found.is_some() || self.entries.len() <= GROUP_ENTRIES_MAX {
            return found;
        }
        let untagged = self.entries.iter().enumerate().skip(GROUP_ENTRIES_MAX);
        untagged.into_iter().find(|(_, item)| is_it(item)).map(|(place, _)| place)
    }
}

impl<K, V> Item<K, V> {
    /// The bits of its hash that a table looks at.
    fn hash(&self) -> u64 {
        u64::from(self.hash) << HASH_BITS
    }
}

/// The places of tags that may be equal to one, ascending; the first of them is.
///
/// All tags are compared at once. A loop that ends at the one which is equal would be predicted
/// wrong, and the processor would not begin the next lookup before this one.
struct Matches {
    /// The highest bit of each byte that may be equal.
    bits: u128,
}

impl Matches {
    fn of(tags: &[u8; GROUP_ENTRIES_MAX], wanted: u8) -> Matches {
        const LOWEST: u128 = u128::MAX / 0xff;
        const HIGHEST: u128 = LOWEST << 7;
        let differences = u128::from_le_bytes(*tags) ^ (LOWEST * u128::from(wanted));
        // A byte that is zero borrows from the next one, which then may seem to be zero too.
        Matches { bits: differences.wrapping_sub(LOWEST) & !differences & HIGHEST }
    }
}

impl Iterator for Matches {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.bits == 0 {
            return None;
        }
        let place = self.bits.trailing_zeros() / u8::BITS;
        self.bits &= self.bits - 1;
        Some(place as usize)
    }
}

/// The bits of a hash that an entry keeps.
fn kept(hash: u64) -> u32 {
    (hash >> HASH_BITS) as u32
}

/// A byte of a hash that says little about its group.
fn tag(hash: u64) -> u8 {
    (hash >> HASH_BITS) as u8
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A hash that has all bits, and differs for each of these keys.
    fn hash(key: u64) -> u64 {
        let mixed = (key ^ (key >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    }

    fn count_places<K, V>(table: &Table<K, V>) -> usize {
        table.groups.iter().map(|group| group.entries.capacity()).sum()
    }

    fn scanned(table: &Table<[u8; 8], u64>, mut change: impl FnMut(u64)) -> Vec<u64> {
        let (mut met, mut position) = (Vec::new(), 0);
        loop {
            let next = table.scan(position, &mut |_, value| met.push(*value));
            change(position);
            match next {
                None => return met,
                Some(next) => position = next,
            }
        }
    }

    #[test]
    fn it_holds_what_a_map_holds() {
        let (mut table, mut model) = (Table::default(), HashMap::new());
        let mut state = 1;
        for round in 0..60_000_u64 {
            state = hash(state);
            let key = state % 3000;
            // Grows to most of the keys, and shrinks to few again.
            let is_removed = (state >> 40) % 100 < if (round / 20_000) == 1 { 90 } else { 20 };
            let bytes = key.to_be_bytes();
            if is_removed {
                let removed = table.remove(hash(key), &bytes).map(|(_, value)| value);
                assert_eq!(removed, model.remove(&key));
            } else {
                assert_eq!(table.insert(hash(key), bytes, round), model.insert(key, round));
            }
            assert_eq!(table.len(), model.len());
            assert_eq!(table.deepest, table.count_deepest());
            if round % 64 == 0 {
                assert_eq!(table.places, count_places(&table));
            }
        }
        for key in 0..3000_u64 {
            assert_eq!(table.get(hash(key), &key.to_be_bytes()), model.get(&key));
        }
        let mut all: Vec<_> = table.iter().map(|(_, value)| *value).collect();
        let mut expected: Vec<_> = model.values().copied().collect();
        all.sort_unstable();
        expected.sort_unstable();
        assert_eq!(all, expected);
        let mut met = scanned(&table, |_| ());
        met.sort_unstable();
        assert_eq!(met, expected);
        assert!(table.groups.len() <= table.directory.len());
    }

    #[test]
    fn a_table_that_was_emptied_owns_nothing() {
        let mut table = Table::default();
        for key in 0..10_000_u64 {
            table.insert(hash(key), key.to_be_bytes(), key);
        }
        assert!(table.own_bytes() > 10_000 * 24);
        for key in 10..10_000_u64 {
            table.remove(hash(key), &key.to_be_bytes());
        }
        assert!(table.own_bytes() < 20_000, "{}", table.own_bytes());
        for key in 0..10_u64 {
            table.remove(hash(key), &key.to_be_bytes());
        }
        assert_eq!(table.own_bytes(), 0);
    }

    #[test]
    fn what_is_left_of_many_takes_little_more_than_as_many_that_came() {
        let bytes_of = |kept: u64, all: u64| {
            let mut table = Table::default();
            for key in 0..all {
                table.insert(hash(hash(key)), key.to_be_bytes(), key);
            }
            for key in kept..all {
                table.remove(hash(hash(key)), &key.to_be_bytes());
            }
            let copy = table.clone();
            for table in [&table, &copy] {
                assert_eq!(table.places, count_places(table));
            }
            table.own_bytes()
        };
        let came = bytes_of(10_000, 10_000);
        for all in [11_000, 15_000, 20_000, 30_000, 60_000] {
            let left = bytes_of(10_000, all);
            assert!(4 * left < 7 * came, "{left} bytes of {all} entries, {came} of 10,000");
        }
    }

    #[test]
    fn equal_hashes_are_kept_apart_by_their_keys() {
        let mut table = Table::default();
        for key in 0..50_u64 {
            table.insert(7, key.to_be_bytes(), key);
        }
        for key in 0..50_u64 {
            assert_eq!(table.get(7, &key.to_be_bytes()), Some(&key));
        }
        assert!(table.random().is_some());
        for key in 0..50_u64 {
            assert_eq!(table.remove(7, &key.to_be_bytes()).map(|(_, value)| value), Some(key));
        }
        assert!(table.is_empty());
    }

    #[test]
    fn what_is_there_all_the_time_is_met_while_the_table_grows_and_shrinks() {
        for grows in [true, false] {
            let mut table = Table::default();
            for key in 0..2000_u64 {
                table.insert(hash(key), key.to_be_bytes(), key);
            }
            let (mut met, mut position, mut turn) = (Vec::new(), 0, 0);
            loop {
                let next = table.scan(position, &mut |_, value| met.push(*value));
                for key in (0..40).map(|step| 1000 + 40 * turn + step) {
                    if grows {
                        let key = key + 10_000;
                        table.insert(hash(key), key.to_be_bytes(), key);
                    } else {
                        table.remove(hash(key), &key.to_be_bytes());
                    }
                }
                turn += 1;
                match next {
                    None => break,
                    Some(next) => position = next,
                }
            }
            met.sort_unstable();
            met.dedup();
            assert!((0..1000).all(|key| met.binary_search(&key).is_ok()));
        }
    }

    #[test]
    fn all_entries_are_equally_likely() {
        let mut table = Table::default();
        for key in 0..100_u64 {
            table.insert(hash(key), key.to_be_bytes(), key as usize);
        }
        let mut counts = [0_u32; 100];
        for _ in 0..100_000 {
            counts[*table.random().unwrap().1] += 1;
        }
        assert!(counts.iter().all(|count| (750..1250).contains(count)), "{counts:?}");
    }
}
