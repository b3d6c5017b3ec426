//! The primary master: finding it, and what it says.

use std::time::Duration;

use rustc_hash::FxHashMap;
use tracing::{debug, info, warn};
use zodium_neo::messages::{
    AskClusterState, Error as ErrorMessage, NotifyNodeInformation, NotifyPartitionChanges, Pong,
    RequestIdentification, SendPartitionTable,
};
use zodium_neo::{
    Candidate, ClusterState, ConnectionId, ErrorCode, Extra, Kind, Message, NodeId, NodeState,
    NodeType, Value,
};

use crate::Admin;
use crate::handling::{Handled, Refusal};
use crate::health::Change;
use crate::peer::{Asked, Role};
use crate::table::Table;

/// Pause before a master is dialled again.
const DIAL_PAUSE: Duration = Duration::from_millis(200);
/// What an operator is told whose command the master has not answered.
const LOST: &str = "connection to master lost";

impl Admin {
    /// Dials the next master.
    pub(crate) fn dial_master(&mut self, after: Duration) {
        if let Some(address) = self.masters.take() {
            let role = Role::Master { address: address.clone(), is_primary: false };
            self.links.dial(role, address, after);
        }
    }

    /// A master's connection has ended: this one was the primary, or might have been.
    pub(crate) fn master_lost(&mut self, was_primary: bool, asked: FxHashMap<u32, Asked>) {
        if was_primary {
            self.primary_lost(asked);
        }
        if self.own.state != Some(ClusterState::Stopping) {
            self.dial_master(self.masters.pause(DIAL_PAUSE));
        }
    }

    fn primary_lost(&mut self, asked: FxHashMap<u32, Asked>) {
        (self.primary, self.primary_id, self.id) = (None, None, None);
        self.end_round();
        let mut asked: Vec<_> = asked.into_iter().collect();
        asked.sort_unstable_by_key(|(id, _)| *id);
        for (_, asked) in asked {
            if let Asked::Relayed { connection, id } = asked {
                let code = ErrorCode::ProtocolError;
                self.links.answer((connection, id), ErrorMessage { code, message: LOST });
                self.close(connection);
            }
        }
        if self.own.state == Some(ClusterState::Stopping) {
            return self.exit();
        }
        warn!("the connection to the primary master has ended, looking for another one");
        self.own_changed(Change { state: Some(None), ..Change::default() });
        self.notes.primary_lost();
        // Nothing has changed if the master was lost before it told the state.
        self.report();
    }

    pub(crate) fn identify_to_master(&mut self, connection: ConnectionId) {
        let (cluster, address) = (self.settings.cluster.clone(), self.settings.address.clone());
        let backups = self.settings.backups.clone();
        let backups = backups.iter().map(|name| Value::Bytes(name.as_bytes())).collect();
        let extra = [("backup", Value::Array(backups)), ("notes", Value::Bool(true))];
        let request = RequestIdentification {
            node_type: NodeType::Admin,
            id: self.id,
            address: Some(address),
            cluster: &cluster,
            id_timestamp: None,
            extra: Extra::from_iter(extra),
        };
        self.links.ask(connection, request, Asked::Identification);
    }

    /// Handles a message of a master that has not accepted this admin.
    pub(crate) fn candidate_says(
        &mut self,
        connection: ConnectionId,
        message: Message<'_>,
    ) -> Handled {
        let master = self.links.name_of(connection);
        match Candidate::read(&mut self.masters, &master, &message)? {
            Candidate::Primary { id, your_id } => self.accepted_by_master(connection, id, your_id),
            Candidate::Other => self.close(connection),
        }
        Ok(())
    }

    fn accepted_by_master(&mut self, connection: ConnectionId, master: Option<NodeId>, id: NodeId) {
        if let Some(Role::Master { is_primary, address }) = self.links.role_mut(connection) {
            *is_primary = true;
            // When the connection is lost, it is probably still the primary, or again.
            self.masters.prefer(address);
            self.members.begin(address, master);
        }
        let name = self.links.name_of(connection);
        info!(master = name, admin = %id, "identified to the primary master");
        (self.id, self.primary) = (Some(id), Some(connection));
        self.primary_id = master;
        self.links.ask(connection, AskClusterState {}, Asked::State);
    }

    /// Handles a message of the primary master.
    pub(crate) fn primary_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        match message {
            Message::Ping(_) => {
                self.links.answer((connection, id), Pong {});
                Ok(())
            }
            Message::NotifyNodeInformation(message) => {
                self.nodes_told(&message);
                Ok(())
            }
            Message::NotifyClusterInformation(message) => {
                self.state_told(Some(message.state));
                Ok(())
            }
            Message::SendPartitionTable(message) => {
                self.table_told(message);
                Ok(())
            }
            Message::NotifyPartitionChanges(message) => self.table_changed(&message),
            Message::NotifyMonitorInformation(message) => {
                self.notes.told(&message, self.table.as_ref());
                Ok(())
            }
            Message::NotifyUpstreamAdmin(message) => {
                self.upstream_told(message.address);
                Ok(())
            }
            Message::NotPrimaryMaster(message) => {
                self.masters.note(&message);
                self.close(connection);
                Ok(())
            }
            Message::FlushLog(_) => Ok(()),
            other if other.kind() == Kind::Answer => self.answer_told(connection, id, other),
            other => Err(Refusal::unexpected(&other)),
        }
    }

    fn nodes_told(&mut self, message: &NotifyNodeInformation) {
        self.members.tell(&message.nodes, self.table.as_ref());
        for node in &message.nodes {
            if let (NodeType::Master, Some(address)) = (node.node_type, &node.address) {
                match node.state {
                    NodeState::Unknown => self.masters.remove(address),
                    NodeState::Down | NodeState::Running | NodeState::Pending => {
                        self.masters.add(address);
                    }
                }
            }
        }
        self.cells_changed();
    }

    fn state_told(&mut self, state: Option<ClusterState>) {
        debug!(?state, "the state of the cluster");
        self.own_changed(Change { state: Some(state), ..Change::default() });
    }

    fn table_told(&mut self, message: SendPartitionTable) {
        self.table = Some(Table::new(message));
        self.cells_changed();
    }

    fn table_changed(&mut self, message: &NotifyPartitionChanges) -> Handled {
        let Some(table) = &mut self.table else {
            return Err(Refusal::protocol("a change of a partition table that was not sent"));
        };
        table.apply(message).map_err(Refusal::protocol)?;
        self.cells_changed();
        Ok(())
    }

    /// Handles an answer of the primary master, or of the admin of a backup cluster.
    pub(crate) fn answer_told(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        match (self.links.answered((connection, id)), message) {
            (Some(Asked::Relayed { connection, id }), message) => {
                let is_end = matches!(&message,
                    Message::Error(error) if error.code == ErrorCode::ProtocolError);
                self.links.answer((connection, id), message);
                if is_end {
                    self.close(connection);
                }
            }
            (Some(Asked::State), Message::AnswerClusterState(answer)) => {
                self.state_told(answer.state);
            }
            (Some(Asked::Alive), Message::Pong(_)) => self.notes.answered(),
            (Some(Asked::Recovery), Message::AnswerRecovery(answer)) => {
                if let Some(health) = self.health_at(connection) {
                    health.backup_tid = answer.backup_tid;
                }
            }
            (Some(Asked::LastTransaction), Message::AnswerLastTransaction(answer)) => {
                self.last_tid_told(connection, answer.tid);
            }
            (None, other @ Message::Error(_)) if self.primary != Some(connection) => {
                return Err(Refusal::unexpected(&other));
            }
            (asked, Message::Error(error)) => {
                let (peer, code) = (self.links.name_of(connection), error.code);
                warn!(peer, %code, reason = error.for_log(), "a request was refused");
                if asked == Some(Asked::LastTransaction) {
                    self.end_of_wait(connection);
                }
            }
            (_, other) => return Err(Refusal::unexpected(&other)),
        }
        Ok(())
    }
}
