//! Clients of a backup cluster: they read what is complete.

use zodium_neo::messages::{AnswerLastTransaction, Error as ErrorMessage};
use zodium_neo::{ErrorCode, Message, Request};

use super::Backup;
use crate::cluster::Cluster;
use crate::peer::Links;

const READ_ONLY: &str = "read-only access because cluster is in backuping mode";

impl Backup {
    /// Answers a client, if the answer of a backup cluster is another one; whether it is.
    pub(crate) fn client_says(
        &self,
        cluster: &Cluster,
        links: &mut Links,
        request: Request,
        message: &Message<'_>,
    ) -> bool {
        if !self.is_there() {
            return false;
        }
        match message {
            // Some readable cells may lack what is later.
            Message::AskLastTransaction(_) => {
                let tid = self.common_tid(&cluster.table).unwrap_or_default();
                links.answer(request, AnswerLastTransaction { tid });
            }
            Message::AskLastIDs(_) => {
                let code = ErrorCode::ReadOnlyAccess;
                links.answer(request, ErrorMessage { code, message: READ_ONLY });
            }
            _ => return false,
        }
        true
    }
}
