//! Decides which transaction has the lock of an object.
//!
//! Transactions wait for older ones. An older one does not wait for a younger one: the client of
//! the younger one is asked to give the lock back and to ask for it again. So no two transactions
//! wait for each other. A transaction that is voted keeps its locks: it does not wait any more.

use zodium_types::{Oid, Tid};

use super::{Kept, Transactions, Vote};
use crate::ConnectionId;

/// A request that needs the lock of an object.
#[derive(Debug)]
pub(crate) struct LockRequest {
    /// Connection and id of the message.
    pub(crate) from: (ConnectionId, u32),
    pub(crate) ttid: Tid,
    pub(crate) oid: Oid,
    /// The serial that the client read.
    pub(crate) serial: Tid,
    pub(crate) wish: LockWish,
}

/// What the lock is for.
#[derive(Debug)]
pub(crate) enum LockWish {
    /// Storing data, or a deletion.
    Store { data: Option<Kept>, data_serial: Option<Tid> },
    /// No other transaction may change the object.
    Check,
    /// The lock was given back for an older transaction.
    Relock,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The transaction is gone.
    Forgotten,
    /// The cell lacks data: another cell has the lock and checks for conflicts.
    Lockless,
    /// The transaction has the lock already.
    Again,
    /// The transaction has the lock already, from before its serial could be compared.
    Unchecked,
    /// The object was changed.
    Conflict(Tid),
    /// The request waits.
    Wait,
    /// The request waits, and the client of that transaction is asked to give the lock back.
    Deadlock(Tid),
    /// The transaction has the lock if the database has the same serial.
    Free,
}

impl LockRequest {
    /// The record that the store refers to.
    pub(crate) fn data_serial(&self) -> Option<Tid> {
        match self.wish {
            LockWish::Store { data_serial, .. } => data_serial,
            LockWish::Check | LockWish::Relock => None,
        }
    }
}

impl Transactions {
    /// Decides. `lacks_data` is whether the cell of the object is replicating.
    pub(crate) fn attempt(&mut self, request: &LockRequest, lacks_data: bool) -> Attempt {
        let LockRequest { ttid, oid, serial, .. } = request;
        let Some(transaction) = self.all.get_mut(ttid) else { return Attempt::Forgotten };
        if lacks_data {
            transaction.lockless.insert(*oid);
            return Attempt::Lockless;
        }
        let Some(holder) = self.locks.get(oid).copied() else { return Attempt::Free };
        if holder == *ttid {
            if transaction.lockless.contains(oid) {
                // Others may have stored it without a lock, too, and come first elsewhere.
                return Attempt::Lockless;
            }
            if transaction.checking.contains_key(oid) {
                return Attempt::Wait;
            }
            if transaction.unchecked.contains(oid) {
                return Attempt::Unchecked;
            }
            let stored = transaction.objects.get(oid).and_then(|object| object.stored.as_ref());
            // The next store after an undo must be based on what the undo restored.
            return match stored.and_then(|stored| stored.data_serial) {
                Some(previous) if previous != *serial => Attempt::Conflict(previous),
                _ => Attempt::Again,
            };
        }
        let is_lockless = transaction.lockless.contains(oid);
        let Some(other) = self.all.get_mut(&holder) else { return Attempt::Free };
        if holder < *ttid || other.vote != Vote::No || other.checking.contains_key(oid) {
            return Attempt::Wait;
        }
        if is_lockless {
            return Attempt::Lockless;
        }
        if other.lockless.contains(oid) {
            self.all.entry(*ttid).and_modify(|own| {
                own.lockless.insert(*oid);
            });
            return Attempt::Lockless;
        }
        match other.deadlocks.insert(*oid) {
            true => Attempt::Deadlock(holder),
            false => Attempt::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use zodium_neo::{NodeId, NodeType};

    use super::*;

    const OID: Oid = Oid(7);

    fn request(ttid: u64) -> LockRequest {
        let wish = LockWish::Store { data: None, data_serial: None };
        let from = (ConnectionId::new(1), 0);
        LockRequest { from, ttid: Tid(ttid), oid: OID, serial: Tid(1), wish }
    }

    fn transactions() -> Transactions {
        let mut transactions = Transactions::default();
        for ttid in [10, 20, 30] {
            let client = NodeId::of(NodeType::Client, 1).unwrap();
            transactions.register(Tid(ttid), client, ConnectionId::new(1));
        }
        transactions
    }

    #[test]
    fn younger_transactions_wait_and_older_ones_get_the_lock_back() {
        let mut all = transactions();
        assert_eq!(all.attempt(&request(20), false), Attempt::Free);
        all.locks.insert(OID, Tid(20));
        assert_eq!(all.attempt(&request(20), false), Attempt::Again);
        assert_eq!(all.attempt(&request(30), false), Attempt::Wait);
        assert_eq!(all.attempt(&request(10), false), Attempt::Deadlock(Tid(20)));
        assert_eq!(all.attempt(&request(10), false), Attempt::Wait);
        assert_eq!(all.attempt(&request(99), false), Attempt::Forgotten);
    }

    #[test]
    fn a_voted_transaction_keeps_its_locks() {
        let mut all = transactions();
        all.locks.insert(OID, Tid(20));
        all.all.get_mut(&Tid(20)).unwrap().vote = Vote::Asked;
        assert_eq!(all.attempt(&request(10), false), Attempt::Wait);
    }

    #[test]
    fn requests_wait_while_the_database_is_asked() {
        let mut all = transactions();
        all.locks.insert(OID, Tid(20));
        all.all.get_mut(&Tid(20)).unwrap().checking.insert(OID, 1);
        for ttid in [10, 20, 30] {
            assert_eq!(all.attempt(&request(ttid), false), Attempt::Wait, "{ttid}");
        }
    }

    #[test]
    fn a_cell_without_the_data_takes_no_lock() {
        let mut all = transactions();
        assert_eq!(all.attempt(&request(20), true), Attempt::Lockless);
        assert!(all.all[&Tid(20)].lockless.contains(&OID) && all.locks.is_empty());
    }

    #[test]
    fn a_store_again_takes_no_lock_before_the_cell_is_announced() {
        let mut all = transactions();
        assert_eq!(all.attempt(&request(20), true), Attempt::Lockless);
        // The cell has all data. Another transaction has stored the object without a lock, too, so
        // the cell is not announced yet; the youngest one is noted as the holder.
        all.locks.insert(OID, Tid(20));
        assert_eq!(all.attempt(&request(20), false), Attempt::Lockless);
        all.all.get_mut(&Tid(20)).unwrap().lockless.clear();
        assert_eq!(all.attempt(&request(20), false), Attempt::Again);
    }

    #[test]
    fn waiting_requests_are_taken_oldest_first() {
        let mut all = transactions();
        for ttid in [30, 10, 20, 10] {
            all.wait(request(ttid));
        }
        let taken: Vec<_> = all.take_waiting(OID).iter().map(|one| one.ttid.0).collect();
        assert_eq!(taken, [10, 10, 20, 30]);
        assert!(all.take_waiting(OID).is_empty());
    }
}
