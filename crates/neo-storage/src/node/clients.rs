//! What clients ask, and what the end of a transaction means for those that wait.

use zodium_neo::messages::Pong;
use zodium_neo::{ErrorCode, Message, NodeId};
use zodium_types::{Oid, Tid};

use super::Node;
use crate::ConnectionId;
use crate::handling::{Handled, Refusal};
use crate::reads::DelayedRead;

impl Node {
    /// Handles a message of a client.
    pub(super) fn client_says(
        &mut self,
        from: (ConnectionId, u32),
        message: Message<'_>,
    ) -> Handled {
        if self.cluster.backup_tid().is_some() && is_for_writing(&message) {
            let text = "read-only access because the cluster is a backup";
            return Err(Refusal::answer(ErrorCode::ReadOnlyAccess, text));
        }
        let Node { links, cluster, commits, reading, .. } = self;
        match message {
            Message::Ping(_) => links.answer(from, Pong {}),
            Message::CloseClient(_) => {}
            Message::AskStoreObject(message) => {
                links.count().stores += 1;
                return commits.store_asked(links, cluster, from, message);
            }
            Message::AskCheckCurrentSerial(message) => {
                return commits.check_asked(links, cluster, from, &message);
            }
            Message::AskRelockObject(message) => {
                return commits.relock_asked(links, cluster, from, &message);
            }
            Message::AskStoreTransaction(message) => {
                return commits.store_transaction_asked(links, cluster, from, message);
            }
            Message::AskVoteTransaction(message) => {
                return commits.vote_asked(links, cluster, from, message.ttid);
            }
            Message::AbortTransaction(message) => {
                commits.check_owner(links, from.0, message.ttid)?;
                self.abort(message.ttid);
                self.transaction_finished(message.ttid, None);
            }
            Message::AskFinalTID(message) => {
                return commits.outcome_asked(links, cluster, from, message.ttid);
            }
            other => return reading.read_asked(links, cluster, commits, from, other),
        }
        Ok(())
    }

    /// A transaction is unlocked: reads see it.
    pub(crate) fn unlocked(&mut self, ttid: Tid) {
        self.links.count().commits += 1;
        let stored = self.commits.unlocked(ttid);
        self.reading.forget(stored);
        self.forget(ttid);
    }

    /// Gives a transaction up, unless it is locked.
    pub(crate) fn abort(&mut self, ttid: Tid) {
        if self.commits.abort(&mut self.links, ttid) {
            self.forget(ttid);
        }
    }

    /// Gives up the transactions of a client that are not locked.
    pub(super) fn abort_for(&mut self, client: NodeId) {
        self.commits.of_client(client).into_iter().for_each(|ttid| self.abort(ttid));
    }

    /// A client's connection has ended.
    pub(super) fn client_lost(&mut self, connection: ConnectionId) {
        self.commits.lost_with(connection).into_iter().for_each(|ttid| self.abort(ttid));
    }

    /// Goes on with all that a transaction kept waiting.
    fn forget(&mut self, ttid: Tid) {
        let Some(oids) = self.commits.forget(&mut self.links, ttid) else { return };
        self.commits.announce_replicated(&mut self.links, &self.cluster);
        self.read_delayed();
        self.lock_waiting(oids);
    }

    /// Has the requests that wait for objects try again.
    pub(super) fn lock_waiting(&mut self, oids: Vec<Oid>) {
        for oid in oids {
            self.commits.lock_waiting(&mut self.links, &self.cluster, oid);
            self.note_closed();
        }
    }

    /// Has delayed reads try again.
    pub(super) fn read_delayed(&mut self) {
        for DelayedRead { from, read } in self.reading.take_delayed() {
            let Node { links, cluster, commits, reading, .. } = self;
            if let Err(refusal) = reading.read_or_delay(links, cluster, commits, from, read) {
                links.refuse(from, "a read", &refusal);
                self.note_closed();
            }
        }
        self.check_next();
    }
}

/// Whether a message is for commits only.
fn is_for_writing(message: &Message<'_>) -> bool {
    matches!(
        message,
        Message::AskStoreObject(_)
            | Message::AskCheckCurrentSerial(_)
            | Message::AskRelockObject(_)
            | Message::AskStoreTransaction(_)
            | Message::AskVoteTransaction(_)
            | Message::AskFinalTID(_)
    )
}
