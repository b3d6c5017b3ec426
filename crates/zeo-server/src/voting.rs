//! The votes of a worker's sessions: to which session a transaction of the commit machine belongs.
//!
//! Key decision: the state of the session's transaction owns its entry here, as a [`Vote`]. The
//! entry goes with that state, so there is no second table to keep in step.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use zodium_engine::commit::TransactionNumber;

/// The session of each vote, by the vote's number.
#[derive(Clone, Default)]
pub(crate) struct VotingSessions {
    sessions: Rc<RefCell<FxHashMap<TransactionNumber, u64>>>,
}

/// A vote of a session: notices about it reach the session until it is dropped.
pub(crate) struct Vote {
    number: TransactionNumber,
    voting: VotingSessions,
}

impl VotingSessions {
    /// Adds a vote of a session.
    pub(crate) fn add(&self, number: TransactionNumber, session: u64) -> Vote {
        self.sessions.borrow_mut().insert(number, session);
        Vote { number, voting: self.clone() }
    }

    /// The session that a vote belongs to; `None` if the session has given it up.
    pub(crate) fn session(&self, number: TransactionNumber) -> Option<u64> {
        self.sessions.borrow().get(&number).copied()
    }
}

impl Vote {
    /// The number of the transaction in the commit machine.
    pub(crate) fn number(&self) -> TransactionNumber {
        self.number
    }
}

impl Drop for Vote {
    fn drop(&mut self) {
        self.voting.sessions.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vote_belongs_to_its_session_until_it_is_dropped() {
        let voting = VotingSessions::default();
        let first = voting.add(TransactionNumber(1), 10);
        let second = voting.add(TransactionNumber(2), 20);
        assert_eq!(voting.session(first.number()), Some(10));
        assert_eq!(voting.session(second.number()), Some(20));
        drop(first);
        assert_eq!(voting.session(TransactionNumber(1)), None);
        assert_eq!(voting.session(TransactionNumber(2)), Some(20));
    }
}
