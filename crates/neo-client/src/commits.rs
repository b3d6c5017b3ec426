//! The commits of the cluster, own ones and those of others, as one sequence in the order of tids.
//!
//! The primary master tells of both on one connection, in their order. When it is lost, what was
//! missed is read from the storages before anything else is told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tracing::warn;
use zodium_storage::{Committed, Finished, Follower, StorageError};
use zodium_types::{Oid, Tid};

use crate::NeoError;
use crate::cache::CurrentRevisions;

/// The commits that are told of.
pub(crate) struct Commits {
    /// Held while a commit is told of, so that they come one after the other.
    state: Mutex<State>,
    current: Arc<CurrentRevisions>,
    /// Stored with Release after what makes answers stale, loaded with Acquire.
    last_tid: AtomicU64,
    /// The last transaction that is known to be one, at most `last_tid`. Changed by the connector
    /// thread, or while a commit is told of.
    last_transaction: AtomicU64,
    last_oid: AtomicU64,
    last_committed_oid: AtomicU64,
}

#[derive(Default)]
struct State {
    follower: Option<Arc<dyn Follower>>,
    /// Commits of others that came while the missed ones were read; `None`: all is told at once.
    held: Option<Vec<Committed>>,
    /// Finishes that were sent, and whose answer was lost.
    unresolved: Vec<Unresolved>,
}

/// A finish whose outcome is not known.
pub(crate) struct Unresolved {
    /// The temporary tid of the transaction.
    pub(crate) ttid: Tid,
    /// The objects that it writes.
    pub(crate) oids: Vec<Oid>,
    pub(crate) done: Finished,
}

impl Commits {
    /// Before the first session. Each commit takes its objects out of `current`.
    pub(crate) fn new(current: Arc<CurrentRevisions>) -> Commits {
        Commits {
            state: Mutex::default(),
            current,
            last_tid: AtomicU64::new(0),
            last_transaction: AtomicU64::new(0),
            last_oid: AtomicU64::new(0),
            last_committed_oid: AtomicU64::new(0),
        }
    }

    /// The last transaction that was told of.
    pub(crate) fn last_tid(&self) -> Tid {
        Tid(self.last_tid.load(Ordering::Acquire))
    }

    /// The last transaction that the cluster is known to have had: the last tid of a backup cluster
    /// may be no transaction.
    pub(crate) fn last_transaction(&self) -> Tid {
        Tid(self.last_transaction.load(Ordering::Acquire))
    }

    /// Notes a transaction that the cluster has.
    pub(crate) fn note_transaction(&self, tid: Tid) {
        self.last_transaction.fetch_max(tid.0, Ordering::AcqRel);
    }

    /// The largest oid that was seen.
    pub(crate) fn last_oid(&self) -> Oid {
        Oid(self.last_oid.load(Ordering::Relaxed))
    }

    /// The largest oid of the commits that were seen.
    pub(crate) fn last_committed_oid(&self) -> Oid {
        Oid(self.last_committed_oid.load(Ordering::Relaxed))
    }

    /// Notes an oid that is in use.
    pub(crate) fn note_oid(&self, oid: Oid) {
        self.last_oid.fetch_max(oid.0, Ordering::Relaxed);
    }

    /// Holds what comes back, until [`Commits::catch_up`].
    pub(crate) fn hold(&self) {
        self.state.lock().held = Some(Vec::new());
    }

    /// Takes the commit of another client.
    pub(crate) fn invalidated(&self, tid: Tid, oids: Vec<Oid>) {
        let mut state = self.state.lock();
        let committed = Committed { tid, oids };
        match &mut state.held {
            Some(held) => held.push(committed),
            None => self.tell(&state, committed),
        }
    }

    /// Takes an own commit.
    pub(crate) fn finished(&self, tid: Tid, oids: Vec<Oid>, done: Finished) {
        let state = self.state.lock();
        self.settle(&state, tid, oids, done);
    }

    /// Takes a finish whose answer was lost.
    pub(crate) fn unresolved(&self, finish: Unresolved) {
        self.state.lock().unresolved.push(finish);
    }

    /// Takes out the finishes whose answers were lost.
    pub(crate) fn take_unresolved(&self) -> Vec<Unresolved> {
        std::mem::take(&mut self.state.lock().unresolved)
    }

    /// Tells of what was missed up to `last`, of own transactions, and of what was held after
    /// `last`, in the order of their tids. From now on commits are told of as they come.
    ///
    /// An own transaction may be later than `last`, and what was held earlier than that one: the
    /// master tells of it before it says with which tid the own one was committed.
    pub(crate) fn catch_up(
        &self,
        last: Tid,
        missed: Vec<Committed>,
        own: BTreeMap<Tid, Unresolved>,
    ) {
        let mut state = self.state.lock();
        let held = state.held.take().unwrap_or_default();
        let held = held.into_iter().filter(|one| one.tid > last);
        let mut missed: BTreeMap<Tid, Vec<Oid>> =
            missed.into_iter().chain(held).map(|one| (one.tid, one.oids)).collect();
        let mut own = own;
        // A transaction without metadata would be missing in the list.
        own.iter().for_each(|(tid, one)| {
            missed.entry(*tid).or_insert_with(|| one.oids.clone());
        });
        for (tid, oids) in missed {
            match own.remove(&tid) {
                Some(one) => self.settle(&state, tid, one.oids, one.done),
                None if tid > self.last_tid() => self.tell(&state, Committed { tid, oids }),
                None => {}
            }
        }
        self.last_tid.fetch_max(last.0, Ordering::AcqRel);
    }

    /// Has a follower told of all commits after `since`; `missed` reads those that are there.
    pub(crate) fn follow(
        &self,
        since: Tid,
        follower: Arc<dyn Follower>,
        missed: impl FnOnce(Tid) -> Result<Vec<Committed>, NeoError>,
    ) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        let last = self.last_tid();
        if since < last {
            let missed = missed(last)?;
            if !missed.is_empty() {
                follower.committed(missed);
            }
        }
        state.follower = Some(follower);
        Ok(())
    }

    fn tell(&self, state: &MutexGuard<'_, State>, committed: Committed) {
        if self.note(&committed)
            && let Some(follower) = &state.follower
        {
            follower.committed(vec![committed]);
        }
    }

    fn settle(&self, _: &MutexGuard<'_, State>, tid: Tid, oids: Vec<Oid>, done: Finished) {
        let committed = Committed { tid, oids };
        match self.note(&committed) {
            true => done(Ok(committed)),
            false => done(Err(NeoError::OutOfOrder { tid }.into())),
        }
    }

    /// From now on answers from before the commit are stale. `false`: a later commit was told of.
    fn note(&self, committed: &Committed) -> bool {
        if committed.tid <= self.last_tid() {
            warn!(tid = %committed.tid, "the primary master tells of a commit out of its order");
            return false;
        }
        if let Some(oid) = committed.oids.iter().max() {
            self.note_oid(*oid);
            self.last_committed_oid.fetch_max(oid.0, Ordering::Relaxed);
        }
        self.current.note_commit(&committed.oids);
        self.note_transaction(committed.tid);
        self.last_tid.store(committed.tid.0, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was told, in its order: the tid, and whether it was an own commit.
    type Told = Arc<Mutex<Vec<(u64, bool)>>>;

    struct Listener(Told);

    impl Follower for Listener {
        fn committed(&self, commits: Vec<Committed>) {
            self.0.lock().extend(commits.iter().map(|one| (one.tid.0, false)));
        }
    }

    fn done(told: &Told) -> Finished {
        let told = Arc::clone(told);
        Box::new(move |outcome| told.lock().push((outcome.unwrap().tid.0, true)))
    }

    fn commits() -> Commits {
        Commits::new(Arc::new(CurrentRevisions::new(0)))
    }

    fn committed(tid: u64) -> Committed {
        Committed { tid: Tid(tid), oids: vec![Oid(tid)] }
    }

    fn following(last: u64) -> (Commits, Told) {
        let (commits, told) = (commits(), Told::default());
        commits.catch_up(Tid(last), vec![], BTreeMap::new());
        let listener = Arc::new(Listener(Arc::clone(&told)));
        commits.follow(Tid(last), listener, |_| unreachable!()).unwrap();
        (commits, told)
    }

    #[test]
    fn own_commits_and_those_of_others_are_one_sequence() {
        let (commits, told) = following(10);
        let before = commits.current.now();
        commits.invalidated(Tid(11), vec![Oid(1)]);
        commits.finished(Tid(12), vec![Oid(2)], done(&told));
        commits.invalidated(Tid(13), vec![Oid(300)]);
        assert_eq!(*told.lock(), [(11, false), (12, true), (13, false)]);
        assert_eq!((commits.last_tid(), commits.last_oid()), (Tid(13), Oid(300)));
        let is_current = |oid| commits.current.is_current(Oid(oid), before);
        assert!(!is_current(2) && is_current(3));
    }

    #[test]
    fn what_was_missed_comes_before_what_was_held_and_nothing_twice() {
        let (commits, told) = following(10);
        commits.hold();
        commits.invalidated(Tid(11), vec![]);
        commits.invalidated(Tid(15), vec![]);
        commits.unresolved(Unresolved { ttid: Tid(12), oids: vec![Oid(7)], done: done(&told) });
        assert!(told.lock().is_empty());
        let own = commits.take_unresolved().into_iter().map(|one| (Tid(13), one)).collect();
        let missed = [10, 11, 13, 14].map(committed).into();
        commits.catch_up(Tid(14), missed, own);
        assert_eq!(*told.lock(), [(11, false), (13, true), (14, false), (15, false)]);
        commits.invalidated(Tid(16), vec![]);
        assert_eq!(told.lock().last(), Some(&(16, false)));
    }

    #[test]
    fn what_was_held_comes_before_a_later_own_one() {
        let (commits, told) = following(10);
        let before = commits.current.now();
        commits.hold();
        commits.invalidated(Tid(11), vec![Oid(1)]);
        commits.unresolved(Unresolved { ttid: Tid(12), oids: vec![Oid(7)], done: done(&told) });
        let own = commits.take_unresolved().into_iter().map(|one| (Tid(13), one)).collect();
        commits.invalidated(Tid(15), vec![]);
        commits.catch_up(Tid(10), vec![], own);
        assert_eq!(*told.lock(), [(11, false), (13, true), (15, false)]);
        assert!(!commits.current.is_current(Oid(1), before));
    }

    #[test]
    fn commits_out_of_order_are_not_told() {
        let (commits, told) = following(10);
        commits.invalidated(Tid(12), vec![]);
        commits.invalidated(Tid(12), vec![]);
        commits.invalidated(Tid(11), vec![]);
        commits.finished(Tid(9), vec![], Box::new(|outcome| assert!(outcome.is_err())));
        assert_eq!(*told.lock(), [(12, false)]);
    }

    #[test]
    fn late_follower_is_told_of_what_it_missed() {
        let (commits, told) = (commits(), Told::default());
        commits.catch_up(Tid(5), vec![], BTreeMap::new());
        commits.invalidated(Tid(6), vec![]);
        let listener = Arc::new(Listener(Arc::clone(&told)));
        commits.follow(Tid(5), listener, |last| Ok(vec![committed(last.0)])).unwrap();
        commits.invalidated(Tid(7), vec![]);
        assert_eq!(*told.lock(), [(6, false), (7, false)]);
    }
}
