//! A worker's subscription to a storage: passes notices of the engine to its sessions, in order.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Commit, Database, Mailbox, Notice};
use zodium_net::{Blocking, CloseReason, Inbox, InboxSender, Link, Refusal, inbox};
use zodium_storage::StorageError;
use zodium_types::Tid;

use crate::cold_loads::{ColdLoads, cold_loads};
use crate::invalidations::{InvalidationMemory, Invalidations};
use crate::statistics::Statistics;
use crate::voting::VotingSessions;

/// Size of an output from which on invalidations are not deferred.
const DEFERRED_BYTES_MAX: usize = 16 << 10;

/// A session as its subscriber sees it. The subscriber wakes its link after a call.
pub(crate) trait Recipient {
    fn link(&self) -> &Link;

    /// Announces commits of other sessions: a range of a batch.
    fn invalidate(&self, messages: &mut Invalidations<'_>, range: Range<usize>);

    /// Its transaction has its locks.
    fn granted(&self, number: TransactionNumber);

    /// Its transaction is durable.
    fn finished(&self, number: TransactionNumber, tid: Tid);

    /// Its transaction could not be written.
    fn finish_failed(&self, number: TransactionNumber, error: &StorageError);

    /// Its transaction took too long: aborts it at once, since a client that does not read may stay
    /// connected. True if the subscriber is to disconnect it.
    fn expired(&self, number: TransactionNumber) -> bool;

    /// The size of the database has changed.
    fn send_info(&self);
}

/// The sending end of a subscriber's inbox, for the engine.
struct NoticeSender(InboxSender<Notice>);

impl Mailbox for NoticeSender {
    fn post(&self, notice: Notice) {
        self.0.send(notice);
    }
}

/// A mailbox, and the inbox of what is posted to it.
pub(crate) fn mailbox() -> (Arc<dyn Mailbox>, Inbox<Notice>) {
    let (sender, inbox) = inbox();
    (Arc::new(NoticeSender(sender)), inbox)
}

pub(crate) struct StorageSubscriber {
    pub(crate) storage: Arc<Database>,
    /// Answers loads that must wait together, if the storage gains by it.
    pub(crate) cold_loads: Option<Rc<ColdLoads>>,
    pub(crate) mailbox: Arc<dyn Mailbox>,
    inbox: Inbox<Notice>,
    pub(crate) statistics: Arc<Statistics>,
    /// The last transaction that was broadcast to the sessions of this worker.
    ///
    /// Sessions report this one as "the last transaction", never a later one of the storage.
    last_seen: Cell<Tid>,
    /// Whether commits are posted here: only to workers with sessions.
    is_subscribed: Cell<bool>,
    sessions: RefCell<BTreeMap<u64, Rc<dyn Recipient>>>,
    pub(crate) voting: VotingSessions,
    /// Least time between invalidations that are sent without an answer; zero: sent at once.
    notice_interval: Duration,
    /// When invalidations were last sent without an answer.
    noticed: Cell<Option<Instant>>,
    deferred: Notify,
    /// Memory for the invalidations of a batch.
    invalidations: RefCell<InvalidationMemory>,
}

impl StorageSubscriber {
    /// Creates a subscriber, which subscribes when it gets its first session.
    pub(crate) fn new(
        storage: Arc<Database>,
        statistics: Arc<Statistics>,
        notice_interval: Duration,
        blocking: &Rc<dyn Blocking>,
    ) -> StorageSubscriber {
        let (mailbox, inbox) = mailbox();
        StorageSubscriber {
            cold_loads: cold_loads(&storage, blocking),
            storage,
            mailbox,
            inbox,
            statistics,
            last_seen: Cell::new(Tid::ZERO),
            is_subscribed: Cell::new(false),
            sessions: RefCell::default(),
            voting: VotingSessions::default(),
            notice_interval,
            noticed: Cell::new(None),
            deferred: Notify::new(),
            invalidations: RefCell::default(),
        }
    }

    /// Handles notices; never ends.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            let notice = self.inbox.next().await;
            self.handle(notice);
        }
    }

    /// Sends deferred invalidations that have not left with an answer; never ends.
    ///
    /// A client that has sent requests since the last time gets them with its next answer, or the
    /// next time.
    pub(crate) async fn send_deferred(self: Rc<Self>) {
        loop {
            self.deferred.notified().await;
            tokio::time::sleep(self.notice_interval).await;
            self.noticed.set(Some(Instant::now()));
            for session in self.sessions.borrow().values() {
                let link = session.link();
                let is_active = link.takes_activity();
                if link.output().is_empty() {
                    continue;
                }
                if is_active {
                    self.deferred.notify_one();
                } else {
                    link.wake();
                }
            }
        }
    }

    /// Whether invalidations wait for further ones: many of them cost less together.
    fn is_soon(&self) -> bool {
        let now = Instant::now();
        let is_soon = |noticed| now.duration_since(noticed) < self.notice_interval;
        let is_soon = self.noticed.get().is_some_and(is_soon);
        if !is_soon {
            self.noticed.set(Some(now));
        }
        is_soon
    }

    /// Handles at once the notices of all commits that any client can know of.
    ///
    /// It is called before requests are answered. A client of another worker may have seen a commit
    /// and told this client of it, whose answer must then not lag behind. The caller must not
    /// borrow a part of a session.
    pub(crate) fn catch_up(&self) {
        if self.storage.subscribers().announced_tid() <= self.last_seen.get() {
            return;
        }
        let last = self.storage.last_tid();
        while self.last_seen.get() < last {
            if !self.handle_next() {
                return;
            }
        }
    }

    /// Handles at once all notices in the inbox.
    ///
    /// It is called before a job is answered, which may have posted some: a client that packs gets
    /// the new size before the answer. The caller must not borrow a session.
    pub(crate) fn drain_inbox(&self) {
        while self.handle_next() {}
    }

    /// Handles the next notice; false if there is none.
    fn handle_next(&self) -> bool {
        let notice = self.inbox.take();
        notice.map(|notice| self.handle(notice)).is_some()
    }

    /// Makes the subscriber current, for a session that is about to be added.
    ///
    /// Its client may know of later commits from another worker. With an older last transaction it
    /// would take this for a server that has lost them.
    pub(crate) fn attend(&self) {
        if self.is_subscribed.replace(true) {
            self.catch_up();
        } else {
            self.last_seen.set(self.storage.subscribers().add(Arc::clone(&self.mailbox)));
        }
    }

    pub(crate) fn last_seen(&self) -> Tid {
        self.last_seen.get()
    }

    /// Adds a session, which gets every commit after [`StorageSubscriber::last_seen`]. After
    /// [`StorageSubscriber::attend`], without a wait in between.
    pub(crate) fn add(&self, number: u64, session: Rc<dyn Recipient>) {
        self.sessions.borrow_mut().insert(number, session);
        self.statistics.connections.add(1);
    }

    pub(crate) fn remove(&self, number: u64) {
        if self.sessions.borrow_mut().remove(&number).is_some() {
            self.statistics.connections.subtract(1);
        }
        if self.sessions.borrow().is_empty() && self.is_subscribed.replace(false) {
            self.storage.subscribers().remove(&self.mailbox);
            // A later session must not get what was posted before.
            self.drain_inbox();
        }
    }

    fn handle(&self, notice: Notice) {
        match notice {
            Notice::Committed(commits) => self.broadcast(&commits),
            Notice::Granted(number) => {
                if let Some(session) = self.voter(number) {
                    session.granted(number);
                    session.link().wake();
                }
            }
            Notice::Failed(number, error) => {
                if let Some(session) = self.voter(number) {
                    session.finish_failed(number, &error);
                    session.link().wake();
                }
            }
            Notice::Expired(number) => {
                if let Some(session) = self.voter(number)
                    && session.expired(number)
                {
                    self.statistics.expired.add(1);
                    session.link().close(CloseReason::RefusedFor(Refusal::Locks));
                }
            }
            Notice::Packed => {
                for session in self.sessions.borrow().values() {
                    session.send_info();
                    session.link().wake();
                }
            }
        }
    }

    /// Sends the commits of a batch to every session.
    ///
    /// Each link is woken once for the batch. Links of sessions that only get invalidations may be
    /// woken later. Those of clients that send requests are, since an answer will take the
    /// invalidations along; all of them are if the last invalidations have just been sent.
    fn broadcast(&self, commits: &[Arc<Commit>]) {
        let Some(last) = commits.last() else { return };
        self.last_seen.set(last.tid);
        let mut memory = self.invalidations.take();
        let mut messages = memory.begin(commits, |commit| self.voting.session(commit.number));
        let defers = !self.notice_interval.is_zero();
        let is_soon = defers && self.is_soon();
        let mut is_deferred = false;
        for (number, session) in self.sessions.borrow().iter() {
            let own = messages.own_commit(*number);
            let before = own.unwrap_or(commits.len());
            session.invalidate(&mut messages, 0..before);
            if let Some(own) = own {
                session.finished(commits[own].number, commits[own].tid);
                session.invalidate(&mut messages, own + 1..commits.len());
            }
            let link = session.link();
            let may_wait = defers && own.is_none() && (is_soon || link.is_active());
            if may_wait && link.output().len() < DEFERRED_BYTES_MAX {
                link.defer();
                is_deferred = true;
            } else {
                link.wake();
            }
        }
        if is_deferred {
            self.deferred.notify_one();
        }
        memory.shrink();
        self.invalidations.replace(memory);
    }

    fn voter(&self, number: TransactionNumber) -> Option<Rc<dyn Recipient>> {
        let session = self.voting.session(number)?;
        self.sessions.borrow().get(&session).cloned()
    }
}

#[cfg(test)]
mod tests {
    use zodium_types::Oid;

    use super::*;
    use crate::testing::{commit, storage, subscriber};

    #[test]
    fn a_subscriber_handles_all_that_was_announced_at_once() {
        let storage = storage();
        commit(&storage, Oid(1));
        let subscriber = subscriber(&storage);
        subscriber.attend();
        let first = subscriber.last_seen();
        assert_eq!(first, storage.last_tid());
        for oids in [2..3, 3..6] {
            oids.for_each(|oid| commit(&storage, Oid(oid)));
            assert!(subscriber.last_seen() < storage.last_tid());
            subscriber.catch_up();
            assert_eq!(subscriber.last_seen(), storage.last_tid());
        }
        commit(&storage, Oid(6));
        commit(&storage, Oid(7));
        subscriber.drain_inbox();
        assert_eq!(subscriber.last_seen(), storage.last_tid());
    }

    #[test]
    fn invalidations_wait_for_further_ones_within_the_interval() {
        let waits = |interval| {
            let subscriber =
                StorageSubscriber { notice_interval: interval, ..subscriber(&storage()) };
            [(); 3].map(|()| subscriber.is_soon())
        };
        assert_eq!(waits(Duration::from_secs(3600)), [false, true, true]);
        assert_eq!(waits(Duration::ZERO), [false; 3]);
    }
}
