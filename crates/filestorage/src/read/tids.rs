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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn noted(tids: &[u64]) -> Tids {
        let mut all = Tids::NONE;
        tids.iter().for_each(|tid| all.note(Tid(*tid)));
        all
    }

    fn told(tids: Tids) -> (u64, u64, bool) {
        (tids.last.0, tids.latest.0, tids.go_back)
    }

    #[test]
    fn tids_go_back_from_the_first_one_on_that_is_not_later() {
        assert_eq!(told(noted(&[])), (0, 0, false));
        assert_eq!(told(noted(&[3, 5])), (5, 5, false));
        assert_eq!(told(noted(&[3, 5, 5])), (5, 5, true));
        assert_eq!(told(noted(&[3, 5, 4])), (4, 5, true));
        assert_eq!(told(noted(&[3, 5, 4, 6])), (6, 6, true));
    }

    #[test]
    fn what_a_walk_has_found_is_added_to_what_came_meanwhile() {
        for (all, latest, go_back) in
            [(&[1, 2][..], 7, false), (&[1, 9], 9, false), (&[2, 1], 7, true), (&[9, 1], 9, true)]
        {
            let mut tids = Tids { are_all_known: false, ..noted(&[7]) };
            tids.learn(noted(all));
            assert_eq!(told(tids), (7, latest, go_back), "{all:?}");
            assert!(tids.are_all_known);
        }
        let mut tids = noted(&[7, 6]);
        tids.learn(noted(&[1]));
        assert_eq!(told(tids), (6, 7, true));
    }
}
