//! What the parts of a session share: the client's storage, its replies and its jobs.
//!
//! Key decision: a part of a session gets this handed in, and knows neither the session nor the
//! other parts, unless they are handed in too.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Semaphore;
use zodium_engine::Database;
use zodium_engine::commit::TransactionNumber;
use zodium_net::{Jobs, Link};
use zodium_pickle::Value;
use zodium_types::Memory;

use crate::exception::Exception;
use crate::replies::{Replies, Reply, ReplyTo};
use crate::statistics::{Statistics, Tally};
use crate::subscriber::StorageSubscriber;
use crate::voting::Vote;

/// A registered client.
pub(crate) struct Peer {
    pub(crate) subscriber: Rc<StorageSubscriber>,
    pub(crate) replies: Replies,
    pub(crate) jobs: Jobs,
    pub(crate) tally: Rc<Tally>,
    /// The number of the session.
    pub(crate) session: u64,
}

impl Peer {
    pub(crate) fn storage(&self) -> &Arc<Database> {
        &self.subscriber.storage
    }

    pub(crate) fn statistics(&self) -> &Arc<Statistics> {
        &self.subscriber.statistics
    }

    pub(crate) fn link(&self) -> &Link {
        self.replies.link()
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        self.link().memory()
    }

    /// Registers a vote, so that notices about it reach the session.
    pub(crate) fn add_vote(&self, number: TransactionNumber) -> Vote {
        self.subscriber.voting.add(number, self.session)
    }

    /// Answers from a blocking thread.
    pub(crate) fn ask(
        self: &Rc<Self>,
        to: &ReplyTo,
        question: impl FnOnce(&Database) -> Result<Value<'static>, Exception> + Send + 'static,
    ) -> Reply {
        let (storage, peer, to) = (Arc::clone(self.storage()), Rc::clone(self), to.clone());
        let job = move || question(&storage);
        self.jobs.spawn_answer(job, move |result| peer.replies.reply_result(&to, result));
        Reply::Later
    }

    /// As [`Peer::ask`], for questions that may read a whole file; each takes one of the `places`.
    pub(crate) fn search(
        self: &Rc<Self>,
        to: &ReplyTo,
        places: Arc<Semaphore>,
        question: impl FnOnce(&Database) -> Result<Value<'static>, Exception> + Send + 'static,
    ) -> Reply {
        let (storage, peer, to) = (Arc::clone(self.storage()), Rc::clone(self), to.clone());
        let gone = self.jobs.gone();
        let job = move || match gone.load(Ordering::Relaxed) {
            // The client went while it waited for a place.
            true => Ok(Value::None),
            false => question(&storage),
        };
        self.jobs.spawn_search(places, job, move |result| peer.replies.reply_result(&to, result));
        Reply::Later
    }
}
