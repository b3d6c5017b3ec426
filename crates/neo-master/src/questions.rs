//! Questions that every node may ask the primary master.

use zodium_neo::messages::{
    AnswerClusterState, AnswerLastIDs, AnswerLastTransaction, AnswerRecovery, Pong,
};
use zodium_neo::{ConnectionId, Message};

use crate::Master;
use crate::handling::{Handled, Refusal};

impl Master {
    /// Handles a message that any node may send.
    pub(crate) fn any_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: &Message<'_>,
    ) -> Handled {
        match message {
            Message::Ping(_) => self.links.answer(connection, id, Pong {}),
            Message::FlushLog(_) | Message::Pong(_) => {}
            Message::AskClusterState(_) => {
                self.links.answer(
                    connection,
                    id,
                    AnswerClusterState { state: Some(self.cluster.state()) },
                );
            }
            Message::AskRecovery(_) => {
                let (table, truncate_tid) = (self.cluster.table.id(), self.recovery.truncate_tid());
                let backup_tid = self.backup.tid(&self.cluster.table);
                let answer = AnswerRecovery { table, backup_tid, truncate_tid };
                self.links.answer(connection, id, answer);
            }
            Message::AskLastIDs(_) => {
                let answer = AnswerLastIDs {
                    last_tid: Some(self.transactions.last_tid(self.cluster.last_tid)),
                    last_oid: Some(self.transactions.last_oid()),
                    first_tid: self.transactions.first_tid(),
                };
                self.links.answer(connection, id, answer);
            }
            Message::AskLastTransaction(_) => {
                self.links.answer(
                    connection,
                    id,
                    AnswerLastTransaction { tid: self.cluster.last_tid },
                );
            }
            other => return Err(Refusal::unexpected(other)),
        }
        Ok(())
    }
}
