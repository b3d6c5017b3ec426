//! Transactions in progress, and the locks of their objects. No messages: see `client`.

mod ended;
mod locking;
mod rows;
mod serials;
mod transaction;
mod unvoted;

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use zodium_neo::{NodeId, Partition};
use zodium_types::{Oid, Tid};

use self::ended::Ended;
pub(crate) use self::locking::{Attempt, LockRequest, LockWish};
pub(crate) use self::rows::{Held, Rows};
use self::serials::Serials;
pub(crate) use self::transaction::{Object, Stored, Transaction, Vote};
pub(crate) use self::unvoted::{Kept, Moved};
use crate::ConnectionId;

/// Transactions in progress, by ttid, with their locks.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    pub(crate) all: BTreeMap<Tid, Transaction>,
    /// Write locks: the transaction that has each object.
    pub(crate) locks: FxHashMap<Oid, Tid>,
    /// Read locks: objects of transactions between lock and unlock.
    pub(crate) read_locks: FxHashMap<Oid, Tid>,
    /// Requests that wait for a lock, oldest transaction first.
    waiting: FxHashMap<Oid, BTreeMap<(Tid, u64), LockRequest>>,
    /// Partitions that lack data: stores are accepted without a lock.
    pub(crate) replicating: FxHashSet<Partition>,
    /// Partitions that have all data, and are not readable for the master yet. Until they are
    /// announced: up to which transaction.
    pub(crate) replicated: BTreeMap<Partition, Option<Tid>>,
    /// Transactions that the master has ended.
    ended: Ended,
    serials: Serials,
    /// Numbers requests and checks.
    last: u64,
}

impl Transactions {
    /// Whether nothing is locked, and no request waits.
    pub(crate) fn is_unlocked(&self) -> bool {
        self.locks.is_empty() && self.read_locks.is_empty() && self.waiting.is_empty()
    }

    /// A number that was not taken before.
    pub(crate) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Notes a transaction of a client, which may be known already.
    pub(crate) fn register(
        &mut self,
        ttid: Tid,
        client: NodeId,
        connection: ConnectionId,
    ) -> &mut Transaction {
        self.all.entry(ttid).or_insert_with(|| Transaction::new(client, connection))
    }

    /// Has a request wait for the lock of its object.
    pub(crate) fn wait(&mut self, request: LockRequest) {
        let key = (request.ttid, self.number());
        self.waiting.entry(request.oid).or_default().insert(key, request);
    }

    /// Takes the requests that wait for an object, oldest transaction first.
    pub(crate) fn take_waiting(&mut self, oid: Oid) -> Vec<LockRequest> {
        self.waiting.remove(&oid).map(|map| map.into_values().collect()).unwrap_or_default()
    }

    /// Releases a lock, if the transaction has it.
    pub(crate) fn release(&mut self, oid: Oid, ttid: Tid) {
        if self.locks.get(&oid) == Some(&ttid) {
            self.locks.remove(&oid);
        }
    }

    /// Removes a transaction with its locks; the objects that it had.
    pub(crate) fn remove(&mut self, ttid: Tid) -> Option<(Transaction, Vec<Oid>)> {
        let transaction = self.all.remove(&ttid)?;
        let oids: FxHashSet<Oid> =
            transaction.objects.keys().chain(transaction.checking.keys()).copied().collect();
        let mut oids: Vec<_> = oids.into_iter().collect();
        oids.sort_unstable();
        for oid in &oids {
            self.release(*oid, ttid);
            if self.read_locks.get(oid) == Some(&ttid) {
                self.read_locks.remove(oid);
            }
        }
        Some((transaction, oids))
    }

    /// Forgets the objects of partitions; those that were locked.
    pub(crate) fn discard(
        &mut self,
        partitions: &[Partition],
        is_in: impl Fn(Oid) -> bool,
    ) -> Vec<Oid> {
        self.replicating.retain(|partition| !partitions.contains(partition));
        self.replicated.retain(|partition, _| !partitions.contains(partition));
        self.serials.clear();
        let mut oids: Vec<_> = self.locks.keys().copied().filter(|oid| is_in(*oid)).collect();
        oids.sort_unstable();
        self.locks.retain(|oid, _| !is_in(*oid));
        self.read_locks.retain(|oid, _| !is_in(*oid));
        for transaction in self.all.values_mut() {
            transaction.objects.retain(|oid, _| !is_in(*oid));
            transaction.checking.retain(|oid, _| !is_in(*oid));
            transaction.lockless.retain(|oid| !is_in(*oid));
            transaction.unchecked.retain(|oid| !is_in(*oid));
            transaction.rows.discard(partitions, &is_in);
        }
        oids
    }

    /// Whether a transaction up to this one is between lock and unlock.
    pub(crate) fn is_locked_until(&self, tid: Tid) -> bool {
        self.all.values().any(|transaction| transaction.tid.is_some_and(|own| own <= tid))
    }

    /// The bytes of data in memory that are not written.
    pub(crate) fn unvoted_bytes(&self) -> u64 {
        let bytes = |transaction: &Transaction| transaction.unvoted.memory_bytes() as u64;
        self.all.values().map(bytes).sum()
    }

    /// The transactions of a client that are not locked.
    pub(crate) fn of_client(&self, client: NodeId) -> Vec<Tid> {
        self.such(|transaction| transaction.client == client && transaction.tid.is_none())
    }

    /// Notes the serials of a transaction that is committed.
    pub(crate) fn note_serials(&mut self, ttid: Tid) {
        let Some((tid, transaction)) =
            self.all.get(&ttid).and_then(|transaction| Some((transaction.tid?, transaction)))
        else {
            return;
        };
        for (oid, object) in &transaction.objects {
            if let Some(stored) = &object.stored {
                self.serials.note(*oid, tid, stored.is_deletion);
            }
        }
    }

    /// The objects that a transaction has stored.
    pub(crate) fn stored(&self, ttid: Tid) -> impl Iterator<Item = Oid> {
        let objects = self.all.get(&ttid).map(|transaction| &transaction.objects);
        let stored = objects.into_iter().flatten().filter(|(_, object)| object.stored.is_some());
        stored.map(|(oid, _)| *oid)
    }

    /// The last serial of an object, if it was committed here lately.
    pub(crate) fn last_serial(&self, oid: Oid) -> Option<Tid> {
        self.serials.get(oid)
    }

    /// A cell has data that no commit of this node has brought.
    pub(crate) fn forget_serials(&mut self) {
        self.serials.clear();
    }

    /// Notes that the master has ended a transaction.
    pub(crate) fn note_end(&mut self, ttid: Tid) {
        self.ended.note(ttid);
    }

    /// The transactions that began on a connection and are over with it: those that are not voted,
    /// and those that were voted after their end.
    pub(crate) fn lost_with(&self, connection: ConnectionId) -> Vec<Tid> {
        let own = self.all.iter().filter(|(_, transaction)| transaction.connection == connection);
        let is_over = |ttid: &Tid, vote: Vote| vote == Vote::No || self.ended.contains(*ttid);
        let lost = own.filter(|(ttid, transaction)| is_over(ttid, transaction.vote));
        lost.map(|(ttid, _)| *ttid).collect()
    }

    /// Notes what the master tells of transactions in progress; those here that are over.
    pub(crate) fn note_in_progress(&mut self, committed: Tid, ttids: &[Tid]) -> Vec<Tid> {
        self.ended.note_in_progress(committed, ttids);
        let mut over = self.unlocked();
        over.retain(|ttid| self.ended.contains(*ttid));
        over
    }

    /// The transactions that are not locked.
    pub(crate) fn unlocked(&self) -> Vec<Tid> {
        self.such(|transaction| transaction.tid.is_none())
    }

    fn such(&self, is_such: impl Fn(&Transaction) -> bool) -> Vec<Tid> {
        let found = self.all.iter().filter(|(_, transaction)| is_such(transaction));
        found.map(|(ttid, _)| *ttid).collect()
    }
}
