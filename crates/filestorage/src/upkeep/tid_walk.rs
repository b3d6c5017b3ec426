//! Learns the order of the tids in a log from a scrub, which reads all of it.
//!
//! The index of an earlier version, or of another program, does not tell it.

use crate::format::MAGIC_BYTES;
use crate::read::{LogFile, Tids};
use crate::scan::Piece;

/// The tids up to where a scrub has come.
#[derive(Debug)]
pub(super) struct TidWalk {
    generation: u64,
    position: u64,
    tids: Tids,
}

impl TidWalk {
    /// Goes on at `start`, where the step before has ended; `None` if it cannot, or need not.
    pub(super) fn go_on(before: Option<TidWalk>, log: &LogFile, start: u64) -> Option<TidWalk> {
        if log.tids().are_all_known {
            return None;
        }
        let generation = log.generation;
        match start {
            MAGIC_BYTES => Some(TidWalk { generation, position: start, tids: Tids::NONE }),
            _ => before.filter(|walk| (walk.generation, walk.position) == (generation, start)),
        }
    }

    /// Adds a piece. Behind a damaged one the walk does not go on.
    pub(super) fn pass(&mut self, piece: &Piece) {
        if let Some(tid) = piece.tid
            && piece.is_whole()
            && piece.start == self.position
        {
            self.tids.note(tid);
            self.position = piece.end;
        }
    }

    /// Lets the log know, if the walk has come to its end.
    pub(super) fn settle(&self, log: &LogFile) {
        // All transactions before the end are noted there by now, so none is noted twice.
        if self.position >= log.settled().0 {
            log.learn_tids(self.tids);
        }
    }
}
