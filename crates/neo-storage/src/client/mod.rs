//! What clients ask: a file for each subject.

mod commits;
mod holding;
mod reads;
mod spooling;
mod stores;
mod undo;

use zodium_neo::messages::Pong;
use zodium_neo::{ErrorCode, Message};

pub(crate) use self::stores::checked_data;
use crate::handling::{Handled, Refusal};
use crate::master::unexpected;
use crate::{ConnectionId, Node};

impl Node {
    /// Handles a message of a client.
    pub(crate) fn client_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        let from = (connection, id);
        if self.backup_tid.is_some() && is_for_writing(&message) {
            let text = "read-only access because the cluster is a backup";
            return Err(Refusal::answer(ErrorCode::ReadOnlyAccess, text));
        }
        match message {
            Message::Ping(_) => self.answer(connection, id, Pong {}),
            Message::CloseClient(_) => {}
            Message::AskStoreObject(message) => {
                self.counts.stores += 1;
                return self.store_asked(from, message);
            }
            Message::AskCheckCurrentSerial(message) => return self.check_asked(from, &message),
            Message::AskRelockObject(message) => self.relock_asked(from, &message),
            Message::AskStoreTransaction(message) => {
                return self.store_transaction_asked(from, message);
            }
            Message::AskVoteTransaction(message) => return self.vote_asked(from, message.ttid),
            Message::AbortTransaction(message) => {
                self.abort(message.ttid);
                self.transaction_finished(message.ttid, None);
            }
            Message::AskFinalTID(message) => return self.outcome_asked(from, message.ttid),
            other => return self.read_asked(from, other),
        }
        Ok(())
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

/// Refuses what a client may not send.
fn refused(message: &Message<'_>) -> Handled {
    Err(unexpected(message))
}
