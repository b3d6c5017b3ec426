//! Moves data of large transactions to spools, off the node's thread.

use tracing::warn;
use zodium_types::Tid;

use super::Commits;
use super::transactions::{Moved, Vote};
use crate::Node;
use crate::cluster::Cluster;
use crate::database::ReadResult;
use crate::links::Links;

impl Commits {
    /// Begins to move the data of a transaction to its spool, when more than the limit are in
    /// memory.
    pub(super) fn move_data(&mut self, links: &mut Links, cluster: &Cluster, ttid: Tid) {
        let bytes_max = cluster.settings().transaction_bytes_max;
        let transaction = self.transactions.all.get(&ttid);
        let is_full = transaction.is_some_and(|transaction| {
            transaction.vote == Vote::No && transaction.unvoted.is_full(bytes_max)
        });
        if !is_full {
            return;
        }
        let number = self.transactions.number();
        let Some(transaction) = self.transactions.all.get_mut(&ttid) else { return };
        let moving = transaction.begin_move(number);
        links.read(
            move |database| moving.run(database),
            move |node, moved| data_moved(node, ttid, number, moved),
        );
    }

    /// Goes on with the stores of a transaction whose data are in the spool.
    fn data_moved(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        ttid: Tid,
        number: u64,
        moved: Moved,
    ) {
        let Some(transaction) = self.transactions.all.get_mut(&ttid) else { return };
        // Otherwise another transaction has the ttid by now.
        let Some(delayed) = transaction.unvoted.end(number) else { return };
        if transaction.vote == Vote::No {
            transaction.end_move(moved);
        }
        for request in delayed {
            // The object of a request that waits is in a partition.
            let _ = self.store(links, cluster, request);
        }
    }
}

/// Goes on when data were moved, or could not be.
fn data_moved(node: &mut Node, ttid: Tid, number: u64, moved: ReadResult<Moved>) {
    let Node { links, cluster, commits, .. } = node;
    let error = match moved {
        Ok(moved) => return commits.data_moved(links, cluster, ttid, number, moved),
        Err(error) => error,
    };
    let Some(transaction) = commits.transactions.all.get(&ttid) else { return };
    let client = transaction.client;
    warn!(%ttid, %error, "cannot keep a large transaction, giving it up");
    node.abort(ttid);
    if let Some(connection) = node.links.client(client) {
        node.links.read_failed(connection, &error);
    }
}
