//! Locked stripes: what a command or a transaction reads and changes.

use std::cell::Cell;

use crate::gate::Passage;
use crate::guards::Guards;
use crate::journal::Journal;
use crate::news::News;
use crate::record::New;
use crate::seen::Seen;
use crate::stripe::{Database, Stripe};
use crate::stripes::{STRIPE_BITS, STRIPES};
use crate::uses::Used;
use crate::{
    Entry, EntryRef, Keyspace, Kind, Place, Record, Stripes, Text, Tie, Totals, Uses, Value,
    ValueRef, Watcher, Word, WrongType, now, random_below,
};

/// Locked stripes. All keys that are asked for must be in them. If they were locked to read them
/// only ([`Keyspace::try_read`]), all that may change a key panics.
///
/// A key whose time is past, or one of whose ties was cut, is not there. It is removed by the next
/// write to it, or by [`Keyspace::expire`]. With [`Hold::keep_expired`] times end nothing.
pub struct Hold<'a> {
    keyspace: &'a Keyspace,
    guards: Guards<'a>,
    passage: Passage<'a>,
    /// The time of all that happens within, in milliseconds since 1970.
    pub now: u64,
    /// The same in microseconds, if several commands are executed within.
    pub frozen: Option<u64>,
    /// Keys whose times are until then are not there: `now`, unless the hold keeps them.
    past: u64,
    /// Ties that were cut until then are cut for this hold.
    moment: u64,
    /// The database that keys are meant of.
    pub database: usize,
    /// What entries keep of their uses.
    pub uses: Uses,
    /// Whether reading a key leaves what is known of its uses.
    pub keeps_uses: bool,
    /// Number of changes.
    pub changes: u64,
    /// Keys that were asked for and were there, and those that were not.
    pub found: Cell<(u64, u64)>,
    /// What others are to know of the changes.
    pub news: News,
    /// What a log gets of the changes.
    pub journal: Journal,
    /// What was seen of changes that a log has.
    pub seen: Seen,
    /// Large values that keys had.
    garbage: Vec<Record>,
}

/// A key of a database that was removed, or has come into being.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Removed {
    /// The database.
    pub database: usize,
    /// The key.
    pub key: Word,
}

impl<'a> Hold<'a> {
    pub(crate) fn new(
        keyspace: &'a Keyspace,
        guards: Guards<'a>,
        passage: Passage<'a>,
        now: u64,
    ) -> Hold<'a> {
        Hold {
            keyspace,
            guards,
            passage,
            now,
            frozen: None,
            past: now,
            moment: keyspace.moments.last(),
            database: 0,
            uses: keyspace.uses(),
            keeps_uses: false,
            changes: 0,
            found: Cell::default(),
            news: News::default(),
            journal: Journal::default(),
            seen: Seen::default(),
            garbage: Vec::new(),
        }
    }

    /// Locks further stripes, and waits for them; whether there were any. Only for a hold that was
    /// made for that ([`Keyspace::try_lock_first`]): others have all of theirs from the start.
    ///
    /// What others did until now with these stripes has happened before all of the hold. So keys of
    /// theirs whose time is past by now are removed, though the hold's own time is an earlier one:
    /// others may have acted on their absence. And ties that were cut until now are cut for it. The
    /// caller has asked for no key with ties until then: once the hold has such keys
    /// ([`Hold::has_ties`]), the caller locks all stripes.
    pub fn widen(&mut self, wanted: Stripes) -> bool {
        let Passage::Alone { .. } = self.passage else { return false };
        let missing = wanted.without(self.guards.stripes());
        if missing.is_empty() {
            return false;
        }
        let stripes = &self.keyspace.stripes;
        missing.numbers().for_each(|number| self.guards.add(number, stripes.lock(number)));
        self.moment = self.keyspace.moments.last();
        self.remove_past(missing);
        true
    }

    /// Removes the keys of stripes whose time has passed since the hold began.
    fn remove_past(&mut self, stripes: Stripes) {
        let has_volatile = |number| self.guards.stripe(number).tally.keys(true) > 0;
        if !stripes.numbers().any(has_volatile) {
            return;
        }
        let now = now();
        if now <= self.past {
            return;
        }
        let first = self.news.expired.len();
        for number in stripes.numbers() {
            self.guards.stripe_mut(number).expire(now, usize::MAX, &mut self.news.expired);
        }
        for Removed { database, key } in &self.news.expired[first..] {
            self.journal.note(*database, key);
        }
    }

    /// Whether a key of the held stripes has ties.
    #[must_use]
    pub fn has_ties(&self) -> bool {
        self.guards.all().any(Stripe::has_ties)
    }

    /// Has all that follows happen at another time, in milliseconds since 1970.
    pub fn begin_at(&mut self, now: u64) {
        (self.now, self.past) = (now, now);
    }

    /// Has all that follows happen at one time, in microseconds since 1970, also for commands that
    /// ask for the time.
    pub fn freeze(&mut self, microseconds: u64) {
        self.begin_at(microseconds / 1000);
        self.frozen = Some(microseconds);
    }

    /// Keeps keys whose time is past: for this hold they are there.
    pub fn keep_expired(&mut self) {
        self.past = 0;
    }

    /// Whether a key that expires at this time, in milliseconds since 1970, is not there.
    #[must_use]
    pub fn is_past(&self, at: u64) -> bool {
        at <= self.past
    }

    /// Takes large values that keys had. They take long to drop: the caller does so when it holds
    /// nothing any more, and where no clients wait.
    #[must_use]
    pub fn take_garbage(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.garbage)
    }

    /// Drops a part that was cut off from a value, or leaves it as garbage if it is large.
    pub fn discard<T: Kind>(&mut self, part: T) {
        let record = New::Entry(Entry::new(part.into_value())).record(&[]);
        self.garbage.extend(Some(record).filter(Record::is_large));
    }

    /// What the database has for a key.
    #[must_use]
    pub fn entry(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let Place { stripe: number, hash } = self.keyspace.place(key);
        let stripe = self.guards.stripe(number);
        self.seen.see(stripe.unsynced.of(hash, self.seen.safe));
        let database = &stripe.databases[self.database];
        let entry = database.get(hash, key).filter(|entry| !entry.is_expired(self.past))?;
        if database.is_cut(key, self.moment) {
            self.journal.note_hidden(self.database, key);
            return None;
        }
        Some(entry)
    }

    /// As [`Hold::entry`], for a client that asks for the key: counted as found or not.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let found = self.entry(key);
        let (hits, misses) = self.found.get();
        self.found.set(match found {
            Some(_) => (hits + 1, misses),
            None => (hits, misses + 1),
        });
        found
    }

    /// Whether there is a key.
    #[must_use]
    pub fn has(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// The value of a key, which is to be of a type. Notes that it is used.
    ///
    /// # Errors
    /// It is of another one.
    pub fn read<T: Kind>(&self, key: &[u8]) -> Result<Option<&T>, WrongType> {
        self.used(key).map(EntryRef::of).transpose()
    }

    /// The string of a key. Notes that it is used.
    ///
    /// # Errors
    /// Its value is of another type.
    pub fn read_string(&self, key: &[u8]) -> Result<Option<Text<'_>>, WrongType> {
        match self.used(key).map(EntryRef::value) {
            None => Ok(None),
            Some(ValueRef::String(text)) => Ok(Some(text)),
            Some(_) => Err(WrongType),
        }
    }

    /// What the database has for a key. Notes that it is used.
    fn used(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let entry = self.find(key)?;
        if !self.keeps_uses {
            self.note_use(entry);
        }
        Some(entry)
    }

    /// Notes that a key is used.
    pub fn note_use(&self, entry: EntryRef<'_>) {
        entry.note_use(self.now, self.uses);
    }

    /// Sets when a key was used last, in seconds since 1970, or its counter of uses; whichever is
    /// kept.
    pub fn set_use(&mut self, key: &[u8], at: Option<u64>, frequency: Option<u8>) {
        let now = self.now;
        let used = match self.uses {
            Uses::Times => at.map(Used::at),
            Uses::Frequencies { .. } => frequency.map(|count| Used::counted(now, count)),
        };
        let (database, hash) = self.fresh(key);
        if let (Some(used), Some(entry)) = (used, database.get(hash, key)) {
            entry.set_used(used);
        }
    }

    /// The value of a key, to change it. The caller says [`Hold::changed`] if it has done so, else
    /// a log gets nothing of it; and [`Hold::remove_if_empty`] after a removal.
    ///
    /// # Errors
    /// It is of another type.
    pub fn write<T: Kind>(&mut self, key: &[u8]) -> Result<Option<&mut T>, WrongType> {
        let (now, uses) = (self.now, self.uses);
        let (database, hash) = self.fresh(key);
        let Some((record, used)) = database.table.entry_mut(hash, key) else { return Ok(None) };
        used.set(used.get().again(now, uses));
        record.collection_mut().and_then(T::of_mut).ok_or(WrongType).map(Some)
    }

    /// As [`Hold::write`]; a key that is not there gets an empty value. The caller adds elements.
    ///
    /// # Errors
    /// It is of another type.
    pub fn make<T: Kind>(&mut self, key: &[u8]) -> Result<&mut T, WrongType> {
        let (database, hash) = self.fresh(key);
        if database.table.get(hash, key).is_none() {
            self.put(key, Entry::new(T::default().into_value()));
        }
        self.write(key)?.ok_or(WrongType)
    }

    /// Sets what the database has for a key. A new value has no ties.
    pub fn put(&mut self, key: &[u8], entry: Entry) {
        let is_waited_for =
            matches!(entry.value, Value::List(_) | Value::SortedSet(_) | Value::Stream(_));
        self.insert(key, New::Entry(entry));
        if is_waited_for {
            self.note_filled(key);
        }
    }

    /// Sets the string of a key, and when it expires. A new value has no ties.
    pub fn put_string(&mut self, key: &[u8], value: &[u8], expires_at: Option<u64>) {
        self.insert(key, New::String(value, expires_at));
    }

    fn insert(&mut self, key: &[u8], new: New) {
        self.touch(key);
        let (now, uses) = (self.now, self.uses);
        let (database, hash) = self.fresh(key);
        let (is_new, large) = database.insert(hash, key, new, |used| used.again(now, uses));
        self.garbage.extend(large);
        if is_new {
            self.news.new.note(|| Removed { database: self.database, key: key.into() });
        }
    }

    /// Changes the string of a key, which begins as empty; returns its length. Time and ties stay.
    ///
    /// # Errors
    /// Its value is of another type.
    pub fn change_string(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize, WrongType> {
        if self.entry(key).is_some() {
            let changed = self.change(key, |record| record.change_string(change));
            return changed.unwrap_or(Err(WrongType));
        }
        let mut value = Vec::new();
        change(&mut value);
        self.put_string(key, &value, None);
        Ok(value.len())
    }

    /// Sets the string of a key. Time and ties stay.
    ///
    /// # Errors
    /// Its value is of another type.
    pub fn replace_string(&mut self, key: &[u8], value: &[u8]) -> Result<(), WrongType> {
        let replaced = self.change(key, |record| record.replace_string(value));
        replaced.unwrap_or_else(|| {
            self.put_string(key, value, None);
            Ok(())
        })
    }

    /// Changes what a key has that is there, and notes its use.
    fn change<T>(&mut self, key: &[u8], change: impl FnOnce(&mut Record) -> T) -> Option<T> {
        let (now, uses) = (self.now, self.uses);
        self.touch_if_there(key);
        let (database, hash) = self.fresh(key);
        database.get(hash, key)?.note_use(now, uses);
        database.change(hash, key, change)
    }

    /// Notes that a key has a new list or sorted set, or a stream a new entry, for commands that
    /// wait for it.
    pub fn note_filled(&mut self, key: &[u8]) {
        self.news.filled.note(|| Removed { database: self.database, key: key.into() });
    }

    /// Removes a key, and gives what it had. The caller says [`Hold::changed`].
    pub fn take(&mut self, key: &[u8]) -> Option<Record> {
        let (database, hash) = self.fresh(key);
        let taken = database.remove(hash, key);
        if taken.is_some() {
            self.touch(key);
        }
        taken
    }

    /// Removes a key, if it is there. The caller says [`Hold::changed`].
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let taken = self.take(key);
        let was_there = taken.is_some();
        self.garbage.extend(taken.filter(Record::is_large));
        was_there
    }

    /// Removes a key whose collection has no elements any more; whether it was removed.
    pub fn remove_if_empty<T: Kind>(&mut self, key: &[u8]) -> bool {
        let is_empty =
            self.entry(key).is_some_and(|entry| entry.of::<T>().is_ok_and(Kind::has_no_elements));
        if is_empty {
            self.take(key);
        }
        is_empty
    }

    /// Sets when a key expires, `None` for never; whether there is one.
    pub fn expire_at(&mut self, key: &[u8], at: Option<u64>) -> bool {
        self.touch_if_there(key);
        let (database, hash) = self.fresh(key);
        database.expire_at(hash, key, at)
    }

    /// Ties a key that is there, in place of its other ties: it goes when one of them is cut. A new
    /// value has no ties.
    pub fn tie(&mut self, key: &[u8], ties: Vec<Tie>) {
        if !ties.is_empty() {
            self.touch(key);
            let Place { stripe, .. } = self.keyspace.place(key);
            self.guards.stripe_mut(stripe).databases[self.database].tie(key, ties);
        }
    }

    /// The ties of a key, for the same value under another name.
    #[must_use]
    pub fn ties(&self, key: &[u8]) -> Vec<Tie> {
        let Place { stripe, .. } = self.keyspace.place(key);
        self.guards.stripe(stripe).databases[self.database].ties(key).to_vec()
    }

    /// Notes a change of a key, for those that watch it.
    pub fn changed(&mut self, key: &[u8]) {
        self.news.altered.note(|| key.into());
        self.note_change(key, true);
    }

    /// Notes a change of what a key has beside its value: the groups of a stream. Clients that
    /// watch the key are not told.
    pub fn changed_beside(&mut self, key: &[u8]) {
        self.note_change(key, false);
    }

    /// Has those that watch a key, or have it in caches, learn of a change that left it as it was.
    pub fn rewritten(&mut self, key: &[u8]) {
        self.news.altered.note(|| key.into());
        let Place { stripe, .. } = self.keyspace.place(key);
        self.guards.stripe_mut(stripe).mark(self.database, key);
    }

    fn note_change(&mut self, key: &[u8], is_seen_by_watchers: bool) {
        self.changes += 1;
        self.touch(key);
        let Place { stripe: number, hash } = self.keyspace.place(key);
        let stripe = self.guards.stripe_mut(number);
        if is_seen_by_watchers {
            stripe.mark(self.database, key);
        }
        stripe.databases[self.database].measure(hash, key);
    }

    /// Removes a key if its time is past, or a tie of it was cut.
    pub fn remove_expired(&mut self, key: &[u8]) {
        self.fresh(key);
    }

    /// Removes the keys that were asked for and not seen, since a tie of theirs was cut. The log
    /// tells times, but not moments of cuts: what is logged after this does not see them either.
    pub fn remove_hidden(&mut self) {
        let selected = self.database;
        for Removed { database, key } in self.journal.take_hidden() {
            self.database = database;
            self.fresh(&key);
        }
        self.database = selected;
    }

    /// Whether ties were cut since the hold began: it sees their keys still.
    #[must_use]
    pub fn misses_cuts(&self) -> bool {
        self.keyspace.moments.last() != self.moment
    }

    /// Has a watcher learn of changes of a key.
    pub fn watch(&mut self, key: &[u8], watcher: &Watcher) {
        let Place { stripe, .. } = self.keyspace.place(key);
        // A key that has expired already is not there: its removal changes nothing.
        self.fresh(key);
        self.guards.stripe_mut(stripe).watch(self.database, key, watcher);
    }

    /// Ends watching a key.
    pub fn unwatch(&mut self, key: &[u8], watcher: &Watcher) {
        let Place { stripe, .. } = self.keyspace.place(key);
        self.guards.stripe_mut(stripe).unwatch(self.database, key, watcher);
    }

    /// Number of keys in the held stripes of the database, with expired ones that are not removed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.see_all();
        self.databases().map(|database| database.table.len()).sum()
    }

    /// Whether there is no key, as [`Hold::len`] counts them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the database has in the held stripes.
    pub fn iter(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.see_all();
        self.databases().flat_map(|database| {
            let entries = database.table.iter().map(EntryRef::new);
            entries.filter(|entry| !self.is_gone(database, *entry))
        })
    }

    /// The sums over a database, in the held stripes.
    #[must_use]
    pub fn totals(&self, database: usize) -> Totals {
        let mut totals = Totals::default();
        self.guards.all().for_each(|stripe| totals.add(&stripe.databases[database]));
        totals
    }

    /// A key by chance, if all stripes are held.
    #[must_use]
    pub fn random(&self) -> Option<&[u8]> {
        /// With more tries, keys that are not expired have become unlikely.
        const TRIES_MAX: usize = 100;
        for _ in 0..TRIES_MAX {
            let mut place = random_below(self.len());
            let database = self.databases().find(|database| {
                let is_here = place < database.table.len();
                place = place.saturating_sub(database.table.len());
                is_here
            })?;
            let entry = database.random(false)?;
            if !self.is_gone(database, entry) {
                return Some(entry.key());
            }
        }
        self.iter().next().map(EntryRef::key)
    }

    /// Visits at least `count` keys from a cursor on, if there are so many. Returns the cursor of
    /// those after them, 0 at the end. All stripes must be held.
    pub fn scan<'s>(
        &'s self,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(EntryRef<'s>),
    ) -> u64 {
        // The first bits of the position are the last of the cursor, so that cursors are short.
        self.see_all();
        let position = cursor.reverse_bits();
        let mut number = (position >> (64 - STRIPE_BITS)) as usize;
        let mut within = position << STRIPE_BITS;
        let mut visited = 0;
        while number < STRIPES {
            let database = &self.guards.stripe(number).databases[self.database];
            let next = database.table.scan(within, &mut |record, used| {
                visited += 1;
                let entry = EntryRef::new((record, used));
                if !self.is_gone(database, entry) {
                    visit(entry);
                }
            });
            (number, within) = match next {
                Some(next) => (number, next),
                None => (number + 1, 0),
            };
            if visited >= count {
                break;
            }
        }
        match number {
            STRIPES => 0,
            _ => ((number as u64) << (64 - STRIPE_BITS) | within >> STRIPE_BITS).reverse_bits(),
        }
    }

    /// Removes all keys of the database. All stripes must be held. What takes long to drop is
    /// returned: the caller does so when it holds nothing any more.
    #[must_use]
    pub fn flush(&mut self) -> Vec<impl Send + use<>> {
        /// Another thread is woken for more only.
        const DROPPED_BYTES_MAX: u64 = 64 << 10;
        let database = self.database;
        let length = self.len();
        self.changes += length as u64;
        // A compaction begins anew after it: tests flush empty databases all the time.
        if length > 0 {
            self.journal.touch_all();
        }
        self.news.note_all_altered();
        let stripes = self.guards.all_mut();
        let stripes = stripes.filter(|stripe| !stripe.databases[database].is_fresh());
        let flushed = stripes.map(|stripe| {
            let place = |key: &[u8]| self.keyspace.place(key).hash;
            let table = &stripe.databases[database].table;
            stripe.mark_where(|watched, key| {
                watched == database && table.get(place(key), key).is_some()
            });
            stripe.databases[database].empty()
        });
        let flushed: Vec<Database> = flushed.collect();
        match flushed.iter().map(Database::bytes).sum::<u64>() > DROPPED_BYTES_MAX {
            true => flushed,
            false => Vec::new(),
        }
    }

    /// Exchanges two databases. All stripes must be held.
    pub fn swap(&mut self, one: usize, other: usize) {
        self.changes += 1;
        self.journal.touch_all();
        self.news.note_all_altered();
        for stripe in self.guards.all_mut() {
            let is_there = |database: usize, key: &[u8]| {
                let table = &stripe.databases[database].table;
                table.get(self.keyspace.place(key).hash, key).is_some()
            };
            stripe.mark_where(|database, key| {
                (database == one || database == other)
                    && (is_there(one, key) || is_there(other, key))
            });
            stripe.databases.swap(one, other);
        }
    }

    /// Ends noting what was touched. `logged` is the position of these changes in a log, if readers
    /// are to know it while it is not safe. Must be called before the stripes are unlocked.
    pub fn end_touches(&mut self, logged: Option<u64>) {
        let (touched, is_whole) = self.journal.take_touched();
        if let Some(position) = logged {
            for Removed { key, .. } in &touched {
                let Place { stripe: number, hash } = self.keyspace.place(key);
                self.guards.stripe_mut(number).unsynced.note(hash, position, self.seen.safe);
            }
            if is_whole {
                self.guards.all_mut().for_each(|stripe| stripe.unsynced.note_all(position));
            }
        }
        if self.keyspace.changed.is_noted() {
            self.keyspace.changed.note(touched.into_iter(), is_whole);
        }
    }

    /// Notes that a key is changed.
    fn touch(&mut self, key: &[u8]) {
        self.journal.touch(self.database, key);
    }

    /// As [`Hold::touch`], for a key that is there.
    fn touch_if_there(&mut self, key: &[u8]) {
        if self.journal.is_kept {
            let (database, hash) = self.fresh(key);
            if database.table.get(hash, key).is_some() {
                self.touch(key);
            }
        }
    }

    fn see_all(&self) {
        self.guards.all().for_each(|stripe| self.seen.see(stripe.unsynced.of_any(self.seen.safe)));
    }

    /// The parts of the database in the held stripes.
    fn databases(&self) -> impl Iterator<Item = &Database> {
        self.guards.all().map(|stripe| &stripe.databases[self.database])
    }

    /// Whether a key of a part of a database is not there any more.
    fn is_gone(&self, database: &Database, entry: EntryRef<'_>) -> bool {
        database.is_gone(entry, self.past, self.moment)
    }

    /// The part of the database that has a key, without that key if its time is past.
    fn fresh(&mut self, key: &[u8]) -> (&mut Database, u64) {
        let Place { stripe: number, hash } = self.keyspace.place(key);
        self.seen.see(self.guards.stripe(number).unsynced.of(hash, self.seen.safe));
        let stripe = self.guards.stripe_mut(number);
        let database = &stripe.databases[self.database];
        let is_past = database.volatile > 0
            && database.get(hash, key).is_some_and(|entry| entry.is_expired(self.past));
        if is_past || database.is_cut(key, self.moment) {
            stripe.mark(self.database, key);
            let removed = stripe.databases[self.database].remove(hash, key);
            self.garbage.extend(removed.filter(Record::is_large));
            self.news.expired.push(Removed { database: self.database, key: key.into() });
            self.journal.note(self.database, key);
        }
        (&mut self.guards.stripe_mut(number).databases[self.database], hash)
    }
}
