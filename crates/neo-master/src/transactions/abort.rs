//! The abort of transactions, by clients and by their end.

use zodium_neo::messages::{AbortTransaction, AnswerFinalTID};
use zodium_neo::{ConnectionId, NodeId};
use zodium_types::Tid;

use super::{Transactions, Waiting};
use crate::cluster::Cluster;
use crate::peer::Links;

impl Transactions {
    /// Forgets a transaction, and has storages drop it; whether there was one.
    pub(crate) fn abort(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        ttid: Tid,
        mut storages: Vec<NodeId>,
    ) -> bool {
        let Some(transaction) = self.remove(ttid) else { return false };
        // Some may have come after the client began to abort.
        storages.extend(transaction.waiting_storages());
        for waiting in &transaction.waiting {
            if let Waiting::Client(request) = *waiting {
                links.answer(request, AnswerFinalTID { tid: None });
            }
        }
        storages.sort_unstable();
        storages.dedup();
        for storage in storages {
            if cluster.readiness.is_started(storage)
                && let Some(connection) = cluster.members.connection_of(storage)
            {
                links.notify(connection, AbortTransaction { ttid, nodes: Vec::new() });
            }
        }
        true
    }

    /// A client has left: what it asked to commit is committed. Gives the others of its
    /// transactions, which are to be aborted.
    pub(crate) fn client_left(&mut self, client: NodeId, connection: ConnectionId) -> Vec<Tid> {
        self.delayed.retain(|delayed| delayed.request.connection != connection);
        let mut aborted = Vec::new();
        for (ttid, transaction) in &mut self.all {
            transaction.waiting.retain(|waiting| {
                let Waiting::Client(request) = waiting else { return true };
                request.connection != connection
            });
            if transaction.client == Some(client) {
                match transaction.commit {
                    Some(_) => transaction.client = None,
                    None => aborted.push(*ttid),
                }
            }
        }
        aborted
    }
}
