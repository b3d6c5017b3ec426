//! Which situations the random driver met: a model test that never gets anywhere proves nothing.

use std::fmt;

macro_rules! situations {
    ($($name:ident),* $(,)?) => {
        /// A situation worth meeting.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Situation { $($name),* }

        const SITUATIONS: &[Situation] = &[$(Situation::$name),*];
    };
}

situations! {
    Waited, GrantedLater, StoreConflict, OtherConflict, VotedWithKeptLocks, NeededMoreLocks,
    Reserved, Resumed, ResumedWithOthers, ReservationOver, Resolved, NoSpace, AbortedWaiting,
    AbortedChecking, AbortedVoted, AbortTooLate, Expired, BatchOfSeveral, BatchesOverlapping,
    VotedWhileWriting, OwnTidPublished, OwnTidTooOld, WriteFailed, WrongCallRefused, Published
}

/// How often each situation was met.
pub(crate) struct Coverage {
    counts: [u64; SITUATIONS.len()],
    /// Whether steps are printed.
    pub(crate) trace: bool,
}

impl Coverage {
    pub(crate) fn new(trace: bool) -> Coverage {
        Coverage { counts: [0; SITUATIONS.len()], trace }
    }

    pub(crate) fn count(&mut self, situation: Situation) {
        self.counts[situation as usize] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Coverage) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }

    pub(crate) fn assert_complete(&self) {
        for &situation in SITUATIONS {
            assert!(self.counts[situation as usize] > 0, "{situation:?} never happened");
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &situation in SITUATIONS {
            write!(f, "{situation:?} {}  ", self.counts[situation as usize])?;
        }
        Ok(())
    }
}
