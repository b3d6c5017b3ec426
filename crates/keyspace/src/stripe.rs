//! What is behind one lock: a part of each database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustc_hash::FxHashMap;

use crate::due::Due;
use crate::record::New;
use crate::unsynced::Unsynced;
use crate::uses::{SharedUsed, Used};
use crate::{DATABASES, EntryRef, Record, Removed, Table, Tie, Word, random_below};

/// A part of each database, and the keys of it that are watched.
pub(crate) struct Stripe {
    pub(crate) databases: [Database; DATABASES],
    /// Sums over all its databases.
    pub(crate) tally: Arc<Tally>,
    watched: FxHashMap<(usize, Word), Vec<Watcher>>,
    pub(crate) unsynced: Unsynced,
}

/// The keys of a database in one stripe.
#[derive(Default)]
pub(crate) struct Database {
    /// Records by their keys, and their uses.
    pub(crate) table: Table<Record, SharedUsed>,
    due: Due,
    /// Number of keys that expire.
    pub(crate) volatile: usize,
    /// Bytes of its keys and values.
    bytes: u64,
    tally: Arc<Tally>,
    /// The keys, and those that expire, as they are in `tally`.
    tallied: (usize, usize),
    /// The ties of the keys that have any.
    ties: FxHashMap<Word, Vec<Tie>>,
}

/// Sums of a stripe, on a line of their own. Written under the stripe's lock only, and read
/// without it: a sum of many need not be exact.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Bytes of all keys and values.
    bytes: AtomicU64,
    keys: AtomicUsize,
    /// Keys that expire.
    volatile: AtomicUsize,
}

impl Tally {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of keys, or of those that expire.
    pub(crate) fn keys(&self, only_volatile: bool) -> usize {
        let counter = if only_volatile { &self.volatile } else { &self.keys };
        counter.load(Ordering::Relaxed)
    }
}

impl Default for Stripe {
    fn default() -> Stripe {
        let tally: Arc<Tally> = Arc::default();
        let database = |_| Database { tally: Arc::clone(&tally), ..Database::default() };
        let databases = std::array::from_fn(database);
        Stripe { databases, tally, watched: FxHashMap::default(), unsynced: Unsynced::default() }
    }
}

/// Learns of changes of the keys that it watches. All clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Watcher(Arc<AtomicBool>);

impl Watcher {
    /// Whether a watched key has changed.
    ///
    /// The caller holds the stripes of these keys, or has held them since: their locks order the
    /// accesses.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Marks it as changed.
    pub fn mark(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Database {
    /// Adds and subtracts bytes.
    fn account(&mut self, more: u64, less: u64) {
        self.bytes = (self.bytes + more).saturating_sub(less);
        let sum = &self.tally.bytes;
        let bytes = sum.load(Ordering::Relaxed);
        sum.store((bytes + more).saturating_sub(less), Ordering::Relaxed);
    }

    /// Brings the numbers of keys of the stripe up to date.
    fn count(&mut self) {
        let counts = (self.table.len(), self.volatile);
        let (keys, volatile) = std::mem::replace(&mut self.tallied, counts);
        let update = |sum: &AtomicUsize, before: usize, now: usize| {
            if before != now {
                let others = sum.load(Ordering::Relaxed).saturating_sub(before);
                sum.store(others + now, Ordering::Relaxed);
            }
        };
        update(&self.tally.keys, keys, counts.0);
        update(&self.tally.volatile, volatile, counts.1);
    }

    /// What it has for a key, if its time is past too.
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Option<EntryRef<'_>> {
        self.table.entry(hash, key).map(EntryRef::new)
    }

    /// What it has for a key with a hash.
    pub(crate) fn with_hash(&self, hash: u64) -> Option<EntryRef<'_>> {
        self.table.by_hash(hash, |_| true).map(EntryRef::new)
    }

    /// Whether it has nothing, and keeps no room for anything.
    pub(crate) fn is_fresh(&self) -> bool {
        self.table.is_empty() && self.table.own_bytes() == 0 && self.due.len() == 0
    }

    /// Counts the bytes of a key anew whose value has changed in place.
    pub(crate) fn measure(&mut self, hash: u64, key: &[u8]) {
        let _ = self.change(hash, key, Record::count_bytes);
    }

    /// Changes what a key has that is there, but not when it expires.
    pub(crate) fn change<T>(
        &mut self,
        hash: u64,
        key: &[u8],
        change: impl FnOnce(&mut Record) -> T,
    ) -> Option<T> {
        let (record, _) = self.table.entry_mut(hash, key)?;
        let before = record.counted_bytes();
        let result = change(record);
        let after = record.counted_bytes();
        if before != after {
            self.account(after, before);
        }
        Some(result)
    }

    /// Number of keys, or of those that expire.
    pub(crate) fn keys(&self, only_volatile: bool) -> usize {
        if only_volatile { self.volatile } else { self.table.len() }
    }

    /// A key by chance, or one of those that expire.
    pub(crate) fn random(&self, only_volatile: bool) -> Option<EntryRef<'_>> {
        /// Times are left over of keys that have another one. With more tries than these a search
        /// is as quick.
        const TRIES_MAX: usize = 64;
        if !only_volatile {
            return self.table.random().map(EntryRef::new);
        }
        let sampled = (0..TRIES_MAX).find_map(|_| {
            let (at, hash) = self.due.random()?;
            self.table.by_hash(hash, |record| record.expires_at() == Some(at))
        });
        let mut all = self.table.iter();
        let found = sampled.or_else(|| all.find(|(record, _)| record.expires_at().is_some()));
        found.map(EntryRef::new)
    }

    /// Takes all out.
    pub(crate) fn empty(&mut self) -> Database {
        let bytes = self.bytes;
        self.account(0, bytes);
        let fresh = Database { tally: Arc::clone(&self.tally), ..Database::default() };
        let tallied = self.tallied;
        let old = Database { bytes, ..std::mem::replace(self, fresh) };
        self.tallied = tallied;
        self.count();
        old
    }

    /// Sets what a key has, and notes its use; whether it is new, and what it had if that is large.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        key: &[u8],
        new: New,
        used: impl FnOnce(Used) -> Used,
    ) -> (bool, Option<Record>) {
        if let Some(at) = new.expires_at() {
            self.note_due(at, hash);
        }
        self.untie(key);
        // Its uses stay: a new value of a key is one more use of it.
        let Some((record, uses)) = self.table.entry_mut(hash, key) else {
            let record = new.record(key);
            self.account(record.counted_bytes(), 0);
            self.table.insert(hash, record, SharedUsed::new(used(Used::default())));
            self.count();
            return (true, None);
        };
        let (before, had_time) = (record.counted_bytes(), record.expires_at().is_some());
        let large = match record.is_large() {
            true => Some(std::mem::replace(record, new.record(key))),
            false => {
                record.set(new);
                None
            }
        };
        uses.set(used(uses.get()));
        let after = record.counted_bytes();
        self.account(after, before);
        self.volatile -= usize::from(had_time);
        self.count();
        (false, large)
    }

    pub(crate) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<Record> {
        let (record, _) = self.table.remove(hash, key)?;
        self.account(0, record.counted_bytes());
        self.volatile -= usize::from(record.expires_at().is_some());
        self.untie(key);
        self.count();
        Some(record)
    }

    pub(crate) fn expire_at(&mut self, hash: u64, key: &[u8], at: Option<u64>) -> bool {
        let change = |record: &mut Record| {
            let had_time = record.expires_at().is_some();
            record.set_expires_at(at);
            had_time
        };
        let Some(had_time) = self.change(hash, key, change) else { return false };
        self.volatile -= usize::from(had_time);
        if let Some(at) = at {
            self.note_due(at, hash);
        }
        self.count();
        true
    }

    /// Removes up to `keys_max` keys whose time is past; whether there may be more.
    pub(crate) fn expire(
        &mut self,
        now: u64,
        keys_max: usize,
        mut removed: impl FnMut(Word),
    ) -> bool {
        for _ in 0..keys_max {
            let Some(hash) = self.due.take(now) else { return false };
            let (volatile, ties, mut bytes) = (&mut self.volatile, &mut self.ties, 0);
            self.table.remove_hash(
                hash,
                |record| record.is_expired(now),
                |record| {
                    *volatile -= 1;
                    bytes += record.counted_bytes();
                    ties.remove(record.as_ref());
                    removed(record.as_ref().into());
                },
            );
            self.account(0, bytes);
            self.count();
        }
        true
    }

    /// Ties a key that is there, in place of its other ties.
    pub(crate) fn tie(&mut self, key: &[u8], ties: Vec<Tie>) {
        self.ties.insert(key.into(), ties);
    }

    /// The ties of a key.
    pub(crate) fn ties(&self, key: &[u8]) -> &[Tie] {
        // The usual case computes no hash.
        match self.ties.is_empty() {
            true => &[],
            false => self.ties.get(key).map_or(&[], Vec::as_slice),
        }
    }

    /// Whether a key went with one of its ties, at a moment or before.
    pub(crate) fn is_cut(&self, key: &[u8], moment: u64) -> bool {
        self.ties(key).iter().any(|tie| tie.is_cut(moment))
    }

    /// Whether a key is not there any more: its time is past, or a tie was cut until a moment.
    pub(crate) fn is_gone(&self, entry: EntryRef<'_>, now: u64, moment: u64) -> bool {
        entry.is_expired(now) || self.is_cut(entry.key(), moment)
    }

    fn untie(&mut self, key: &[u8]) {
        if !self.ties.is_empty() {
            self.ties.remove(key);
        }
    }

    /// Bytes of its keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts a key that expires.
    fn note_due(&mut self, at: u64, hash: u64) {
        self.volatile += 1;
        self.due.note(at, hash);
        if !self.due.is_stale(self.volatile) {
            return;
        }
        // The key may not have its time yet.
        let noted = (at, hash);
        // Whichever is less to look at: few keys that expire may be among many that do not.
        if self.due.len() < self.table.len() {
            let has_time = |record: &Record, at| record.expires_at() == Some(at);
            self.due.retain(|(at, hash)| {
                let entry = self.table.by_hash(hash, |record| has_time(record, at));
                (at, hash) == noted || entry.is_some()
            });
        } else {
            let times = self.table.hashes();
            let times = times.filter_map(|(hash, record)| record.expires_at().map(|at| (at, hash)));
            self.due.rebuild(times.chain([noted]));
        }
    }
}

impl Stripe {
    /// A key of any database by chance, or one of those that expire, and its database.
    pub(crate) fn random(&self, only_volatile: bool) -> Option<(usize, EntryRef<'_>)> {
        let count = |database: &Database| database.keys(only_volatile);
        let mut place = random_below(self.databases.iter().map(count).sum());
        let number = self.databases.iter().position(|database| {
            let is_here = place < count(database);
            place = place.saturating_sub(count(database));
            is_here
        })?;
        Some((number, self.databases.get(number)?.random(only_volatile)?))
    }

    /// Whether a key of any database has ties.
    pub(crate) fn has_ties(&self) -> bool {
        self.databases.iter().any(|database| !database.ties.is_empty())
    }

    /// Removes keys whose time is past, up to `keys_max` of each database; whether there may be
    /// more. Their watchers are marked.
    pub(crate) fn expire(&mut self, now: u64, keys_max: usize, removed: &mut Vec<Removed>) -> bool {
        let (mut is_more, first) = (false, removed.len());
        for (database, keys) in self.databases.iter_mut().enumerate() {
            is_more |= keys.expire(now, keys_max, |key| removed.push(Removed { database, key }));
        }
        for Removed { database, key } in &removed[first..] {
            self.mark(*database, key);
        }
        is_more
    }

    pub(crate) fn watch(&mut self, database: usize, key: &[u8], watcher: &Watcher) {
        self.watched.entry((database, key.into())).or_default().push(watcher.clone());
    }

    pub(crate) fn unwatch(&mut self, database: usize, key: &[u8], watcher: &Watcher) {
        let place = (database, Word::from(key));
        if let Some(watchers) = self.watched.get_mut(&place) {
            watchers.retain(|other| !Arc::ptr_eq(&other.0, &watcher.0));
            if watchers.is_empty() {
                self.watched.remove(&place);
            }
        }
    }

    /// Marks the watchers of a key.
    pub(crate) fn mark(&self, database: usize, key: &[u8]) {
        // The usual case allocates nothing.
        if !self.watched.is_empty()
            && let Some(watchers) = self.watched.get(&(database, key.into()))
        {
            watchers.iter().for_each(Watcher::mark);
        }
    }

    /// Marks the watchers of keys for which `is_changed` holds.
    pub(crate) fn mark_where(&self, is_changed: impl Fn(usize, &[u8]) -> bool) {
        for ((database, key), watchers) in &self.watched {
            if is_changed(*database, key) {
                watchers.iter().for_each(Watcher::mark);
            }
        }
    }
}
