//! The begin of transactions, and votes with storages that failed.

use std::collections::VecDeque;

use zodium_neo::messages::{AnswerBeginTransaction, Error as ErrorMessage, FailedVote};
use zodium_neo::{ErrorCode, NodeId};
use zodium_types::Tid;

use super::{Audience, BROUGHT_MAX, Delayed, DelayedRequest, Transaction, Transactions};
use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::peer::Links;

const NOT_ALONE: &str = "There can't be concurrent transactions when a TID is specified for any \
                         of them.";
const NO_MORE_TIDS: &str = "the cluster has no more TIDs: its last transaction is thousands of \
                            years in the future";

/// Whether a request was carried out, or has to wait.
enum Progress {
    Done,
    Waits,
}

impl Transactions {
    /// Carries out a request, or has it wait.
    ///
    /// A begin waits while a storage starts: whether that one gets the transaction in full is not
    /// known then.
    pub(crate) fn attempt(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        delayed: Delayed,
    ) -> Handled {
        if let Progress::Waits = self.try_now(cluster, links, &delayed)? {
            self.delayed.push_back(delayed);
        }
        Ok(())
    }

    /// Whether requests wait.
    pub(crate) fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Takes the requests that have waited: they are to be retried, in this order.
    pub(crate) fn take_delayed(&mut self) -> VecDeque<Delayed> {
        std::mem::take(&mut self.delayed)
    }

    /// Carries out a request that has waited, has it wait again, or refuses it.
    pub(crate) fn retry(&mut self, cluster: &Cluster, links: &mut Links, delayed: Delayed) {
        let request = delayed.request;
        if cluster.members.connection_of(delayed.client) != Some(request.connection) {
            // Its client has left meanwhile.
            return;
        }
        let name = match delayed.what {
            DelayedRequest::Begin(_) => "AskBeginTransaction",
            DelayedRequest::Vote(_) => "FailedVote",
        };
        if let Err(refusal) = self.attempt(cluster, links, delayed) {
            links.refuse(request, name, &refusal);
        }
    }

    fn try_now(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        delayed: &Delayed,
    ) -> Result<Progress, Refusal> {
        let Delayed { request, client, what } = delayed;
        match what {
            DelayedRequest::Begin(tid) => {
                if !cluster.readiness.is_settled() {
                    return Ok(Progress::Waits);
                }
                let ttid = self.begin(cluster, *client, *tid)?;
                links.answer(*request, AnswerBeginTransaction { ttid });
            }
            DelayedRequest::Vote(message) => {
                let Some(code) = self.vote(cluster, *client, message)? else {
                    return Ok(Progress::Waits);
                };
                links.answer(*request, ErrorMessage { code, message: "" });
            }
        }
        Ok(Progress::Done)
    }

    /// Begins a transaction. Gives its ttid.
    fn begin(
        &mut self,
        cluster: &Cluster,
        client: NodeId,
        tid: Option<Tid>,
    ) -> Result<Tid, Refusal> {
        let ttid = match tid {
            None => {
                // One that has brought its tid, and is not being finished.
                let is_alone = self.all.len() == 1 && self.queue.len() == 1;
                if is_alone && self.all.values().all(|one| one.commit.is_none()) {
                    return Err(Refusal::protocol(NOT_ALONE));
                }
                let next = self.tids.next(cluster.clock.tid());
                next.ok_or_else(|| Refusal::answer(ErrorCode::Denied, NO_MORE_TIDS))?
            }
            Some(_) if !self.all.is_empty() => {
                return Err(Refusal::protocol(NOT_ALONE));
            }
            Some(tid) if tid <= cluster.last_tid => {
                return Err(Refusal::protocol(
                    "new TID must be greater than the last committed one",
                ));
            }
            Some(tid) if tid.0 > BROUGHT_MAX => {
                return Err(Refusal::protocol("a TID that leaves too few later ones"));
            }
            Some(tid) => {
                self.tids.note(tid);
                self.queue.push_back(tid);
                tid
            }
        };
        let transaction = Transaction {
            client: Some(client),
            audience: Audience::of(cluster),
            failed: Vec::new(),
            waiting: Vec::new(),
            commit: None,
        };
        self.all.insert(ttid, transaction);
        Ok(ttid)
    }

    /// A client could not store everything on every storage. Gives what it is answered; `None`
    /// while it has to wait for other transactions.
    fn vote(
        &mut self,
        cluster: &Cluster,
        client: NodeId,
        message: &FailedVote,
    ) -> Result<Option<ErrorCode>, Refusal> {
        let ttid = message.ttid;
        // The client does not know which storages do not get it in full anyway.
        let audience = self.transaction_of(client, ttid)?.audience;
        let failed = message.failed.iter().filter(|one| audience.has_storage(cluster, **one));
        let failed: Vec<_> = failed.copied().collect();
        if failed.is_empty() {
            return Ok(Some(ErrorCode::Ack));
        }
        let others = self.all.values().flat_map(|one| &one.failed);
        let all: Vec<_> = others.chain(&failed).copied().collect();
        if !cluster.is_operational_without(&failed) {
            return Ok(Some(ErrorCode::IncompleteTransaction));
        }
        if !cluster.is_operational_without(&all) {
            // Unless others are aborted, this one cannot be finished.
            return Ok(None);
        }
        if let Some(transaction) = self.all.get_mut(&ttid) {
            transaction.failed = failed;
        }
        Ok(Some(ErrorCode::Ack))
    }

    /// A transaction of a client that is not being finished.
    pub(crate) fn transaction_of(
        &self,
        client: NodeId,
        ttid: Tid,
    ) -> Result<&Transaction, Refusal> {
        let transaction = self.all.get(&ttid);
        let transaction = transaction.filter(|one| one.client == Some(client));
        let transaction =
            transaction.ok_or_else(|| Refusal::protocol(format!("unknown ttid {ttid}")))?;
        if transaction.commit.is_some() {
            return Err(Refusal::protocol(format!("commit already requested for ttid {ttid}")));
        }
        Ok(transaction)
    }
}
