//! The mailboxes that are told of each commit, and the newest commits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashSet;
use zodium_storage::{Committed, Follower};
use zodium_types::{Oid, Tid};

use crate::commit::TransactionNumber;
use crate::companion::Companion;
use crate::notice::{Commit, Commits, Mailbox, Notice};

/// Most objects in the remembered commits together: of large commits, fewer are remembered.
const RECENT_OIDS_MAX: usize = 1 << 20;
/// The number of commits that no session waits for.
const NO_TRANSACTION: TransactionNumber = TransactionNumber(0);

/// The subscribers of a database.
pub struct Subscribers {
    told: Mutex<Told>,
    /// The tid of the last commit that may have been posted to any mailbox. Release before the
    /// first post, Acquire by workers: a commit known from any source is then visible here.
    announced: AtomicU64,
    /// How many commits are remembered.
    recent_max: usize,
    /// Set once, before there are clients.
    companion: OnceLock<Accompanied>,
}

/// A companion, and the lock under which it is told of commits.
struct Accompanied {
    companion: Arc<dyn Companion>,
    /// Held until the mailboxes have the commits too.
    announcing: Mutex<()>,
}

/// Changed together under one lock, so that a new subscriber misses no commit and gets none twice.
struct Told {
    last_tid: Tid,
    mailboxes: Vec<Arc<dyn Mailbox>>,
    /// The newest commits, oldest first.
    recent: VecDeque<Arc<Commit>>,
    /// Number of objects in all of them.
    recent_oids: usize,
}

impl Subscribers {
    /// None yet, of a storage whose last transactions are these, oldest first.
    pub(crate) fn new(
        last_tid: Tid,
        recent: Vec<(Tid, Vec<Oid>)>,
        recent_max: usize,
    ) -> Subscribers {
        let mut told =
            Told { last_tid, mailboxes: Vec::new(), recent: VecDeque::new(), recent_oids: 0 };
        for (tid, oids) in recent {
            told.remember(Arc::new(Commit { tid, oids, number: NO_TRANSACTION }), recent_max);
        }
        if told.recent.is_empty() {
            // A client that knows the last transaction of an empty file can get all that follow.
            let nothing = Commit { tid: last_tid, oids: Vec::new(), number: NO_TRANSACTION };
            told.remember(Arc::new(nothing), recent_max);
        }
        Subscribers {
            told: Mutex::new(told),
            announced: AtomicU64::new(last_tid.0),
            recent_max,
            companion: OnceLock::new(),
        }
    }

    /// Adds a mailbox and returns the last tid: every later commit will be posted to the mailbox.
    pub fn add(&self, mailbox: Arc<dyn Mailbox>) -> Tid {
        let mut told = self.told.lock();
        told.mailboxes.push(mailbox);
        told.last_tid
    }

    /// Removes a mailbox: later commits are not posted to it.
    pub fn remove(&self, mailbox: &Arc<dyn Mailbox>) {
        // Without the vtables: one type may have several.
        let is_other =
            |one: &Arc<dyn Mailbox>| !std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(mailbox));
        self.told.lock().mailboxes.retain(is_other);
    }

    /// The last transaction that any client may know of; some mailboxes may not have it yet.
    pub fn announced_tid(&self) -> Tid {
        Tid(self.announced.load(Ordering::Acquire))
    }

    /// The last transaction that was posted to all mailboxes. Waits for an announcement in
    /// progress.
    pub fn last_tid(&self) -> Tid {
        if let Some(accompanied) = self.companion.get() {
            drop(accompanied.announcing.lock());
        }
        self.told.lock().last_tid
    }

    /// As [`Subscribers::last_tid`], without waiting: a companion may ask from under its locks.
    pub fn posted_tid(&self) -> Tid {
        self.told.lock().last_tid
    }

    /// The companion, if there is one.
    pub(crate) fn companion(&self) -> Option<&Arc<dyn Companion>> {
        self.companion.get().map(|accompanied| &accompanied.companion)
    }

    /// Has a companion told of each commit, before the mailboxes. There is at most one: a second
    /// one is refused.
    pub fn accompany(&self, companion: Arc<dyn Companion>) -> bool {
        let accompanied = Accompanied { companion, announcing: Mutex::new(()) };
        self.companion.set(accompanied).is_ok()
    }

    /// Whether any of these objects was written after `since`, which may be no transaction of the
    /// storage: then it may have been. `None` if `since` is older than what is remembered.
    ///
    /// A companion may ask from under its locks: it gets an answer that has all commits that it was
    /// told of, and every later commit it will be told of.
    pub(crate) fn may_have_changed(&self, since: Tid, oids: &[Oid]) -> Option<bool> {
        // Before the lock, which commits need: both sides may be long.
        let oids: FxHashSet<Oid> = oids.iter().copied().collect();
        let state = self.told.lock();
        let Ok(known) = state.recent.binary_search_by_key(&since, |commit| commit.tid) else {
            let Some(oldest) = state.recent.front() else {
                // Nothing is newer than the last announced one.
                let last = self.announced_tid();
                return (since >= last).then_some(since > last);
            };
            return (since > oldest.tid).then_some(true);
        };
        let newer = state.recent.range(known + 1..);
        Some(newer.flat_map(|commit| &commit.oids).any(|oid| oids.contains(oid)))
    }

    /// The objects written after `since` and not after `told`, from the recent transactions; `None`
    /// when these do not go back that far.
    ///
    /// `told` is the last transaction that the client knows of. Later commits reach it as notices,
    /// and only as notices.
    pub fn recently_changed(&self, since: Tid, told: Tid) -> Option<Vec<Oid>> {
        if since >= told {
            return Some(Vec::new());
        }
        let state = self.told.lock();
        if state.recent.front()?.tid > since {
            return None;
        }
        let newer = state.recent.iter().filter(|r| r.tid > since && r.tid <= told);
        let mut seen = FxHashSet::default();
        let oids = newer.flat_map(|commit| commit.oids.iter().copied());
        Some(oids.filter(|oid| seen.insert(*oid)).collect())
    }

    /// Posts commits to all mailboxes, in tid order. One thread calls this at a time: the log
    /// writer, or that of a storage that others write to.
    pub(crate) fn announce(&self, commits: &Commits) {
        let Some(last) = commits.last() else { return };
        let accompanied = self.companion.get();
        // First: a caller of `last_tid` that has seen the commit announced waits for the companion.
        let _announcing = accompanied.map(|accompanied| accompanied.announcing.lock());
        self.announced.store(last.tid.0, Ordering::Release);
        let mut told = self.told.lock();
        for (at, commit) in commits.iter().enumerate() {
            let before = at.checked_sub(1).map_or(told.last_tid, |before| commits[before].tid);
            assert!(commit.tid > before, "commits are announced in tid order");
            told.remember(Arc::clone(commit), self.recent_max);
        }
        if let Some(accompanied) = accompanied {
            // Not under this lock: commands of the companion take it under locks of theirs.
            MutexGuard::unlocked(&mut told, || accompanied.companion.committed(commits));
        }
        told.last_tid = last.tid;
        for mailbox in &told.mailboxes {
            mailbox.post(Notice::Committed(Arc::clone(commits)));
        }
    }

    /// Posts a notice to all mailboxes, after the commits announced before.
    pub(crate) fn post_to_all(&self, notice: &Notice) {
        for mailbox in &self.told.lock().mailboxes {
            mailbox.post(notice.clone());
        }
    }
}

impl Follower for Subscribers {
    fn committed(&self, commits: Vec<Committed>) {
        let commit =
            |Committed { tid, oids }| Arc::new(Commit { tid, oids, number: NO_TRANSACTION });
        self.announce(&commits.into_iter().map(commit).collect());
    }
}

impl Told {
    /// Adds a commit, and drops the oldest ones beyond `commits_max`, or beyond
    /// [`RECENT_OIDS_MAX`] objects. The newest commit stays, unless `commits_max` is 0.
    fn remember(&mut self, commit: Arc<Commit>, commits_max: usize) {
        self.recent_oids += commit.oids.len();
        self.recent.push_back(commit);
        while self.recent.len() > commits_max
            || (self.recent_oids > RECENT_OIDS_MAX && self.recent.len() > 1)
        {
            let Some(oldest) = self.recent.pop_front() else { return };
            self.recent_oids -= oldest.oids.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_with_more_objects_than_are_remembered_push_out_older_ones() {
        let subscribers = Subscribers::new(Tid::ZERO, Vec::new(), 100);
        let half = RECENT_OIDS_MAX as u64 / 2;
        let announce = |tid, oids: std::ops::Range<u64>| {
            let oids = oids.map(Oid).collect();
            let commit = Commit { tid: Tid(tid), oids, number: NO_TRANSACTION };
            subscribers.announce(&[Arc::new(commit)].into());
        };
        let told = |since| {
            let changed = subscribers.recently_changed(Tid(since), subscribers.last_tid());
            changed.map(|oids| oids.len() as u64)
        };
        announce(10, 0..half);
        announce(20, half..2 * half);
        // Exactly the limit.
        assert_eq!(told(10), Some(half));
        announce(30, 0..1);
        assert_eq!(told(10), None);
        assert_eq!(told(20), Some(1));
        // The newest commit is remembered, however many objects it has.
        announce(40, 0..2 * half + 1);
        assert_eq!(told(30), None);
        assert_eq!(told(40), Some(0));
        assert_eq!(subscribers.told.lock().recent.len(), 1);
    }

    #[test]
    fn no_change_is_known_before_the_oldest_remembered_commit() {
        let subscribers = Subscribers::new(Tid(5), Vec::new(), 100);
        let known = |since, oids: &[u64]| {
            let oids: Vec<Oid> = oids.iter().copied().map(Oid).collect();
            subscribers.may_have_changed(Tid(since), &oids)
        };
        let may_have_changed = |since, oids: &[u64]| known(since, oids).unwrap();
        assert_eq!(known(4, &[1]), None, "commits up to 5 are not remembered");
        assert!(!may_have_changed(5, &[1]));
        for tid in [10, 20] {
            let commit = Commit { tid: Tid(tid), oids: vec![Oid(tid)], number: NO_TRANSACTION };
            subscribers.announce(&[Arc::new(commit)].into());
        }
        assert!(may_have_changed(5, &[10]) && !may_have_changed(5, &[1]));
        assert!(may_have_changed(9, &[1]), "another state of the storage had it");
        assert!(!may_have_changed(10, &[1, 10]));
        assert!(may_have_changed(10, &[1, 20]));
        assert!(!may_have_changed(20, &[10, 20]));
        assert!(may_have_changed(21, &[1]), "no commit of this storage");
    }

    #[test]
    fn nothing_has_changed_after_the_last_commit_although_none_is_remembered() {
        let subscribers = Subscribers::new(Tid(5), Vec::new(), 0);
        let may_have_changed = |since| subscribers.may_have_changed(Tid(since), &[Oid(1)]);
        assert_eq!([4, 5, 6].map(may_have_changed), [None, Some(false), Some(true)]);
        let commit = Commit { tid: Tid(10), oids: vec![Oid(2)], number: NO_TRANSACTION };
        subscribers.announce(&[Arc::new(commit)].into());
        assert_eq!([9, 10, 11].map(may_have_changed), [None, Some(false), Some(true)]);
    }
}
