//! Clients of a backup cluster: they read what is complete.

use zodium_neo::messages::{AnswerLastTransaction, Error as ErrorMessage};
use zodium_neo::{ConnectionId, ErrorCode, Message};

use crate::Master;

const READ_ONLY: &str = "read-only access because cluster is in backuping mode";

impl Master {
    /// Answers a client, if the answer of a backup cluster is another one; whether it is.
    pub(crate) fn backup_client_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: &Message<'_>,
    ) -> bool {
        match message {
            // Some readable cells may lack what is later.
            Message::AskLastTransaction(_) => {
                let tid = self.common_backup_tid().unwrap_or_default();
                self.links.answer(connection, id, AnswerLastTransaction { tid });
            }
            Message::AskLastIDs(_) => {
                let code = ErrorCode::ReadOnlyAccess;
                self.links.answer(connection, id, ErrorMessage { code, message: READ_ONLY });
            }
            _ => return false,
        }
        true
    }
}
