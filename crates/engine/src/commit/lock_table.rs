//! Object locks, all taken at once, first come first served on every key.
//!
//! Key decision: a transaction requests all its locks at once. It holds nothing while it waits, but
//! keeps its place in the queue of every key. It is granted when, on each key, it is compatible
//! with all earlier requests, holders and waiters alike.
//!
//! There is no deadlock: requests arrive one at a time, and enter the queues of all their keys in
//! one step. So all queues agree on the order of arrival, and a request only ever waits for an
//! earlier one. Waits cannot form a circle, and the earliest request never waits.
//!
//! There is no starvation: finitely many requests are earlier, and no later conflicting one passes.
//!
//! Cost: a request counts the keys on which it is not yet eligible. Entering and leaving takes one
//! step per key of the request, plus the logarithm of the number of waiters on that key. Each key
//! of a waiter becomes eligible once. No step walks over all open transactions.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use zodium_types::Oid;

use super::key_queue::{Blocked, KeyQueue, QueueView, Ticket};
use super::lock_set::{LockKey, LockMode, LockSet};
use super::number::TransactionNumber;

/// The result of a request for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum LockAnswer {
    /// All keys are held from now on.
    Granted,
    /// No key is held; a later release returns the owner among those that it granted.
    Waiting,
}

/// A waiting request, and what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// The transaction that waits.
    pub owner: TransactionNumber,
    /// The first key that it waits for.
    pub key: LockKey,
    /// The earliest transaction with a request on that key.
    pub behind: TransactionNumber,
}

/// All locks of one storage.
#[derive(Debug, Default)]
pub struct LockTable {
    /// Only objects that some transaction holds or waits for.
    objects: FxHashMap<Oid, KeyQueue>,
    clock: KeyQueue,
    requests: FxHashMap<TransactionNumber, Request>,
    last_ticket: Ticket,
    waiting: usize,
}

#[derive(Debug)]
struct Request {
    ticket: Ticket,
    locks: LockSet,
    /// Number of keys on which an earlier request conflicts. The request is granted at 0.
    blocked_on: usize,
}

/// An empty object map shrinks to this many entries: one transaction of millions of objects must
/// not cost its memory for ever.
const OBJECTS_KEPT_MAX: usize = 1 << 16;

impl LockTable {
    /// A table in which nothing is locked.
    pub fn new() -> LockTable {
        LockTable::default()
    }

    /// Requests all `locks` at once.
    ///
    /// # Panics
    /// When `owner` already holds locks or waits: that would break the order of the queues.
    pub fn request(&mut self, owner: TransactionNumber, locks: LockSet) -> LockAnswer {
        self.last_ticket.0 += 1;
        let ticket = self.last_ticket;
        let mut blocked_on = 0;
        for (key, mode) in locks.iter() {
            let queue = match key {
                LockKey::Object(oid) => self.objects.entry(oid).or_default(),
                LockKey::Clock => &mut self.clock,
            };
            blocked_on += usize::from(!queue.enter(ticket, owner, mode));
        }
        let previous = self.requests.insert(owner, Request { ticket, locks, blocked_on });
        assert!(previous.is_none(), "{owner:?} asked for locks twice");
        if blocked_on == 0 {
            return LockAnswer::Granted;
        }
        self.waiting += 1;
        LockAnswer::Waiting
    }

    /// Whether `owner` has already requested all of `locks`.
    pub fn covers(&self, owner: TransactionNumber, locks: &LockSet) -> bool {
        self.requests.get(&owner).is_some_and(|request| request.locks.covers(locks))
    }

    /// Frees all keys that `owners` hold or wait for, as one step; unknown ones do nothing. Returns
    /// the owners that this grants, in order of arrival.
    #[must_use = "those granted have to be told"]
    pub fn release_all(
        &mut self,
        owners: impl IntoIterator<Item = TransactionNumber>,
    ) -> Vec<TransactionNumber> {
        let mut granted = Vec::new();
        for owner in owners {
            self.remove(owner, &mut granted);
        }
        if self.objects.is_empty() && self.objects.capacity() > OBJECTS_KEPT_MAX {
            self.objects.shrink_to(OBJECTS_KEPT_MAX);
        }
        granted.sort_unstable_by_key(|&(ticket, _)| ticket);
        // An owner that the first release grants may itself be among the later `owners`.
        granted.retain(|(_, owner)| self.requests.contains_key(owner));
        granted.into_iter().map(|(_, owner)| owner).collect()
    }

    /// The state of the request of `owner`; `None` when it neither holds locks nor waits.
    pub fn answer(&self, owner: TransactionNumber) -> Option<LockAnswer> {
        self.requests.get(&owner).map(|request| match request.blocked_on {
            0 => LockAnswer::Granted,
            _ => LockAnswer::Waiting,
        })
    }

    /// Number of owners that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The lock waits of the earliest `count_max` waiters. For monitoring: walks over all requests.
    pub fn waits(&self, count_max: usize) -> Vec<LockWait> {
        let waits = |(owner, request): (&TransactionNumber, &Request)| {
            (request.blocked_on > 0).then_some((request.ticket, *owner))
        };
        let mut waiting: Vec<_> = self.requests.iter().filter_map(waits).collect();
        waiting.sort_unstable_by_key(|&(ticket, _)| ticket);
        waiting.truncate(count_max);
        let mut first_of = FxHashMap::<LockKey, (Ticket, TransactionNumber)>::default();
        let mut found = Vec::with_capacity(waiting.len());
        for (ticket, owner) in waiting {
            let Some(key) = self.blocked_key(owner, ticket) else { continue };
            let (_, behind) = *first_of.entry(key).or_insert_with(|| self.first_on(key));
            found.push(LockWait { owner, key, behind });
        }
        found
    }

    fn blocked_key(&self, owner: TransactionNumber, ticket: Ticket) -> Option<LockKey> {
        let keys = self.requests.get(&owner)?.locks.iter().map(|(key, _)| key);
        keys.into_iter().find(|key| self.queue(*key).is_some_and(|queue| queue.blocks(ticket)))
    }

    /// The earliest request that names a key.
    fn first_on(&self, key: LockKey) -> (Ticket, TransactionNumber) {
        let names = |(owner, request): (&TransactionNumber, &Request)| {
            request.locks.names(key).then_some((request.ticket, *owner))
        };
        let first = self.requests.iter().filter_map(names).min_by_key(|(ticket, _)| *ticket);
        first.unwrap_or((Ticket::default(), TransactionNumber(0)))
    }

    /// Number of owners that hold locks or wait.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no transaction holds locks or waits, and no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.objects.is_empty() && self.clock.is_unused()
    }

    /// Computes from the requests alone which request must be eligible on which key, and compares.
    /// For tests: sorts all requests.
    ///
    /// # Errors
    /// Describes the first inconsistency.
    pub fn check_consistency(&self) -> Result<(), String> {
        let (queues, blocked_on) = self.replay();
        let objects = queues.keys().filter(|key| matches!(key, LockKey::Object(_))).count();
        if objects != self.objects.len() {
            return Err(format!("{} objects kept, {objects} requested", self.objects.len()));
        }
        let unused = QueueView::default();
        for key in queues.keys().chain([&LockKey::Clock]) {
            let found = self.queue(*key).map(KeyQueue::view).unwrap_or_default();
            let wanted = queues.get(key).unwrap_or(&unused);
            if found != *wanted {
                return Err(format!("{key:?} is {found:?}, should be {wanted:?}"));
            }
        }
        for (owner, request) in &self.requests {
            let wanted = blocked_on.get(owner).copied().unwrap_or(0);
            if request.blocked_on != wanted {
                return Err(format!("{owner:?} counts {}, not {wanted}", request.blocked_on));
            }
        }
        if self.waiting != blocked_on.len() {
            return Err(format!("{} waiting counted, not {}", self.waiting, blocked_on.len()));
        }
        Ok(())
    }

    fn remove(&mut self, owner: TransactionNumber, granted: &mut Vec<(Ticket, TransactionNumber)>) {
        let Some(request) = self.requests.remove(&owner) else { return };
        if request.blocked_on > 0 {
            self.waiting -= 1;
        }
        let requests = &mut self.requests;
        let waiting = &mut self.waiting;
        let mut on_eligible = |entry: Blocked| {
            // Every owner in a queue has a request: both are added and removed in one step.
            let Some(request) = requests.get_mut(&entry.owner) else { return };
            request.blocked_on -= 1;
            if request.blocked_on == 0 {
                *waiting -= 1;
                granted.push((request.ticket, entry.owner));
            }
        };
        for (key, _) in request.locks.iter() {
            match key {
                LockKey::Clock => self.clock.leave(request.ticket, &mut on_eligible),
                LockKey::Object(oid) => {
                    let Entry::Occupied(mut entry) = self.objects.entry(oid) else { continue };
                    entry.get_mut().leave(request.ticket, &mut on_eligible);
                    if entry.get().is_unused() {
                        entry.remove();
                    }
                }
            }
        }
    }

    fn queue(&self, key: LockKey) -> Option<&KeyQueue> {
        match key {
            LockKey::Object(oid) => self.objects.get(&oid),
            LockKey::Clock => Some(&self.clock),
        }
    }

    /// Applies the rule to all requests in order of arrival. Returns what each key's queue must
    /// look like, and on how many keys each waiter is blocked.
    fn replay(&self) -> (FxHashMap<LockKey, QueueView>, FxHashMap<TransactionNumber, usize>) {
        let mut requests: Vec<_> = self.requests.iter().collect();
        requests.sort_unstable_by_key(|(_, request)| request.ticket);
        let mut modes_before = FxHashMap::<LockKey, Vec<LockMode>>::default();
        let mut queues = FxHashMap::<LockKey, QueueView>::default();
        let mut blocked_on = FxHashMap::default();
        for (&owner, request) in requests {
            for (key, mode) in request.locks.iter() {
                let queue = queues.entry(key).or_default();
                let before = modes_before.entry(key).or_default();
                if before.iter().all(|other| mode.is_compatible(*other)) {
                    queue.eligible += 1;
                    queue.mode = Some(mode);
                } else {
                    queue.blocked.push(Blocked { owner, mode });
                    *blocked_on.entry(owner).or_insert(0) += 1;
                }
                before.push(mode);
            }
        }
        (queues, blocked_on)
    }
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashSet;

    use super::*;
    use LockAnswer::{Granted, Waiting};
    use LockMode::{Exclusive, Shared};

    fn request(table: &mut LockTable, owner: u64, keys: &[(LockKey, LockMode)]) -> LockAnswer {
        let answer = table.request(TransactionNumber(owner), keys.iter().copied().collect());
        table.check_consistency().unwrap();
        answer
    }

    fn release(table: &mut LockTable, owner: u64) -> Vec<u64> {
        let granted = table.release_all([TransactionNumber(owner)]);
        table.check_consistency().unwrap();
        granted.into_iter().map(|owner| owner.0).collect()
    }

    fn write(oid: u64) -> (LockKey, LockMode) {
        (LockKey::Object(Oid(oid)), Exclusive)
    }

    fn read(oid: u64) -> (LockKey, LockMode) {
        (LockKey::Object(Oid(oid)), Shared)
    }

    /// The other tests rely on this.
    #[test]
    fn a_table_with_a_request_or_a_key_left_is_not_empty_and_a_key_alone_not_consistent() {
        for key in [write(1), (LockKey::Clock, Exclusive)] {
            let mut table = LockTable::new();
            assert!(table.is_empty());
            assert_eq!(request(&mut table, 1, &[key]), Granted);
            assert!(!table.is_empty());
            table.requests.clear();
            assert!(!table.is_empty() && table.check_consistency().is_err());
        }
    }

    #[test]
    fn crossing_requests_do_not_deadlock() {
        let mut table = LockTable::new();
        assert_eq!(request(&mut table, 1, &[write(1), write(2)]), Granted);
        assert_eq!(request(&mut table, 2, &[write(2), write(3)]), Waiting);
        assert_eq!(request(&mut table, 3, &[write(3), write(1)]), Waiting);
        assert_eq!(table.waiting(), 2);
        assert_eq!(release(&mut table, 1), [2]);
        assert_eq!(release(&mut table, 2), [3]);
        assert_eq!(release(&mut table, 3), []);
        assert!(table.is_empty());
    }

    #[test]
    fn a_waiter_holds_nothing_but_keeps_its_place() {
        let mut table = LockTable::new();
        assert_eq!(request(&mut table, 1, &[write(1)]), Granted);
        assert_eq!(request(&mut table, 2, &[write(1), write(2)]), Waiting);
        // Object 2 is free, but transaction 2 came first.
        assert_eq!(request(&mut table, 3, &[write(2)]), Waiting);
        assert_eq!(request(&mut table, 4, &[write(3)]), Granted);
        assert_eq!(release(&mut table, 2), [3]);
        assert_eq!(release(&mut table, 1), []);
    }

    #[test]
    fn readers_share_and_a_writer_between_them_is_not_passed() {
        let mut table = LockTable::new();
        assert_eq!(request(&mut table, 1, &[read(1)]), Granted);
        assert_eq!(request(&mut table, 2, &[read(1)]), Granted);
        assert_eq!(request(&mut table, 3, &[write(1)]), Waiting);
        assert_eq!(request(&mut table, 4, &[read(1)]), Waiting);
        assert_eq!(release(&mut table, 2), []);
        assert_eq!(release(&mut table, 1), [3]);
        assert_eq!(release(&mut table, 3), [4]);
    }

    #[test]
    fn several_released_at_once_grant_in_order_of_arrival() {
        let mut table = LockTable::new();
        assert_eq!(request(&mut table, 1, &[write(1)]), Granted);
        assert_eq!(request(&mut table, 2, &[write(2)]), Granted);
        assert_eq!(request(&mut table, 3, &[write(2)]), Waiting);
        assert_eq!(request(&mut table, 4, &[write(1)]), Waiting);
        let granted = table.release_all([1, 2].map(TransactionNumber));
        assert_eq!(granted, [3, 4].map(TransactionNumber));
        // 5 waits for 3: releasing both grants no remaining transaction.
        assert_eq!(request(&mut table, 5, &[write(2)]), Waiting);
        assert_eq!(table.release_all([3, 5].map(TransactionNumber)), []);
        assert_eq!(table.len(), 1);
        assert_eq!(table.answer(TransactionNumber(4)), Some(Granted));
    }

    #[test]
    fn the_clock_taken_alone_excludes_ordinary_transactions() {
        let mut table = LockTable::new();
        let (ordinary, own_tid) = ((LockKey::Clock, Shared), (LockKey::Clock, Exclusive));
        assert_eq!(request(&mut table, 1, &[write(1), ordinary]), Granted);
        assert_eq!(request(&mut table, 2, &[write(2), ordinary]), Granted);
        assert_eq!(request(&mut table, 3, &[write(3), own_tid]), Waiting);
        assert_eq!(request(&mut table, 4, &[write(4), ordinary]), Waiting);
        assert_eq!(release(&mut table, 1), []);
        assert_eq!(release(&mut table, 2), [3]);
        assert_eq!(release(&mut table, 3), [4]);
    }

    #[test]
    fn who_waits_is_told_for_what_and_behind_whom() {
        let mut table = LockTable::new();
        assert_eq!(request(&mut table, 1, &[write(1), write(2)]), Granted);
        assert_eq!(request(&mut table, 2, &[write(0), write(2), write(3)]), Waiting);
        assert_eq!(request(&mut table, 3, &[write(3)]), Waiting);
        let wait = |owner, oid, behind| LockWait {
            owner: TransactionNumber(owner),
            key: LockKey::Object(Oid(oid)),
            behind: TransactionNumber(behind),
        };
        assert_eq!(table.waits(10), [wait(2, 2, 1), wait(3, 3, 2)]);
        assert_eq!(table.waits(1), [wait(2, 2, 1)]);
        assert_eq!(release(&mut table, 1), [2]);
        assert_eq!(table.waits(10), [wait(3, 3, 2)]);
        assert_eq!(release(&mut table, 2), [3]);
        assert_eq!(table.waits(10), []);
    }

    #[test]
    fn unknown_owners_and_empty_requests_are_harmless() {
        let mut table = LockTable::new();
        assert_eq!(release(&mut table, 9), []);
        assert_eq!(request(&mut table, 1, &[]), Granted);
        assert_eq!(table.answer(TransactionNumber(1)), Some(Granted));
        assert_eq!(release(&mut table, 1), []);
        assert!(table.is_empty());
    }

    #[test]
    fn chosen_oids_do_not_share_one_place_of_a_map() {
        use std::hash::BuildHasher;
        const FACTOR: u64 = 0xf135_7aea_2e62_a9c5;
        // Oids for which the hasher alone has all low bits zero: it multiplies, then rotates.
        let inverse =
            (0..6).fold(FACTOR, |x, _| x.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(x))));
        let oids = (1..1000_u64).map(|n| (n << 22).rotate_right(26).wrapping_mul(inverse));
        let place = |hash: u64| hash & ((1 << 22) - 1);
        let hasher = rustc_hash::FxBuildHasher;
        let plain: FxHashSet<u64> = oids.clone().map(|oid| place(hasher.hash_one(oid))).collect();
        assert_eq!(plain.len(), 1, "else the oids are not chosen well");
        let places: FxHashSet<u64> = oids.map(|oid| place(hasher.hash_one(Oid(oid)))).collect();
        assert!(places.len() > 900, "{}", places.len());
    }

    #[test]
    fn a_huge_request_does_not_keep_its_memory() {
        let mut table = LockTable::new();
        let keys: Vec<_> = (0..300_000).map(write).collect();
        let answer = table.request(TransactionNumber(1), keys.iter().copied().collect());
        assert_eq!(answer, Granted);
        assert!(table.objects.capacity() >= 300_000);
        assert_eq!(table.release_all([TransactionNumber(1)]), []);
        assert!(table.objects.capacity() <= 4 * OBJECTS_KEPT_MAX);
    }

    #[test]
    #[should_panic(expected = "asked for locks twice")]
    fn a_second_request_of_one_owner_is_our_own_mistake() {
        let mut table = LockTable::new();
        let _ = request(&mut table, 1, &[write(1)]);
        let _ = request(&mut table, 1, &[write(2)]);
    }
}
