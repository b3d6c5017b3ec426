//! A storage on one worker: its sessions, and the notices that are handed to them in order.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Commit, Mailbox, Notice, Storage};
use zodium_net::Verdict;
use zodium_types::Tid;

use super::session::SessionHandle;
use super::statistics::Statistics;
use crate::codec::{CodecError, Encoding, encode_invalidation};

pub(crate) struct Hub {
    pub(crate) storage: Arc<Storage>,
    pub(crate) mailbox: Arc<dyn Mailbox>,
    inbox: RefCell<mpsc::UnboundedReceiver<Notice>>,
    pub(crate) statistics: Arc<Statistics>,
    /// The last transaction that the sessions here have been told of. What they are answered
    /// about "the last transaction" is this, never what the storage has got to since.
    told: Cell<Tid>,
    sessions: RefCell<BTreeMap<u64, SessionHandle>>,
    /// Sessions by the number of their vote.
    voting: RefCell<FxHashMap<TransactionNumber, u64>>,
}

impl Hub {
    pub(crate) fn new(
        storage: Arc<Storage>,
        mailbox: Arc<dyn Mailbox>,
        inbox: mpsc::UnboundedReceiver<Notice>,
        statistics: Arc<Statistics>,
        told: Tid,
    ) -> Hub {
        Hub {
            storage,
            mailbox,
            inbox: RefCell::new(inbox),
            statistics,
            told: Cell::new(told),
            sessions: RefCell::default(),
            voting: RefCell::default(),
        }
    }

    /// Handles notices for ever.
    pub(crate) async fn run(self: Rc<Self>) {
        while let Some(notice) =
            std::future::poll_fn(|context| self.inbox.borrow_mut().poll_recv(context)).await
        {
            self.handle(notice);
        }
    }

    /// Handles at once whatever any client can know of already.
    ///
    /// Called before requests are answered: a client that was told of a commit by another
    /// worker may have told the one who asks now, whose answer must not lag behind. No session
    /// may be borrowed by the caller.
    pub(crate) fn catch_up(&self) {
        if self.storage.announced_tid() <= self.told.get() {
            return;
        }
        let last = self.storage.last_tid();
        while self.told.get() < last {
            let notice = self.inbox.borrow_mut().try_recv();
            match notice {
                Ok(notice) => self.handle(notice),
                Err(_) => return,
            }
        }
    }

    pub(crate) fn told(&self) -> Tid {
        self.told.get()
    }

    /// From now on the session gets every commit.
    pub(crate) fn add(&self, number: u64, session: SessionHandle) {
        self.sessions.borrow_mut().insert(number, session);
        self.statistics.connections.add(1);
    }

    pub(crate) fn remove(&self, number: u64) {
        if self.sessions.borrow_mut().remove(&number).is_some() {
            self.statistics.connections.subtract(1);
        }
    }

    pub(crate) fn add_vote(&self, vote: TransactionNumber, session: u64) {
        self.voting.borrow_mut().insert(vote, session);
    }

    pub(crate) fn remove_vote(&self, vote: TransactionNumber) {
        self.voting.borrow_mut().remove(&vote);
    }

    fn handle(&self, notice: Notice) {
        match notice {
            Notice::Committed(commit) => self.announce(&commit),
            Notice::Granted(number) => {
                if let Some(session) = self.voter(number) {
                    session.granted(number);
                }
            }
            Notice::Failed(number, error) => {
                if let Some(session) = self.voter(number) {
                    self.remove_vote(number);
                    session.finish_failed(number, &error);
                }
            }
            Notice::Expired(number) => {
                if let Some(session) = self.voter(number) {
                    session.expired(number);
                }
            }
            Notice::Packed => {
                for session in self.sessions.borrow().values() {
                    session.send_info();
                }
            }
        }
    }

    fn announce(&self, commit: &Commit) {
        self.told.set(commit.tid);
        let committer = self.voting.borrow_mut().remove(&commit.number);
        let mut encoded = EncodedInvalidation::new(commit);
        for (number, session) in self.sessions.borrow().iter() {
            if Some(*number) == committer {
                session.finished(commit.number, commit.tid);
            } else {
                session.invalidate(&mut encoded);
            }
        }
    }

    fn voter(&self, number: TransactionNumber) -> Option<SessionHandle> {
        let session = self.voting.borrow().get(&number).copied()?;
        self.sessions.borrow().get(&session).cloned()
    }

    /// Ends a session whose transaction took too long.
    pub(crate) fn disconnect(&self, session: &SessionHandle) {
        session.link().close(Verdict::Refused);
    }
}

/// An invalidation message, encoded once for all sessions of an encoding.
pub(crate) struct EncodedInvalidation<'a> {
    commit: &'a Commit,
    pickle: Option<Result<Bytes, CodecError>>,
    msgpack: Option<Result<Bytes, CodecError>>,
}

impl<'a> EncodedInvalidation<'a> {
    fn new(commit: &'a Commit) -> EncodedInvalidation<'a> {
        EncodedInvalidation { commit, pickle: None, msgpack: None }
    }

    pub(crate) fn bytes(&mut self, encoding: Encoding) -> &Result<Bytes, CodecError> {
        let slot = match encoding {
            Encoding::Pickle => &mut self.pickle,
            Encoding::Msgpack => &mut self.msgpack,
        };
        let commit = self.commit;
        slot.get_or_insert_with(|| encode_invalidation(encoding, commit.tid, &commit.oids))
    }
}
