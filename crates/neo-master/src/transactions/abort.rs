//! The abort of transactions, by clients and by their end.

use zodium_neo::messages::{AbortTransaction, AnswerFinalTID};
use zodium_neo::{ConnectionId, NodeId};
use zodium_types::Tid;

use super::Waiting;
use crate::Master;
use crate::handling::Handled;

impl Master {
    /// A client aborts a transaction. It names the storages that may know of it.
    pub(crate) fn abort(&mut self, client: NodeId, message: AbortTransaction) -> Handled {
        let AbortTransaction { ttid, nodes } = message;
        if self.transactions.all.contains_key(&ttid) {
            self.transaction_of(client, ttid)?;
            self.abort_at(ttid, nodes);
        }
        Ok(())
    }

    /// Forgets a transaction, and has storages drop it.
    pub(super) fn abort_at(&mut self, ttid: Tid, mut storages: Vec<NodeId>) {
        let Some(transaction) = self.transactions.remove(ttid) else { return };
        // Some may have come after the client began to abort.
        storages.extend(transaction.waiting_storages());
        for waiting in &transaction.waiting {
            if let Waiting::Client { connection, request } = *waiting {
                self.links.answer(connection, request, AnswerFinalTID { tid: None });
            }
        }
        storages.sort_unstable();
        storages.dedup();
        for storage in storages {
            if self.readiness.is_started(storage)
                && let Some(connection) = self.cluster.members.connection_of(storage)
            {
                self.links.notify(connection, AbortTransaction { ttid, nodes: Vec::new() });
            }
        }
        self.retry_delayed();
    }

    /// A client has left: what it asked to commit is committed, and the rest aborted.
    pub(crate) fn client_left(&mut self, client: NodeId, connection: ConnectionId) {
        self.transactions.delayed.retain(|delayed| delayed.connection != connection);
        let mut aborted = Vec::new();
        for (ttid, transaction) in &mut self.transactions.all {
            transaction.waiting.retain(|waiting| {
                let Waiting::Client { connection: other, .. } = waiting else { return true };
                *other != connection
            });
            if transaction.client == Some(client) {
                match transaction.commit {
                    Some(_) => transaction.client = None,
                    None => aborted.push(*ttid),
                }
            }
        }
        // Its storages notice the end of the client themselves.
        for ttid in aborted {
            self.abort_at(ttid, Vec::new());
        }
    }
}
