//! Moves data of large transactions to spools, off the node's thread.

use tracing::warn;
use zodium_types::Tid;

use crate::Node;
use crate::database::ReadResult;
use crate::peer;
use crate::transactions::{Moved, Vote};

impl Node {
    /// Begins to move the data of a transaction to its spool, when more than the limit are in
    /// memory.
    pub(super) fn move_data(&mut self, ttid: Tid) {
        let bytes_max = self.settings.transaction_bytes_max;
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
        self.read(
            move |database| moving.run(database),
            move |node, moved| node.data_moved(ttid, number, moved),
        );
    }

    fn data_moved(&mut self, ttid: Tid, number: u64, moved: ReadResult<Moved>) {
        let Some(transaction) = self.transactions.all.get_mut(&ttid) else { return };
        let moved = match moved {
            Ok(moved) => moved,
            Err(error) => {
                let client = transaction.client;
                warn!(%ttid, %error, "cannot keep a large transaction, giving it up");
                self.abort(ttid);
                if let Some(connection) = peer::client(&self.peers, client) {
                    self.read_failed(connection, &error);
                }
                return;
            }
        };
        // Otherwise another transaction has the ttid by now.
        let Some(delayed) = transaction.unvoted.end(number) else { return };
        if transaction.vote == Vote::No {
            transaction.end_move(moved);
        }
        for request in delayed {
            // The object of a request that waits is in a partition.
            let _ = self.store(request);
        }
    }
}
