//! The begin of transactions, and votes with storages that failed.

use zodium_neo::messages::{AnswerBeginTransaction, Error as ErrorMessage, FailedVote};
use zodium_neo::{ConnectionId, ErrorCode, NodeId};
use zodium_types::Tid;

use super::{Delayed, DelayedRequest, Transaction};
use crate::Master;
use crate::handling::{Handled, Refusal};

const NOT_ALONE: &str = "There can't be concurrent transactions when a TID is specified for any \
                         of them.";

/// Whether a request was carried out, or has to wait.
enum Progress {
    Done,
    Waits,
}

impl Master {
    /// A client begins a transaction. It waits while a storage starts: whether that one gets the
    /// transaction in full is not known then.
    pub(crate) fn begin(
        &mut self,
        connection: ConnectionId,
        request: u32,
        client: NodeId,
        tid: Option<Tid>,
    ) -> Handled {
        self.attempt(Delayed { connection, client, request, what: DelayedRequest::Begin(tid) })
    }

    /// A client could not store everything on every storage.
    pub(crate) fn failed_vote(
        &mut self,
        connection: ConnectionId,
        request: u32,
        client: NodeId,
        message: FailedVote,
    ) -> Handled {
        self.attempt(Delayed { connection, client, request, what: DelayedRequest::Vote(message) })
    }

    fn attempt(&mut self, delayed: Delayed) -> Handled {
        if let Progress::Waits = self.try_now(&delayed)? {
            self.transactions.delayed.push_back(delayed);
        }
        Ok(())
    }

    fn try_now(&mut self, delayed: &Delayed) -> Result<Progress, Refusal> {
        let Delayed { connection, client, request, what } = delayed;
        match what {
            DelayedRequest::Begin(tid) => self.try_begin(*connection, *request, *client, *tid),
            DelayedRequest::Vote(message) => self.try_vote(*connection, *request, *client, message),
        }
    }

    /// Carries out what has waited, if it can be now.
    pub(crate) fn retry_delayed(&mut self) {
        for delayed in std::mem::take(&mut self.transactions.delayed) {
            if self.cluster.members.connection_of(delayed.client) != Some(delayed.connection) {
                // It has left meanwhile.
                continue;
            }
            match self.try_now(&delayed) {
                Ok(Progress::Done) => {}
                Ok(Progress::Waits) => self.transactions.delayed.push_back(delayed),
                Err(refusal) => {
                    let name = match delayed.what {
                        DelayedRequest::Begin(_) => "AskBeginTransaction",
                        DelayedRequest::Vote(_) => "FailedVote",
                    };
                    self.links.refuse(delayed.connection, delayed.request, name, &refusal);
                    self.handle_lost();
                }
            }
        }
    }

    fn try_begin(
        &mut self,
        connection: ConnectionId,
        request: u32,
        client: NodeId,
        tid: Option<Tid>,
    ) -> Result<Progress, Refusal> {
        if !self.readiness.is_settled() {
            return Ok(Progress::Waits);
        }
        let transactions = &mut self.transactions;
        let ttid = match tid {
            None => {
                // One that has brought its tid, and is not being finished.
                let is_alone = transactions.all.len() == 1 && transactions.queue.len() == 1;
                if is_alone && transactions.all.values().all(|one| one.commit.is_none()) {
                    return Err(Refusal::protocol(NOT_ALONE));
                }
                transactions.tids.next(self.cluster.clock.tid())
            }
            Some(_) if !transactions.all.is_empty() => {
                return Err(Refusal::protocol(NOT_ALONE));
            }
            Some(tid) if tid <= self.cluster.last_tid => {
                return Err(Refusal::protocol(
                    "new TID must be greater than the last committed one",
                ));
            }
            Some(tid) if tid >= Tid::MAX => {
                return Err(Refusal::protocol("a TID that leaves no later ones"));
            }
            Some(tid) => {
                transactions.tids.note(tid);
                transactions.queue.push_back(tid);
                tid
            }
        };
        let readiness = self.readiness.count();
        let transaction = Transaction {
            client: Some(client),
            readiness,
            failed: Vec::new(),
            waiting: Vec::new(),
            commit: None,
        };
        transactions.all.insert(ttid, transaction);
        self.links.answer(connection, request, AnswerBeginTransaction { ttid });
        Ok(Progress::Done)
    }

    fn try_vote(
        &mut self,
        connection: ConnectionId,
        request: u32,
        client: NodeId,
        message: &FailedVote,
    ) -> Result<Progress, Refusal> {
        let ttid = message.ttid;
        let transaction = self.transaction_of(client, ttid)?;
        // The client does not know which storages do not get it in full anyway.
        let readiness = transaction.readiness;
        let failed: Vec<_> = message
            .failed
            .iter()
            .filter(|storage| self.readiness.was_ready(**storage, readiness))
            .copied()
            .collect();
        let mut code = ErrorCode::Ack;
        if !failed.is_empty() {
            let others = self.transactions.all.values().flat_map(|one| &one.failed);
            let all: Vec<_> = others.chain(&failed).copied().collect();
            if !self.cluster.is_operational_without(&failed) {
                code = ErrorCode::IncompleteTransaction;
            } else if !self.cluster.is_operational_without(&all) {
                // Unless others are aborted, this one cannot be finished.
                return Ok(Progress::Waits);
            } else if let Some(transaction) = self.transactions.all.get_mut(&ttid) {
                transaction.failed = failed;
            }
        }
        self.links.answer(connection, request, ErrorMessage { code, message: "" });
        Ok(Progress::Done)
    }

    /// A transaction of a client that is not being finished.
    pub(super) fn transaction_of(
        &self,
        client: NodeId,
        ttid: Tid,
    ) -> Result<&Transaction, Refusal> {
        let transaction = self.transactions.all.get(&ttid);
        let transaction = transaction.filter(|one| one.client == Some(client));
        let transaction =
            transaction.ok_or_else(|| Refusal::protocol(format!("unknown ttid {ttid}")))?;
        if transaction.commit.is_some() {
            return Err(Refusal::protocol(format!("commit already requested for ttid {ttid}")));
        }
        Ok(transaction)
    }
}
