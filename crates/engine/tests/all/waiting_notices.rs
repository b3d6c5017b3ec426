//! A commit is posted at once to the mailbox of its client, and patiently to all others, which are
//! reminded of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use zodium_disk::MemoryDisk;
use zodium_engine::{Check, Mailbox, Notice, VoteStart};
use zodium_storage::Access;
use zodium_types::{Oid, Tid};

use crate::support::{Session, start, transaction};

/// How often a mailbox is reminded until its worker has taken the notices.
const REMINDERS: usize = 3;
const LONG: Duration = Duration::from_secs(60);

/// A mailbox whose worker sleeps until it was reminded often enough.
#[derive(Default)]
struct Sleepy(Mutex<Calls>);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Calls {
    /// Commits that were posted at once.
    at_once: usize,
    /// Commits that were posted patiently.
    patiently: usize,
    /// Reminders that are still to come.
    reminders: usize,
}

impl Mailbox for Sleepy {
    fn post(&self, notice: Notice) {
        if let Notice::Committed(commits) = notice {
            self.0.lock().at_once += commits.len();
        }
    }

    fn post_patiently(&self, notice: Notice) -> bool {
        let Notice::Committed(commits) = notice else { unreachable!("commits alone may wait") };
        let mut calls = self.0.lock();
        calls.patiently += commits.len();
        calls.reminders = REMINDERS;
        true
    }

    fn remind(&self) -> Option<Duration> {
        let mut calls = self.0.lock();
        calls.reminders = calls.reminders.saturating_sub(1);
        (calls.reminders > 0).then_some(Duration::from_millis(1))
    }
}

impl Sleepy {
    /// What was called, once all reminders have come.
    fn calls(&self) -> Calls {
        let end = Instant::now() + LONG;
        while self.0.lock().reminders > 0 {
            assert!(Instant::now() < end, "no reminder came: {:?}", self.0.lock());
            std::thread::sleep(Duration::from_millis(1));
        }
        *self.0.lock()
    }
}

#[test]
fn other_mailboxes_are_reminded_of_a_commit() {
    let storage = start(MemoryDisk::new());
    let sleepy = Arc::new(Sleepy::default());
    storage.subscribe(Arc::clone(&sleepy) as _);
    let mut session = Session::new(&storage);
    // Again after the reminder had nothing to do.
    for commits in 1..=3 {
        session.store(&[(1, "data")]);
        assert_eq!(sleepy.calls(), Calls { patiently: commits, ..Calls::default() });
    }
    storage.close().unwrap();
}

#[test]
fn the_mailbox_of_a_committing_client_is_told_at_once() {
    let storage = start(MemoryDisk::new());
    let mut session = Session::new(&storage);
    let sleepy = Arc::new(Sleepy::default());
    let mailbox: Arc<dyn Mailbox> = Arc::<Sleepy>::clone(&sleepy);
    storage.subscribe(Arc::clone(&mailbox));
    let mut transaction = transaction();
    transaction.store(Oid(1), Tid::ZERO, Bytes::from_static(b"data"));
    let (number, vote) = storage.begin_vote(&transaction, &mailbox).unwrap();
    assert_eq!(vote, VoteStart::Granted);
    let Check::Voted(voted) = storage.check(number, &transaction, Access::Blocking).unwrap() else {
        panic!("nothing is in conflict with it")
    };
    storage.finish(number, voted).unwrap();
    // The session is told of it too, if later.
    assert!(session.next().tid_of(number).is_some());
    assert_eq!(sleepy.calls(), Calls { at_once: 1, ..Calls::default() });
    storage.close().unwrap();
}

#[test]
fn a_mailbox_that_was_removed_is_told_nothing() {
    let storage = start(MemoryDisk::new());
    let (first, second) = (Arc::new(Sleepy::default()), Arc::new(Sleepy::default()));
    let mailboxes: [Arc<dyn Mailbox>; 2] =
        [Arc::<Sleepy>::clone(&first), Arc::<Sleepy>::clone(&second)];
    for mailbox in &mailboxes {
        storage.subscribe(Arc::clone(mailbox));
    }
    let mut session = Session::new(&storage);
    session.store(&[(1, "data")]);
    assert_eq!(first.calls().patiently, 1);
    storage.unsubscribe(&mailboxes[0]);
    let last = session.store(&[(2, "data")]);
    assert_eq!((first.calls().patiently, second.calls().patiently), (1, 2));
    assert_eq!(storage.subscribe(Arc::clone(&mailboxes[0])), last);
    storage.close().unwrap();
}
