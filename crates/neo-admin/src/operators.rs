//! What operators' commands ask: answered here, or by the master.

use zodium_neo::messages::{
    AnswerClusterState, AnswerNodeList, AnswerPartitionList, AnswerPrimary, AskPartitionList,
    FlushLog, Pong,
};
use zodium_neo::{ConnectionId, ErrorCode, Message};

use crate::Admin;
use crate::handling::{Handled, Refusal};
use crate::monitor::NOT_CONNECTED;
use crate::peer::Asked;

/// Most requests that the master has not answered.
const RELAYED_MAX: usize = 10_000;

impl Admin {
    /// Handles a message of an operator's command, or of an admin that identifies itself.
    pub(crate) fn operator_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        match message {
            Message::Ping(_) => self.links.answer((connection, id), Pong {}),
            Message::CloseClient(_) => self.close(connection),
            message => {
                let Some(master) = self.primary else {
                    return Err(Refusal::not_ready(NOT_CONNECTED));
                };
                return self.asked(connection, id, message, master);
            }
        }
        Ok(())
    }

    fn asked(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
        master: ConnectionId,
    ) -> Handled {
        match message {
            Message::AskPartitionList(message) => self.rows_asked(connection, id, &message)?,
            Message::AskNodeList(message) => {
                let nodes = self.members.list(message.node_type);
                self.links.answer((connection, id), AnswerNodeList { nodes });
            }
            Message::AskClusterState(_) => {
                let state = self.own.state;
                self.links.answer((connection, id), AnswerClusterState { state });
            }
            Message::AskPrimary(_) => {
                let Some(primary) = self.primary_id else {
                    return Err(Refusal::not_ready(NOT_CONNECTED));
                };
                self.links.answer((connection, id), AnswerPrimary { id: primary });
            }
            Message::AskMonitorInformation(_) => self.report_asked(connection, id)?,
            Message::FlushLog(_) => self.links.notify(master, FlushLog {}),
            Message::RequestIdentification(request) => {
                self.backup_identifies(connection, id, &request)?;
            }
            Message::AddPendingNodes(_)
            | Message::AskLastIDs(_)
            | Message::AskLastTransaction(_)
            | Message::AskRecovery(_)
            | Message::CheckReplicas(_)
            | Message::Repair(_)
            | Message::SetClusterState(_)
            | Message::SetNodeState(_)
            | Message::SetNumReplicas(_)
            | Message::Truncate(_)
            | Message::TweakPartitionTable(_) => self.relay(connection, id, message, master)?,
            other => return Err(Refusal::unexpected(&other)),
        }
        Ok(())
    }

    fn rows_asked(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: &AskPartitionList,
    ) -> Handled {
        let Some(table) = &self.table else { return Err(Refusal::not_ready(NOT_CONNECTED)) };
        let Some(rows) = table.rows(message.first, message.end) else {
            let text = "invalid partition table offset";
            return Err(Refusal::answer(ErrorCode::ProtocolError, text));
        };
        let (table, replicas, rows) = (table.id, table.replicas, rows.to_vec());
        self.links.answer((connection, id), AnswerPartitionList { table, replicas, rows });
        Ok(())
    }

    /// Has the master answer a request.
    pub(crate) fn relay(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
        master: ConnectionId,
    ) -> Handled {
        let waiting = self.links.unanswered(master);
        if waiting >= RELAYED_MAX {
            let text = "too many requests wait for the master";
            return Err(Refusal::answer(ErrorCode::NotReady, text));
        }
        self.links.ask(master, message, Asked::Relayed { connection, id });
        Ok(())
    }
}
