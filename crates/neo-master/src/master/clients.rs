//! What clients say.

use tracing::info;
use zodium_neo::messages::{
    AbortTransaction, AnswerNewOIDs, AskFinishTransaction, Error as ErrorMessage,
};
use zodium_neo::{ConnectionId, ErrorCode, Message, NodeId, NodeState, Request};
use zodium_types::Tid;

use super::Master;
use crate::handling::{Handled, Refusal};
use crate::transactions::{Delayed, DelayedRequest};

/// Most oids that a client gets at once. NEO's clients ask for 100.
const NEW_OIDS_MAX: u32 = 1 << 20;
const NO_MORE_OIDS: &str = "the cluster has no more new oids: an object has one of the last oids";
const READ_ONLY: &str = "read-only access as requested by the client";

impl Master {
    /// Handles a message of a client.
    pub(super) fn client_says(
        &mut self,
        from: Request,
        client: NodeId,
        message: Message<'_>,
    ) -> Handled {
        if writes(&message)
            && self.cluster.members.get(client).is_some_and(|node| node.about.is_read_only)
        {
            let (code, message) = (ErrorCode::ReadOnlyAccess, READ_ONLY);
            self.links.answer(from, ErrorMessage { code, message });
            return Ok(());
        }
        if self.backup.client_says(&self.cluster, &mut self.links, from, &message) {
            return Ok(());
        }
        match message {
            Message::AskFinishTransaction(message) => {
                return self.finish(from, client, message);
            }
            Message::AskBeginTransaction(message) => {
                let what = DelayedRequest::Begin(message.tid);
                return self.attempt(Delayed { request: from, client, what });
            }
            Message::FailedVote(message) => {
                let what = DelayedRequest::Vote(message);
                return self.attempt(Delayed { request: from, client, what });
            }
            Message::AbortTransaction(AbortTransaction { ttid, nodes }) => {
                if self.transactions.contains(ttid) {
                    self.transactions.transaction_of(client, ttid)?;
                    self.abort(ttid, nodes);
                }
            }
            Message::AskNewOIDs(message) => self.new_oids(from, message.count)?,
            Message::AskFinalTID(message) => {
                let Master { cluster, links, transactions, .. } = self;
                transactions.final_tid(cluster, links, from, message.ttid);
            }
            Message::AskPackOrders(message) => {
                self.packs.tell_orders(&self.cluster, &mut self.links, from, message.id, false);
            }
            Message::WaitForPack(message) => self.packs.wait(&mut self.links, from, message.id),
            other => return self.any_says(from, &other),
        }
        Ok(())
    }

    fn new_oids(&mut self, request: Request, count: u32) -> Handled {
        if count > NEW_OIDS_MAX {
            return Err(Refusal::protocol(format!(
                "{count} new oids at once, more than {NEW_OIDS_MAX}"
            )));
        }
        let oids = self.transactions.new_oids(count);
        let oids = oids.ok_or_else(|| Refusal::answer(ErrorCode::Denied, NO_MORE_OIDS))?;
        self.links.answer(request, AnswerNewOIDs { oids });
        Ok(())
    }

    /// Carries out a request now, or when it can be.
    fn attempt(&mut self, delayed: Delayed) -> Handled {
        let Master { cluster, links, transactions, .. } = self;
        let others_wait = transactions.has_delayed();
        transactions.attempt(cluster, links, delayed)?;
        if transactions.has_delayed() && !others_wait {
            for storage in cluster.readiness.starting() {
                info!(%storage, "transactions begin when this storage is ready");
            }
        }
        Ok(())
    }

    /// Carries out what has waited, if it can be now.
    pub(super) fn retry_delayed(&mut self) {
        for delayed in self.transactions.take_delayed() {
            let Master { cluster, links, transactions, .. } = self;
            transactions.retry(cluster, links, delayed);
            self.handle_lost();
        }
    }

    /// A client asks to commit a transaction that is voted.
    fn finish(
        &mut self,
        request: Request,
        client: NodeId,
        message: AskFinishTransaction,
    ) -> Handled {
        let ttid = message.ttid;
        let finish = self.transactions.finish(&self.cluster, request, client, message)?;
        if !finish.is_complete(&self.cluster) {
            self.give_up(request, ttid);
            return Ok(());
        }
        for storage in finish.to_disconnect(&self.cluster) {
            if let Some(connection) = self.cluster.members.connection_of(storage) {
                self.close(connection);
            }
        }
        if self.stops.is_some() || !self.transactions.contains(ttid) {
            return Ok(());
        }
        let Master { cluster, links, packs, transactions, .. } = self;
        if !transactions.lock(cluster, links, packs, finish) {
            self.give_up(request, ttid);
        }
        Ok(())
    }

    /// Too many storages failed: the transaction is aborted everywhere.
    fn give_up(&mut self, request: Request, ttid: Tid) {
        let code = ErrorCode::IncompleteTransaction;
        self.links.answer(request, ErrorMessage { code, message: "" });
        self.abort(ttid, self.cluster.readiness.ready());
    }

    /// Aborts a transaction; others may go on then.
    pub(super) fn abort(&mut self, ttid: Tid, storages: Vec<NodeId>) {
        let Master { cluster, links, transactions, .. } = self;
        if transactions.abort(cluster, links, ttid, storages) {
            self.retry_delayed();
        }
    }

    /// Commits what can be; others may go on then.
    pub(super) fn commit_locked(&mut self) {
        let Master { cluster, links, packs, transactions, .. } = self;
        if transactions.commit_locked(cluster, links, packs) {
            self.retry_delayed();
        }
    }

    /// The connection of a client has ended.
    pub(super) fn client_lost(&mut self, connection: ConnectionId, client: NodeId) {
        self.packs.left(&self.cluster, &mut self.links, connection);
        // Its storages notice the end of the client themselves.
        for ttid in self.transactions.client_left(client, connection) {
            self.abort(ttid, Vec::new());
        }
        if let Some(node) = self.cluster.members.get_mut(client) {
            (node.state, node.connection) = (NodeState::Unknown, None);
            self.cluster.tell_node(&mut self.links, client);
            self.cluster.members.remove(client);
        }
    }
}

/// Whether a client that only reads may not send this.
fn writes(message: &Message<'_>) -> bool {
    matches!(
        message,
        Message::AskBeginTransaction(_)
            | Message::AskNewOIDs(_)
            | Message::AskFinishTransaction(_)
            | Message::AskFinalTID(_)
            | Message::FailedVote(_)
            | Message::AbortTransaction(_)
    )
}
