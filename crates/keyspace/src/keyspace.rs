//! The keyspace: all stripes, and locking them.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use zodium_readlocks::{ReadLocks, Reader};

use crate::changed_keys::ChangedKeys;
use crate::eviction::{Candidate, Pool};
use crate::gate::{Gate, Passage};
use crate::guards::Guards;
use crate::hold::Hold;
use crate::stripe::{Database, Stripe, Tally};
use crate::stripes::{STRIPE_BITS, STRIPES};
use crate::tie::Moments;
use crate::uses::SharedUses;
use crate::word_hasher::WordHasher;
use crate::{
    EntryRef, Eviction, First, KeyChanges, NotEvicted, Place, Record, Removed, Stripes, Tie, Uses,
    Word, random_below,
};

/// Number of databases.
pub const DATABASES: usize = 16;

/// Gets what a database has for a key, and the objects that it is tied to.
pub type Visit<'a> = dyn FnMut(EntryRef<'_>, &[Tie]) + 'a;

/// The data of a server.
pub struct Keyspace {
    pub(crate) stripes: ReadLocks<Stripe>,
    gate: Gate,
    /// Sums of each stripe, to be read without its lock.
    tallies: Vec<Arc<Tally>>,
    /// Keys that may go when memory is full. Stripes are only tried while it is locked.
    pool: Mutex<Pool>,
    uses: SharedUses,
    hasher: WordHasher,
    pub(crate) moments: Moments,
    pub(crate) changed: ChangedKeys,
}

/// Appends removed keys to a log, and tells where; `None` if readers need not know that.
pub type Logging<'a> = &'a dyn Fn(&[Removed]) -> Option<Logged>;

/// Where a change is in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Its position.
    pub position: u64,
    /// Changes up to this position are safe.
    pub safe: u64,
}

/// Sums over a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of keys, with those whose time is past and that are not removed yet.
    pub keys: usize,
    /// Number of keys that expire.
    pub volatile: usize,
}

impl Totals {
    pub(crate) fn add(&mut self, database: &Database) {
        self.keys += database.table.len();
        self.volatile += database.volatile;
    }
}

impl Default for Keyspace {
    fn default() -> Keyspace {
        let stripes: Vec<Stripe> = (0..STRIPES).map(|_| Stripe::default()).collect();
        let tallies = stripes.iter().map(|stripe| Arc::clone(&stripe.tally)).collect();
        Keyspace {
            stripes: ReadLocks::new(stripes),
            gate: Gate::default(),
            tallies,
            pool: Mutex::default(),
            uses: SharedUses::default(),
            hasher: WordHasher::new(),
            moments: Moments::default(),
            changed: ChangedKeys::default(),
        }
    }
}

impl Keyspace {
    /// The stripe of a key, in all databases.
    #[must_use]
    pub fn stripe(&self, key: &[u8]) -> Stripes {
        self.place(key).stripes()
    }

    /// The stripes of several keys.
    pub fn stripes<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> Stripes {
        keys.into_iter().fold(Stripes::NONE, |stripes, key| stripes | self.stripe(key))
    }

    /// Locks stripes, and waits for those that others hold. The calling thread must hold none.
    ///
    /// What the hold does happens at `now`, in milliseconds since 1970.
    #[must_use]
    pub fn lock(&self, stripes: Stripes, now: u64) -> Hold<'_> {
        let lock = |number: usize| self.stripes.lock(number);
        let passage = match stripes.are_several() {
            true => self.gate.share(),
            false => Passage::Unneeded,
        };
        let guards = match stripes.only() {
            Some(number) => Guards::One(number, lock(number)),
            None => {
                let mut guards = Vec::with_capacity(stripes.count());
                guards.extend(stripes.numbers().map(|number| (number, lock(number))));
                Guards::Many(stripes, guards)
            }
        };
        Hold::new(self, guards, passage, now)
    }

    /// As [`Keyspace::lock`], but waits until a time at most, or not at all.
    #[must_use]
    pub fn try_lock(&self, stripes: Stripes, now: u64, until: Option<Instant>) -> Option<Hold<'_>> {
        let passage = match stripes.are_several() {
            true => self.gate.try_share(until)?,
            false => Passage::Unneeded,
        };
        Some(Hold::new(self, self.try_guards(stripes, until)?, passage, now))
    }

    /// As [`Keyspace::try_lock`], for a hold that may lock further stripes as it goes
    /// ([`Hold::widen`]). There is one of its kind at a time, and no other hold of several stripes
    /// beside it, but for those of readers.
    #[must_use]
    pub fn try_lock_first(
        &self,
        stripes: Stripes,
        now: u64,
        until: Option<Instant>,
    ) -> Option<Hold<'_>> {
        let passage = self.gate.try_alone(until)?;
        Some(Hold::new(self, self.try_guards(stripes, until)?, passage, now))
    }

    fn try_guards(&self, stripes: Stripes, until: Option<Instant>) -> Option<Guards<'_>> {
        let lock = |number: usize| match until {
            Some(until) => self.stripes.try_lock_until(number, until),
            None => self.stripes.try_lock(number),
        };
        if let Some(number) = stripes.only() {
            return Some(Guards::One(number, lock(number)?));
        }
        let mut guards = Vec::with_capacity(stripes.count());
        for number in stripes.numbers() {
            guards.push((number, lock(number)?));
        }
        Some(Guards::Many(stripes, guards))
    }

    /// Locks stripes to read them beside other readers; `None` if another thread has locked one of
    /// them. All are read as they are at one moment. Nothing that may change a key may be called.
    #[must_use]
    pub fn try_read<'a>(
        &'a self,
        reader: &'a Reader,
        stripes: Stripes,
        now: u64,
    ) -> Option<Hold<'a>> {
        let guards = match stripes.only() {
            Some(number) => Guards::OneRead(number, self.stripes.try_read(reader, number)?),
            None => Guards::ManyRead(stripes, self.stripes.read_all(reader, stripes.bits())?),
        };
        Some(Hold::new(self, guards, Passage::Unneeded, now))
    }

    /// Permission of a thread to read beside others.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.stripes.reader()
    }

    /// Whether a stripe has so many keys, in all databases.
    pub(crate) fn has_keys(&self, stripe: usize, count: usize) -> bool {
        self.tallies[stripe].keys(false) >= count
    }

    /// Removes the keys of ties, all at one moment: holds that begin later do not see them. Locks
    /// no stripe. Their memory is freed by the next write to each, or by [`Hold::remove_expired`].
    pub fn cut(&self, ties: &[Tie]) {
        self.moments.cut(ties);
    }

    /// The sums over a database. Stripes are locked one after the other.
    #[must_use]
    pub fn totals(&self, database: usize) -> Totals {
        let mut totals = Totals::default();
        for number in 0..STRIPES {
            totals.add(&self.stripes.lock(number).databases[database]);
        }
        totals
    }

    /// Bytes of all keys and values, by estimate.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.bytes()).sum()
    }

    /// What entries keep of their uses.
    #[must_use]
    pub fn uses(&self) -> Uses {
        self.uses.now()
    }

    /// Sets what entries keep of their uses, from now on.
    pub fn set_uses(&self, uses: Uses) {
        self.uses.set(uses);
    }

    /// Removes a key: the first of `samples` that are chosen by chance and of those that were
    /// kept of earlier samples. Keys of locked stripes stay.
    ///
    /// # Errors
    /// There is no other key that may go.
    pub fn evict(
        &self,
        eviction: Eviction,
        samples: usize,
        now: u64,
        log: Logging,
    ) -> Result<(Removed, Record), NotEvicted> {
        let keys = self.tallies.iter().map(|tally| tally.keys(eviction.only_volatile)).sum();
        if keys == 0 {
            return Err(NotEvicted::Nothing);
        }
        let samples = if eviction.first == First::Random { 1 } else { samples };
        {
            let mut pool = self.pool.lock();
            pool.begin(eviction);
            for _ in 0..samples {
                if let Some(candidate) = self.sample(keys, eviction, now, |rank| pool.wants(rank)) {
                    pool.offer(candidate);
                }
            }
        }
        loop {
            let candidate = self.pool.lock().take();
            let Some(candidate) = candidate else { break };
            if let Some(evicted) = self.evict_candidate(&candidate, eviction, now, log) {
                return Ok(evicted);
            }
        }
        // All samples were of locked stripes.
        let first = random_below(STRIPES);
        let mut why = NotEvicted::Nothing;
        for number in (first..STRIPES).chain(0..first) {
            let Some(locked) = self.stripes.try_lock(number) else {
                why = NotEvicted::Locked;
                continue;
            };
            let candidate = self.candidate((number, &locked), eviction, now, |_| true);
            drop(locked);
            let evict = |one| self.evict_candidate(&one, eviction, now, log);
            if let Some(evicted) = candidate.and_then(evict) {
                return Ok(evicted);
            }
        }
        Err(why)
    }

    /// A key by chance that may go and whose rank is wanted, of all `keys`; `None` also if its
    /// stripe is locked.
    fn sample(
        &self,
        keys: usize,
        eviction: Eviction,
        now: u64,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Option<Candidate> {
        let mut place = random_below(keys);
        let number = self.tallies.iter().position(|tally| {
            // It may change meanwhile.
            let count = tally.keys(eviction.only_volatile);
            let is_here = place < count;
            place = place.saturating_sub(count);
            is_here
        })?;
        let locked = self.stripes.try_lock(number)?;
        self.candidate((number, &locked), eviction, now, is_wanted)
    }

    /// A key of a stripe by chance that may go and whose rank is wanted.
    fn candidate(
        &self,
        (number, stripe): (usize, &Stripe),
        eviction: Eviction,
        now: u64,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Option<Candidate> {
        let (database, entry) = stripe.random(eviction.only_volatile)?;
        let rank = entry.rank(eviction, now, self.uses()).filter(|rank| is_wanted(*rank))?;
        let Place { hash, .. } = self.place(entry.key());
        Some(Candidate { rank, stripe: number, database, hash })
    }

    /// Removes a candidate, unless its stripe is locked, or it is not as eligible any more.
    fn evict_candidate(
        &self,
        candidate: &Candidate,
        eviction: Eviction,
        now: u64,
        log: Logging,
    ) -> Option<(Removed, Record)> {
        let Candidate { rank, stripe, database, hash } = *candidate;
        let mut stripe = self.stripes.try_lock(stripe)?;
        let keys = stripe.databases.get_mut(database)?;
        let entry = keys.with_hash(hash)?;
        if entry.rank(eviction, now, self.uses())? > rank {
            return None;
        }
        let key: Word = entry.key().into();
        let record = keys.remove(hash, &key)?;
        stripe.mark(database, &key);
        let removed = Removed { database, key };
        self.note_removed(&mut stripe, std::slice::from_ref(&removed), log);
        Some((removed, record))
    }

    /// Removes keys whose time is past, up to `keys_max` of each database and stripe; whether there
    /// may be more. Stripes are locked one after the other. Those that others hold are left out: a
    /// script may hold them for long.
    pub fn expire(
        &self,
        now: u64,
        keys_max: usize,
        removed: &mut Vec<Removed>,
        log: Logging,
    ) -> bool {
        let mut is_more = false;
        for number in 0..STRIPES {
            let Some(mut stripe) = self.stripes.try_lock(number) else { continue };
            let first = removed.len();
            is_more |= stripe.expire(now, keys_max, removed);
            self.note_removed(&mut stripe, &removed[first..], log);
        }
        is_more
    }

    /// Notes keys that were removed from a stripe without a hold.
    fn note_removed(&self, stripe: &mut Stripe, removed: &[Removed], log: Logging) {
        if removed.is_empty() {
            return;
        }
        if let Some(Logged { position, safe }) = log(removed) {
            for Removed { key, .. } in removed {
                stripe.unsynced.note(self.place(key).hash, position, safe);
            }
        }
        if self.changed.is_noted() {
            self.changed.note(removed.iter().cloned(), false);
        }
    }

    /// Begins to note the keys that change.
    pub fn begin_changes(&self) {
        self.changed.begin();
    }

    /// What has changed since it was asked last.
    pub fn take_changes(&self) -> KeyChanges {
        self.changed.take()
    }

    /// Ends noting the keys that change.
    pub fn end_changes(&self) {
        self.changed.end();
    }

    /// Visits keys of a part of a database from a position on, at least `count` if there are so
    /// many. Returns the next position; `None` at the end. Only that part is locked.
    ///
    /// There are [`Keyspace::PARTS`] parts. Keys whose time is past are visited too.
    pub fn visit_part(
        &self,
        part: usize,
        database: usize,
        position: u64,
        count: usize,
        visit: &mut Visit<'_>,
    ) -> Option<u64> {
        let stripe = self.stripes.lock(part);
        let database = &stripe.databases[database];
        let (mut next, mut visited) = (Some(position), 0);
        while let Some(position) = next.filter(|_| visited < count) {
            next = database.table.scan(position, &mut |record, used| {
                visited += 1;
                visit(EntryRef::new((record, used)), database.ties(record.as_ref()));
            });
        }
        next
    }

    /// Visits a key that has not changed since changes were taken last; false if it has. Only its
    /// part is locked. A key whose time is past is visited too.
    pub fn visit_unchanged(&self, database: usize, key: &[u8], visit: &mut Visit<'_>) -> bool {
        let Place { stripe, hash } = self.place(key);
        let stripe = self.stripes.lock(stripe);
        let keys = &stripe.databases[database];
        let entry = keys.get(hash, key).filter(|_| !self.changed.has(database, key));
        entry.map(|entry| visit(entry, keys.ties(key))).is_some()
    }

    /// The number of parts.
    pub const PARTS: usize = STRIPES;

    /// The place of a key.
    #[must_use]
    pub fn place(&self, key: &[u8]) -> Place {
        // Without the length, which `hash_one` adds: there is nothing but the key.
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        let hash = hasher.finish();
        let stripe = (hash >> (64 - STRIPE_BITS)) as usize;
        Place { stripe, hash: hash.rotate_left(STRIPE_BITS) }
    }
}
