//! Transactions that the master has ended lately.
//!
//! A client that loses a connection gives its transaction up at the master. The master's word may
//! overtake what is still on its way on that connection: stores, and a vote that nothing undoes.

use std::collections::VecDeque;

use zodium_types::Tid;

/// Most transactions that are remembered: many more than end while a lost connection is noticed.
const ENDED_MAX: usize = 10_000;

/// What is known of transactions that are over.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// The last ones that the master has ended.
    last: VecDeque<Tid>,
    /// The last transaction that was committed when the master told those in progress.
    committed: Tid,
    /// Those in progress.
    in_progress: Vec<Tid>,
}

impl Ended {
    /// Notes a transaction that is over.
    pub(super) fn note(&mut self, ttid: Tid) {
        if self.last.len() == ENDED_MAX {
            self.last.pop_front();
        }
        self.last.push_back(ttid);
    }

    /// Notes the transactions in progress, and the last one that is committed: what begins later
    /// has a later ttid.
    pub(super) fn note_in_progress(&mut self, committed: Tid, ttids: &[Tid]) {
        (self.committed, self.in_progress) = (committed, ttids.to_vec());
    }

    /// Whether a transaction is over.
    pub(super) fn contains(&self, ttid: Tid) -> bool {
        let is_old = ttid <= self.committed && !self.in_progress.contains(&ttid);
        is_old || self.last.contains(&ttid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_end_is_forgotten_first() {
        let mut ended = Ended::default();
        let last = ENDED_MAX as u64 + 1;
        (1..=last).for_each(|ttid| ended.note(Tid(ttid)));
        assert!(!ended.contains(Tid(1)) && ended.contains(Tid(2)) && ended.contains(Tid(last)));
    }

    #[test]
    fn what_is_not_in_progress_is_over_unless_it_begins_later() {
        let mut ended = Ended::default();
        ended.note_in_progress(Tid(10), &[Tid(7), Tid(12)]);
        assert!(ended.contains(Tid(6)) && !ended.contains(Tid(7)) && !ended.contains(Tid(11)));
    }
}
