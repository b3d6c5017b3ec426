//! Locks that are kept for a client that gave up after conflicts, until it tries again.
//!
//! Key decision: a reservation holds the locks themselves, as the transaction before did. So those
//! that wait keep their places, and no rule of the lock table changes.

use std::time::Duration;

use super::{CommitError, CommitMachine, CommitState};
use crate::commit::lock_set::LockSet;
use crate::commit::number::TransactionNumber;

/// Shortest reservation: several round trips within a machine room, on a busy machine too.
const RESERVATION_MIN: Duration = Duration::from_millis(10);
/// Longest reservation: what others may wait in vain for a client that does not come back.
const RESERVATION_MAX: Duration = Duration::from_millis(100);
/// A reservation takes this many times as long as the client held its locks so far. To come back
/// takes three round trips (abort, load, vote), and what the application does.
const RESERVATION_SHARE: u32 = 8;

impl<P> CommitMachine<P> {
    /// Ends a transaction that its client gave up after conflicts, and keeps its locks for the
    /// client's next transaction, which [`resume`](Self::resume) hands them to. Others wait
    /// meanwhile: the revisions that the client loads now cannot change before it votes.
    ///
    /// There is no deadlock: a reservation waits for nothing, and it ends. Its time is a multiple
    /// of the time that the client took to give up, since a distant client takes longer to come
    /// back.
    ///
    /// # Errors
    /// `WrongState` unless it is `Resolving`, or when it brought a tid: others must not wait for
    /// its clock. `UnknownTransaction`.
    pub fn reserve(&mut self, number: TransactionNumber, now: Duration) -> Result<(), CommitError> {
        let call = "be reserved";
        let transaction = self.expect_state(number, CommitState::Resolving, call)?;
        if transaction.explicit_tid.is_some() {
            return Err(CommitError::WrongState { number, state: transaction.state, call });
        }
        let held = now.saturating_sub(transaction.granted_at);
        let until = now + (RESERVATION_SHARE * held).clamp(RESERVATION_MIN, RESERVATION_MAX);
        transaction.state = CommitState::Reserved;
        transaction.reserved_until = Some(until);
        self.reserved.insert((until, number));
        Ok(())
    }

    /// Hands reserved locks to the next transaction of the client, which brings no tid. If they
    /// cover `locks`, it is `Checking`, as if they had been granted now. Otherwise nothing happens,
    /// since a waiter must hold no locks: abort it, and vote under another number.
    ///
    /// # Errors
    /// `WrongState` unless it is `Reserved`, `UnknownTransaction`.
    pub fn resume(
        &mut self,
        number: TransactionNumber,
        locks: &LockSet,
        now: Duration,
    ) -> Result<bool, CommitError> {
        let covered = self.locks.covers(number, locks);
        let transaction = self.expect_state(number, CommitState::Reserved, "resume")?;
        if !covered {
            return Ok(false);
        }
        let granted_at = transaction.granted_at;
        transaction.note_grant(now);
        let until = transaction.reserved_until.take();
        self.reserved.remove(&(until.unwrap_or_default(), number));
        self.grants.remove(&(granted_at, number));
        self.grants.insert((now, number));
        Ok(true)
    }

    /// Ends the reservations whose time is over. Returns the transactions that this grants.
    pub fn end_reservations(&mut self, now: Duration) -> Vec<TransactionNumber> {
        let over = self.reserved.iter().take_while(|(until, _)| *until <= now);
        let over: Vec<_> = over.map(|&(_, number)| number).collect();
        if over.is_empty() { Vec::new() } else { self.end(over, now) }
    }

    /// When the first reservation ends (monotonic).
    pub fn first_reservation_end(&self) -> Option<Duration> {
        self.reserved.first().map(|&(until, _)| until)
    }
}

#[cfg(test)]
mod tests {
    use zodium_types::Tid;

    use super::super::tests::{NOW, number, numbers, vote, writes};
    use super::*;
    use crate::commit::AbortOutcome;
    use crate::commit::LockAnswer::{Granted, Waiting};

    /// A machine in which transaction 1 has locks for object 1 and 2, and 2 waits for object 1.
    fn resolving() -> CommitMachine<()> {
        let mut machine = CommitMachine::<()>::new(Tid(10));
        assert_eq!(vote(&mut machine, 1, &[1, 2]), Granted);
        machine.resolve(number(1), NOW).unwrap();
        assert_eq!(vote(&mut machine, 2, &[1]), Waiting);
        machine
    }

    #[test]
    fn reserved_locks_wait_for_the_next_transaction_of_the_client() {
        let (mut machine, later) = (resolving(), NOW + NOW);
        machine.reserve(number(1), NOW).unwrap();
        assert_eq!(machine.state(number(2)), Some(CommitState::Waiting));
        assert_eq!(machine.first_reservation_end(), Some(NOW + RESERVATION_MIN));
        assert_eq!(machine.expired(later, Duration::from_secs(1)), [], "no client is late");
        assert_eq!(machine.resume(number(1), &writes(&[2, 3]), later), Ok(false));
        assert_eq!(machine.resume(number(1), &writes(&[2]), later), Ok(true));
        machine.check_consistency().unwrap();
        assert_eq!(machine.first_reservation_end(), None);
        assert_eq!(machine.status().oldest_grant, Some(later), "its time counts from now");
        machine.voted(number(1), NOW).unwrap();
        machine.finish(number(1)).unwrap();
        assert_eq!(machine.next_batch(9, Tid(20)), [(number(1), Tid(20))]);
        assert_eq!(numbers(machine.published(&[number(1)], later).unwrap()), [2]);
    }

    #[test]
    fn a_reservation_ends_at_its_time_or_with_an_abort() {
        let mut machine = resolving();
        let now = NOW + Duration::from_millis(3);
        machine.reserve(number(1), now).unwrap();
        let end = now + Duration::from_millis(24);
        assert_eq!(machine.end_reservations(end - Duration::from_nanos(1)), []);
        assert_eq!(numbers(machine.end_reservations(end)), [2]);
        machine.check_consistency().unwrap();
        let unknown = CommitError::UnknownTransaction { number: number(1), call: "resume" };
        assert_eq!(machine.resume(number(1), &writes(&[1]), end), Err(unknown));

        let mut machine = resolving();
        let late = NOW + Duration::from_secs(9);
        machine.reserve(number(1), late).unwrap();
        assert_eq!(machine.first_reservation_end(), Some(late + RESERVATION_MAX));
        let granted = vec![number(2)];
        assert_eq!(machine.abort(number(1), NOW), AbortOutcome::Aborted { granted });
        assert_eq!(machine.first_reservation_end(), None);
        machine.check_consistency().unwrap();
    }

    #[test]
    fn only_a_client_that_resolves_and_brings_no_tid_gets_a_reservation() {
        let mut machine = CommitMachine::<()>::new(Tid(10));
        assert_eq!(vote(&mut machine, 1, &[1]), Granted);
        let refused = machine.reserve(number(1), NOW).unwrap_err();
        assert_eq!(refused.to_string(), "transaction 1 cannot be reserved while it is Checking");
        machine.resolve(number(1), NOW).unwrap();
        assert_eq!(vote(&mut machine, 2, &[2]), Granted);
        let _ = machine.abort(number(1), NOW);
        let _ = machine.abort(number(2), NOW);
        let answer = machine.vote(number(3), writes(&[3]), Some(Tid(99)), (), NOW).unwrap();
        assert_eq!(answer, Granted);
        machine.resolve(number(3), NOW).unwrap();
        assert!(machine.reserve(number(3), NOW).is_err());
        assert_eq!(machine.state(number(3)), Some(CommitState::Resolving));
    }
}
