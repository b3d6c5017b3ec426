//! Locks that the engine keeps for a client that met conflicts, until the client tries again.
//!
//! Key decision: a client is judged by its last attempts. One that comes back too late, or with
//! other objects, made others wait in vain: some of its next conflicts free its locks at once.

use crate::voting::Vote;

/// After so many reservations in vain, the number of conflicts without one does not grow any more.
const VAIN_MAX: u32 = 5;

/// The reservation of a session, of which there is at most one.
#[derive(Default)]
pub(crate) struct Retry {
    reserved: Option<Vote>,
    /// Whether the current transaction votes with reserved locks.
    is_resumed: bool,
    /// Number of reservations in vain, in a row.
    vain: u32,
    /// Number of conflicts that get no reservation.
    paused: u32,
}

impl Retry {
    /// Whether to keep the locks of a transaction that was given up after conflicts.
    pub(crate) fn is_worthwhile(&mut self) -> bool {
        if std::mem::take(&mut self.is_resumed) {
            // The client had loaded an older revision.
            self.note_vain();
        }
        let is_worthwhile = self.paused == 0;
        self.paused = self.paused.saturating_sub(1);
        is_worthwhile
    }

    /// Notes that the locks of a vote are kept.
    pub(crate) fn reserve(&mut self, vote: Vote) {
        self.reserved = Some(vote);
    }

    /// Takes the vote whose locks are kept, if there is one.
    pub(crate) fn take(&mut self) -> Option<Vote> {
        self.reserved.take()
    }

    /// Notes that the client's next transaction has got the reserved locks.
    pub(crate) fn note_resumed(&mut self) {
        self.is_resumed = true;
    }

    /// Notes that the client came too late, or with other objects.
    pub(crate) fn note_vain(&mut self) {
        self.vain = (self.vain + 1).min(VAIN_MAX);
        self.paused = (1 << self.vain) - 1;
    }

    /// Notes that a vote has passed.
    pub(crate) fn note_voted(&mut self) {
        if std::mem::take(&mut self.is_resumed) {
            self.vain = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use zodium_engine::commit::TransactionNumber;

    use super::*;
    use crate::voting::VotingSessions;

    #[test]
    fn a_reserved_vote_is_kept_until_it_is_taken_once() {
        let (voting, number) = (VotingSessions::default(), TransactionNumber(7));
        let mut retry = Retry::default();
        retry.reserve(voting.add(number, 1));
        assert_eq!(voting.session(number), Some(1), "it was not given up");
        assert_eq!(retry.take().map(|vote| vote.number()), Some(number));
        assert!(retry.take().is_none());
    }

    #[test]
    fn a_client_that_comes_in_vain_is_waited_for_less_often() {
        let mut retry = Retry::default();
        let mut reserved = Vec::new();
        for conflict in 0..100 {
            if retry.is_worthwhile() {
                reserved.push(conflict);
                retry.note_vain();
            }
        }
        assert_eq!(reserved, [0, 2, 6, 14, 30, 62, 94]);
    }

    #[test]
    fn a_client_that_comes_back_in_time_is_always_waited_for() {
        let mut retry = Retry::default();
        for _ in 0..10 {
            assert!(retry.is_worthwhile());
            retry.note_resumed();
            retry.note_voted();
        }
        assert!(retry.is_worthwhile());
        retry.note_vain();
        assert!(!retry.is_worthwhile(), "one conflict gets none");
        assert!(retry.is_worthwhile());
        retry.note_resumed();
        retry.note_voted();
        retry.note_vain();
        assert!(!retry.is_worthwhile() && retry.is_worthwhile(), "it starts anew");
    }

    #[test]
    fn a_client_that_votes_with_old_revisions_again_gets_no_second_reservation() {
        let mut retry = Retry::default();
        assert!(retry.is_worthwhile());
        retry.note_resumed();
        assert!(!retry.is_worthwhile());
    }
}
