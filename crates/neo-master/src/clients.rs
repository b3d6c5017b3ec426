//! What clients say.

use zodium_neo::messages::{AnswerNewOIDs, Error as ErrorMessage};
use zodium_neo::{ConnectionId, ErrorCode, Message, NodeId, NodeState};

use crate::Master;
use crate::handling::{Handled, Refusal};
use crate::links::Request;

/// Most oids that a client gets at once. NEO's clients ask for 100.
const NEW_OIDS_MAX: u32 = 1 << 20;
const READ_ONLY: &str = "read-only access as requested by the client";

impl Master {
    /// Handles a message of a client.
    pub(crate) fn client_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        client: NodeId,
        message: Message<'_>,
    ) -> Handled {
        if writes(&message)
            && self.cluster.members.get(client).is_some_and(|node| node.about.is_read_only)
        {
            let (code, message) = (ErrorCode::ReadOnlyAccess, READ_ONLY);
            self.links.answer(connection, id, ErrorMessage { code, message });
            return Ok(());
        }
        if self.backup.is_some() && self.backup_client_says(connection, id, &message) {
            return Ok(());
        }
        match message {
            Message::AskFinishTransaction(message) => {
                return self.finish(connection, id, client, message);
            }
            Message::AskBeginTransaction(message) => {
                return self.begin(connection, id, client, message.tid);
            }
            Message::FailedVote(message) => {
                return self.failed_vote(connection, id, client, message);
            }
            Message::AbortTransaction(message) => return self.abort(client, message),
            Message::AskNewOIDs(message) => {
                if message.count > NEW_OIDS_MAX {
                    return Err(Refusal::protocol(format!(
                        "{} new oids at once, more than {NEW_OIDS_MAX}",
                        message.count
                    )));
                }
                let oids = self.transactions.new_oids(message.count);
                self.links.answer(connection, id, AnswerNewOIDs { oids });
            }
            Message::AskFinalTID(message) => self.final_tid(connection, id, message.ttid),
            Message::AskPackOrders(message) => {
                let request = Request { connection, id };
                self.packs.tell_orders(&self.cluster, &mut self.links, request, message.id, false);
            }
            Message::WaitForPack(message) => {
                self.packs.wait(&mut self.links, Request { connection, id }, message.id)
            }
            other => return self.any_says(connection, id, &other),
        }
        Ok(())
    }

    /// The connection of a client has ended.
    pub(crate) fn client_lost(&mut self, connection: ConnectionId, client: NodeId) {
        self.packs.left(&self.cluster, &mut self.links, connection);
        self.client_left(client, connection);
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
