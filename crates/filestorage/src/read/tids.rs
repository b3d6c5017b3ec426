//! What is known of the tids in a log.
//!
//! ZODB's FileStorage reads logs whose tids go back, as they come of two storages that were copied
//! one after the other. The last transaction of such a log may not be the latest, and a search by
//! tid passes by what stands behind a later one.

use zodium_types::Tid;

/// What is known of the tids of the transactions before a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tids {
    /// That of the last transaction; [`Tid::ZERO`] for none.
    pub(crate) last: Tid,
    /// The latest of those that were read; [`Tid::ZERO`] for none.
    pub(crate) latest: Tid,
    /// Whether one of those that were read stands behind a later one.
    pub(crate) go_back: bool,
    /// Whether all were read, now or when the index was saved.
    pub(crate) are_all_known: bool,
}

impl Tids {
    /// Those of an empty log.
    pub(crate) const NONE: Tids =
        Tids { last: Tid::ZERO, latest: Tid::ZERO, go_back: false, are_all_known: true };

    /// Adds the next transaction.
    pub(crate) fn note(&mut self, tid: Tid) {
        self.go_back |= tid <= self.latest;
        self.latest = self.latest.max(tid);
        self.last = tid;
    }

    /// Adds what a walk over all transactions has found. Later ones may have been noted meanwhile.
    pub(crate) fn learn(&mut self, all: Tids) {
        self.go_back |= all.go_back;
        self.latest = self.latest.max(all.latest);
        self.are_all_known = true;
    }
}
