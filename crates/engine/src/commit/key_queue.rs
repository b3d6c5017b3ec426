//! The queue of one lock key.
//!
//! Key decision: requests without an earlier conflict are only counted, since their order no longer
//! matters. The others stand in a tree ordered by arrival, so that one in the middle can leave
//! without a walk over the rest. An uncontended queue is 16 bytes and allocates nothing.

use std::collections::BTreeMap;

use super::lock_set::LockMode;
use super::number::TransactionNumber;

/// The order of arrival of a request, over all keys of the table: smaller is earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(pub(super) u64);

/// A request that conflicts with an earlier one in this queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) owner: TransactionNumber,
    pub(super) mode: LockMode,
}

/// The requests that name one key.
///
/// Invariant: the eligible requests are either one exclusive request or any number of shared ones,
/// and they conflict with the first blocked one. Therefore a new request is blocked if any other
/// is.
#[derive(Debug)]
pub(super) struct KeyQueue {
    /// Requests without an earlier conflict: holders, and waiters that wait only for other keys.
    eligible: u32,
    /// The mode of the eligible requests; meaningless when there are none.
    mode: LockMode,
    /// In order of arrival; never an empty tree.
    #[expect(clippy::box_collection, reason = "a tree is 24 bytes, and hardly any key has one")]
    blocked: Option<Box<BTreeMap<Ticket, Blocked>>>,
}

/// A queue in full: number and mode of the eligible requests, and the blocked ones in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct QueueView {
    pub(super) eligible: u32,
    pub(super) mode: Option<LockMode>,
    pub(super) blocked: Vec<Blocked>,
}

impl Default for KeyQueue {
    fn default() -> KeyQueue {
        KeyQueue { eligible: 0, mode: LockMode::Shared, blocked: None }
    }
}

impl KeyQueue {
    /// Appends a request, and returns whether it is eligible at once.
    pub(super) fn enter(
        &mut self,
        ticket: Ticket,
        owner: TransactionNumber,
        mode: LockMode,
    ) -> bool {
        let eligible = self.blocked.is_none() && self.admits(mode);
        if eligible {
            self.eligible += 1;
            self.mode = mode;
        } else {
            self.blocked.get_or_insert_default().insert(ticket, Blocked { owner, mode });
        }
        eligible
    }

    /// Removes a request, and calls `on_eligible` for each blocked one that this makes eligible, in
    /// order of arrival.
    pub(super) fn leave(&mut self, ticket: Ticket, on_eligible: impl FnMut(Blocked)) {
        let was_blocked =
            self.blocked.as_mut().is_some_and(|blocked| blocked.remove(&ticket).is_some());
        if !was_blocked {
            self.eligible -= 1;
        }
        self.advance(on_eligible);
    }

    /// Whether the request with this ticket is blocked on this key.
    pub(super) fn blocks(&self, ticket: Ticket) -> bool {
        self.blocked.as_ref().is_some_and(|blocked| blocked.contains_key(&ticket))
    }

    /// Whether no request names the key any more.
    pub(super) fn is_unused(&self) -> bool {
        self.eligible == 0 && self.blocked.is_none()
    }

    /// The content of the queue, to compare with the expected content.
    pub(super) fn view(&self) -> QueueView {
        let blocked = self.blocked.iter().flat_map(|tree| tree.values().copied()).collect();
        let mode = (self.eligible > 0).then_some(self.mode);
        QueueView { eligible: self.eligible, mode, blocked }
    }

    fn advance(&mut self, mut on_eligible: impl FnMut(Blocked)) {
        while let Some(blocked) = &mut self.blocked {
            let Some(first) = blocked.first_entry() else {
                self.blocked = None;
                return;
            };
            let entry = *first.get();
            if !admits(self.eligible, self.mode, entry.mode) {
                return;
            }
            first.remove();
            self.eligible += 1;
            self.mode = entry.mode;
            on_eligible(entry);
        }
    }

    fn admits(&self, mode: LockMode) -> bool {
        admits(self.eligible, self.mode, mode)
    }
}

fn admits(eligible: u32, eligible_mode: LockMode, mode: LockMode) -> bool {
    eligible == 0 || mode.is_compatible(eligible_mode)
}

const _: () = assert!(size_of::<KeyQueue>() <= 16);

#[cfg(test)]
mod tests {
    use super::*;
    use LockMode::{Exclusive, Shared};

    fn queue(modes: &[LockMode]) -> (KeyQueue, Vec<bool>) {
        let mut queue = KeyQueue::default();
        let eligible = (1..)
            .zip(modes)
            .map(|(n, &mode)| queue.enter(Ticket(n), TransactionNumber(n), mode))
            .collect();
        (queue, eligible)
    }

    fn leave(queue: &mut KeyQueue, ticket: u64) -> Vec<u64> {
        let mut woken = Vec::new();
        queue.leave(Ticket(ticket), |entry| woken.push(entry.owner.0));
        woken
    }

    #[test]
    fn only_the_leading_shared_run_is_eligible() {
        let (mut queue, eligible) = queue(&[Shared, Shared, Exclusive, Shared]);
        assert_eq!(eligible, [true, true, false, false]);
        assert_eq!(leave(&mut queue, 1), []);
        assert_eq!(leave(&mut queue, 2), [3]);
        assert_eq!(leave(&mut queue, 3), [4]);
        assert_eq!(leave(&mut queue, 4), []);
        assert!(queue.is_unused());
    }

    #[test]
    fn an_exclusive_waiter_that_gives_up_lets_the_shared_behind_it_in() {
        let (mut queue, _) = queue(&[Shared, Exclusive, Shared, Shared, Exclusive]);
        assert_eq!(leave(&mut queue, 2), [3, 4]);
        let blocked = vec![Blocked { owner: TransactionNumber(5), mode: Exclusive }];
        assert_eq!(queue.view(), QueueView { eligible: 3, mode: Some(Shared), blocked });
    }

    #[test]
    fn a_waiter_in_the_middle_leaves_without_waking_anyone() {
        let (mut queue, _) = queue(&[Exclusive, Exclusive, Exclusive]);
        assert_eq!(leave(&mut queue, 2), []);
        assert_eq!(leave(&mut queue, 1), [3]);
    }
}
