//! Object locks, taken all at once, first come first served on every key.
//!
//! Key decision: a transaction asks once for all it needs and holds nothing while it waits, but
//! keeps its place in the queue of every key. It is granted when on each of them it is
//! compatible with all that came before it, holders and waiters alike.
//!
//! Why there is no deadlock: requests arrive one at a time and line up on all their keys in that
//! same step, so the queues of all keys agree about who came first, and a request is only ever
//! kept waiting by an earlier one. Waiting therefore cannot form a circle, and the earliest
//! request in the table never waits. Why no one starves: only the finitely many earlier ones are
//! before it, and no later one that conflicts with it can pass.
//!
//! Cost: a request counts the keys on which it is not yet eligible. Entering and leaving is one
//! step per own key (plus the logarithm of those that wait for that same key), and each key of a
//! waiter becomes eligible once; nothing ever walks over the open transactions.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use zodium_types::Oid;

use super::key_queue::{Blocked, KeyQueue, QueueView, Ticket};
use super::lock_set::{LockKey, LockMode, LockSet};
use super::number::TransactionNumber;

/// What a request for locks got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum LockAnswer {
    /// All keys are held from now on.
    Granted,
    /// None is held; a later release will name the owner among those it granted.
    Waiting,
}

/// One request that waits, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// Who waits.
    pub owner: TransactionNumber,
    /// The first key that it waits for.
    pub key: LockKey,
    /// Who is before it on that key, the earliest of them.
    pub behind: TransactionNumber,
}

/// All locks of one storage.
#[derive(Debug, Default)]
pub struct LockTable {
    /// Only objects that somebody holds or waits for.
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
    /// On how many keys something before it conflicts. Granted when it gets to 0.
    blocked_on: usize,
}

/// An empty object map gives back what it holds above this many entries: one transaction of
/// millions of objects must not cost its memory for ever.
const OBJECTS_KEPT_MAX: usize = 1 << 16;

impl LockTable {
    /// A table in which nothing is locked.
    pub fn new() -> LockTable {
        LockTable::default()
    }

    /// Asks for all `locks` at once.
    ///
    /// # Panics
    /// When `owner` already holds or waits: that would break the order of the queues.
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

    /// Whether `owner` asked for all of `locks` already.
    pub fn covers(&self, owner: TransactionNumber, locks: &LockSet) -> bool {
        self.requests.get(&owner).is_some_and(|request| request.locks.covers(locks))
    }

    /// Frees whatever `owner` holds or waits for, nothing if it is unknown. Returns the owners
    /// that are granted by it, in order of arrival.
    #[must_use = "those granted have to be told"]
    pub fn release(&mut self, owner: TransactionNumber) -> Vec<TransactionNumber> {
        self.release_all([owner])
    }

    /// [`release`](LockTable::release) for several owners as one step.
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
        // An owner granted by the first of `owners` may itself be one of the later ones.
        granted.retain(|(_, owner)| self.requests.contains_key(owner));
        granted.into_iter().map(|(_, owner)| owner).collect()
    }

    /// What `owner` got so far; `None` when it neither holds nor waits.
    pub fn answer(&self, owner: TransactionNumber) -> Option<LockAnswer> {
        self.requests.get(&owner).map(|request| match request.blocked_on {
            0 => LockAnswer::Granted,
            _ => LockAnswer::Waiting,
        })
    }

    /// How many owners wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// What the earliest `count_max` of those who wait are waiting for. For people: costs a walk
    /// over all requests.
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

    /// How many owners hold or wait.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether nobody holds or waits for anything, and no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.objects.is_empty() && self.clock.is_unused()
    }

    /// Works out anew, from the requests alone, who has to be eligible on which key, and
    /// compares. For tests: costs a sort of all requests.
    ///
    /// # Errors
    /// Says in words what does not fit.
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
            // Whoever stands in a queue has a request: both are entered and left in one step.
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

    /// The rule itself, applied to all requests in order of arrival: what each key's queue has
    /// to look like, and on how many keys each waiter is blocked.
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
    use super::*;
    use LockAnswer::{Granted, Waiting};
    use LockMode::{Exclusive, Shared};

    fn request(table: &mut LockTable, owner: u64, keys: &[(LockKey, LockMode)]) -> LockAnswer {
        let answer = table.request(TransactionNumber(owner), keys.iter().copied().collect());
        table.check_consistency().unwrap();
        answer
    }

    fn release(table: &mut LockTable, owner: u64) -> Vec<u64> {
        let granted = table.release(TransactionNumber(owner));
        table.check_consistency().unwrap();
        granted.into_iter().map(|owner| owner.0).collect()
    }

    fn write(oid: u64) -> (LockKey, LockMode) {
        (LockKey::Object(Oid(oid)), Exclusive)
    }

    fn read(oid: u64) -> (LockKey, LockMode) {
        (LockKey::Object(Oid(oid)), Shared)
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
        // Object 2 is free, but 2 came first.
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
        // 5 waits for 3: releasing both grants nobody that is left.
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
        assert_eq!(request(&mut table, 2, &[write(2), write(3)]), Waiting);
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
    fn a_huge_request_does_not_keep_its_memory() {
        let mut table = LockTable::new();
        let keys: Vec<_> = (0..300_000).map(write).collect();
        let answer = table.request(TransactionNumber(1), keys.iter().copied().collect());
        assert_eq!(answer, Granted);
        assert!(table.objects.capacity() >= 300_000);
        assert_eq!(table.release(TransactionNumber(1)), []);
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
