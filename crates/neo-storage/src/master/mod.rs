//! The primary master: finding it, and what it says.

mod nodes;
mod operation;
mod recovery;
mod table;

use std::time::Duration;

use tracing::{info, warn};
use zodium_neo::messages::{Pong, RequestIdentification};
use zodium_neo::{Candidate, Extra, Message, NodeType, Value};

use crate::handling::{Handled, Refusal};
use crate::peer::{Asked, Role};
use crate::phase::Phase;
use crate::{ConnectionId, Node, Settings};

/// Pause before a master is dialled again.
const DIAL_PAUSE: Duration = Duration::from_millis(50);

impl Node {
    /// Dials the next master.
    pub(crate) fn dial_master(&mut self, after: Duration) {
        if let Some(address) = self.masters.take() {
            let role = Role::Master { address: address.clone(), is_primary: false };
            self.dial(role, address, after);
        }
    }

    /// A master's connection has ended: this one was the primary, or might have been.
    pub(crate) fn master_lost(&mut self, was_primary: bool) {
        if was_primary {
            warn!("the connection to the primary master has ended, looking for another one");
            self.end_operation(Phase::Alone);
        }
        self.dial_master(self.masters.pause(DIAL_PAUSE));
    }

    pub(crate) fn identify_to_master(&mut self, connection: ConnectionId) {
        let Settings { cluster, address, topology, .. } = self.settings.clone();
        let topology = topology.iter().map(|part| Value::Bytes(part.as_bytes())).collect();
        let copied = self.copied.iter().flatten();
        let copied = copied.map(|partition| Value::Int(partition.0.into())).collect();
        let extra = [("devpath", Value::Array(topology)), ("new_nid", Value::Array(copied))];
        // The cluster does not use a node yet that asks for another id.
        let address = Some(address).filter(|_| self.copied.is_none());
        let request = RequestIdentification {
            node_type: NodeType::Storage,
            id: self.id,
            address,
            cluster: &cluster,
            id_timestamp: None,
            extra: Extra::from_iter(extra),
        };
        self.ask(connection, request, Asked::Identification);
    }

    /// Handles a message of a master that has not accepted this node.
    pub(crate) fn candidate_says(
        &mut self,
        connection: ConnectionId,
        message: Message<'_>,
    ) -> Handled {
        let master = self.name_of(connection);
        match Candidate::read(&mut self.masters, &master, &message)? {
            Candidate::Primary { your_id, .. } => self.accepted_by_master(connection, your_id),
            Candidate::Other => self.close(connection),
        }
        Ok(())
    }

    fn accepted_by_master(&mut self, connection: ConnectionId, id: zodium_neo::NodeId) {
        let Some(peer) = self.peers.get_mut(connection) else { return };
        if let Role::Master { is_primary, address } = &mut peer.role {
            *is_primary = true;
            // When the connection is lost, it is probably still the primary, or again. The master
            // may have told of another address of its own.
            self.masters.prefer(address);
        }
        info!(master = peer.name, node = %id, "identified to the primary master");
        self.members = Default::default();
        self.phase = Phase::Recovering;
        if self.id != Some(id) {
            self.id = Some(id);
            self.write(move |database| database.set_node(id), |_, ()| {});
        }
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
                // The master asks whether this node has the table. A later start must find it.
                self.when_written(move |node| node.answer(connection, id, Pong {}));
                Ok(())
            }
            Message::NotifyNodeInformation(message) => self.nodes_told(message),
            Message::NotifyClusterInformation(message) => {
                self.cluster_state_told(message.state);
                Ok(())
            }
            Message::NotPrimaryMaster(message) => {
                self.masters.note(&message);
                self.close(connection);
                Ok(())
            }
            Message::SendPartitionTable(message) => self.table_told(message),
            Message::NotifyPartitionChanges(message) => self.table_changed(&message),
            Message::Error(error) => {
                let (code, reason) = (error.code, error.message);
                warn!(%code, reason, "the master refused a request");
                self.answered(connection, id);
                Ok(())
            }
            Message::FlushLog(_) => Ok(()),
            other => self.primary_asks(connection, id, other),
        }
    }
}

/// Refuses a message that has no place in the state of the connection.
pub(crate) fn unexpected(message: &Message<'_>) -> Refusal {
    Refusal::protocol(format!("unexpected {}", message.name()))
}
