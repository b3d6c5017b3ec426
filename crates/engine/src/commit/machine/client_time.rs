//! How long clients have held their locks, without the time of the server's own checks.
//!
//! Key decision: a check counts for no client, however long it takes: blobs are synced, threads are
//! waited for. A client that votes again and again does not begin anew: only the checks are left
//! out.

use std::time::Duration;

use super::{CommitMachine, CommitState, Transaction};
use crate::commit::number::TransactionNumber;

impl<P> CommitMachine<P> {
    /// Transactions whose clients have held locks for longer than `timeout` without a finish, the
    /// oldest grant first. Their state does not change: the caller aborts them. Source: ZEO's
    /// `transaction-timeout`.
    pub fn expired(&self, now: Duration, timeout: Duration) -> Vec<TransactionNumber> {
        let is_over = |since: Duration| now.saturating_sub(since) > timeout;
        let is_late = |transaction: &Transaction<P>| {
            transaction.waits_for_client() && is_over(transaction.client_since)
        };
        self.grants
            .iter()
            .take_while(|(granted_at, _)| is_over(*granted_at))
            .map(|&(_, number)| number)
            .filter(|number| self.transactions.get(number).is_some_and(is_late))
            .collect()
    }

    /// The transaction whose client has held its locks for the longest time without a finish, and
    /// for how long.
    pub fn longest_client_time(&self, now: Duration) -> Option<(TransactionNumber, Duration)> {
        let transactions = self.grants.iter().filter_map(|&(_, number)| {
            let transaction = self.transactions.get(&number)?;
            let time = now.saturating_sub(transaction.client_since);
            transaction.waits_for_client().then_some((number, time))
        });
        transactions.max_by_key(|(_, time)| *time)
    }
}

impl<P> Transaction<P> {
    /// Whether its client has the next step.
    fn waits_for_client(&self) -> bool {
        matches!(self.state, CommitState::Resolving | CommitState::Voted)
    }

    /// Notes new locks: a check begins.
    pub(super) fn note_grant(&mut self, now: Duration) {
        self.granted_at = now;
        self.client_since = now;
        self.begin_check(now);
    }

    pub(super) fn begin_check(&mut self, now: Duration) {
        self.state = CommitState::Checking;
        self.checking_since = now;
    }

    pub(super) fn end_check(&mut self, state: CommitState, now: Duration) {
        self.state = state;
        self.client_since += now.saturating_sub(self.checking_since);
    }
}

#[cfg(test)]
mod tests {
    use zodium_types::Tid;

    use super::super::tests::{NOW, number, vote, writes};
    use super::*;
    use crate::commit::LockAnswer::Granted;

    #[test]
    fn checks_are_left_out_of_the_time_of_a_client() {
        let second = Duration::from_secs(1);
        let mut machine = CommitMachine::<()>::new(Tid(10));
        assert_eq!(vote(&mut machine, 1, &[1]), Granted);
        let is_late = |machine: &mut CommitMachine<()>, seconds: u32| {
            !machine.expired(NOW + second * seconds, 3 * second).is_empty()
        };
        assert!(!is_late(&mut machine, 1000), "it is being checked");
        machine.resolve(number(1), NOW + 1000 * second).unwrap();
        assert!(!is_late(&mut machine, 1003) && is_late(&mut machine, 1004));
        assert_eq!(machine.vote_again(number(1), &writes(&[1]), NOW + 1002 * second), Ok(true));
        assert!(!is_late(&mut machine, 2000), "it is being checked again");
        machine.voted(number(1), NOW + 2000 * second).unwrap();
        assert!(!is_late(&mut machine, 2001) && is_late(&mut machine, 2002), "it had two before");
        let longest = machine.longest_client_time(NOW + 2005 * second);
        assert_eq!(longest, Some((number(1), 7 * second)));
        machine.finish(number(1)).unwrap();
        assert_eq!(machine.longest_client_time(NOW + 9999 * second), None, "the disk's turn");
    }
}
