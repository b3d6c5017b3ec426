//! Commands for nodes: taking them in, stopping and removing them, repairs.

use tracing::info;
use zodium_neo::messages::{NotifyNodeInformation, NotifyRepair, Repair, SetNodeState};
use zodium_neo::{ConnectionId, NodeId, NodeState, NodeType, Partition};

use super::table::too_early;
use crate::Master;
use crate::handling::{Handled, Refusal};
use crate::{Phase, Stop};

impl Master {
    pub(super) fn set_node_state(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: &SetNodeState,
    ) -> Handled {
        let SetNodeState { id: node, state } = *message;
        if self.cluster.members.master_with_id(node).is_some() {
            return self.set_master_state(connection, id, node, state);
        }
        let Some(known) = self.cluster.members.get(node) else {
            return Err(Refusal::denied("unknown node"));
        };
        let is_allowed = matches!(state, NodeState::Down | NodeState::Unknown);
        if known.kind != NodeType::Storage || !is_allowed {
            return Err(Refusal::denied(format!("can not switch node to {state} state")));
        }
        let before = known.state;
        if before == NodeState::Running && state == NodeState::Unknown {
            return Err(Refusal::denied("a running node must be stopped before removal"));
        }
        let (mut table, members) = (self.cluster.table.clone(), &self.cluster.members);
        let changes = match state {
            NodeState::Unknown => table.remove(node),
            _ => table.removal_of(node),
        };
        let changes = changes.map_err(refused)?;
        if state == NodeState::Down {
            table.outdate(None, |id| id != node && members.is_running(id));
        }
        if self.cluster.is_operating() && !table.may_follow() {
            return Err(too_early(if state == NodeState::Down { "kill" } else { "drop" }));
        }
        if state == NodeState::Unknown {
            self.cluster.table = table;
        }
        info!(%node, %state, "an operator changes a storage");
        let is_removed = state == NodeState::Unknown && !changes.is_empty();
        let ended = self.end_storage(node, state);
        let changes = match state {
            NodeState::Unknown => changes,
            _ => {
                let members = &self.cluster.members;
                self.cluster.table.outdate(None, |id| members.is_running(id))
            }
        };
        self.cluster.tell_cells(&mut self.links, changes, false);
        self.ended(ended, node);
        let text = match (is_removed, before == state) {
            (true, _) => "node permanently removed".to_owned(),
            (false, true) => format!("node already in {state} state"),
            (false, false) => "state changed".to_owned(),
        };
        self.acknowledge(connection, id, &text);
        if before != state {
            self.cluster.tell_node(&mut self.links, node);
        }
        if state == NodeState::Unknown {
            self.cluster.members.remove(node);
        }
        Ok(())
    }

    /// Sets the state of a storage, which ends itself when it hears of it.
    fn end_storage(&mut self, storage: NodeId, state: NodeState) -> Option<ConnectionId> {
        let node = self.cluster.members.get_mut(storage)?;
        node.state = state;
        let (connection, told) = (node.connection.take()?, node.told(storage));
        let (timestamp, nodes) = (self.cluster.clock.stamp(), vec![told.information]);
        self.links.notify(connection, NotifyNodeInformation { timestamp, nodes });
        self.close(connection);
        Some(connection)
    }

    /// What the end of a storage means for transactions.
    fn ended(&mut self, connection: Option<ConnectionId>, storage: NodeId) {
        let Some(connection) = connection else { return };
        self.left_verification(connection);
        let is_serving =
            matches!(self.phase, Phase::Service | Phase::Backup | Phase::Verification(_));
        if is_serving && !self.cluster.is_operational() {
            self.stops = Some(Stop::NotOperational);
        } else if is_serving {
            self.storage_gone(connection, storage);
        }
    }

    fn set_master_state(
        &mut self,
        connection: ConnectionId,
        id: u32,
        master: NodeId,
        state: NodeState,
    ) -> Handled {
        if state != NodeState::Down {
            return Err(Refusal::denied(format!("can not switch node to {state} state")));
        }
        if Some(master) == self.cluster.id {
            return Err(Refusal::denied("can not kill primary master node"));
        }
        let known = self.cluster.members.masters_mut().find(|known| known.id == Some(master));
        let Some(known) = known else { return Err(Refusal::denied("unknown node")) };
        let before = std::mem::replace(&mut known.state, state);
        let (other, told) = (known.connection, known.told());
        if before == state {
            self.acknowledge(connection, id, &format!("node already in {state} state"));
            return Ok(());
        }
        self.acknowledge(connection, id, "state changed");
        if other.is_some() {
            self.cluster.tell_nodes(&mut self.links, &[told]);
        }
        Ok(())
    }

    pub(super) fn add_nodes(
        &mut self,
        connection: ConnectionId,
        id: u32,
        wanted: &[NodeId],
    ) -> Handled {
        self.require_operating("addPendingNodes")?;
        let pending = self.cluster.members.of(NodeType::Storage);
        let pending =
            pending.filter(|(one, node)| node.state == NodeState::Pending && wanted.contains(one));
        let pending: Vec<_> = pending.map(|(one, _)| one).collect();
        let mut added = Vec::new();
        for storage in pending {
            if self.cluster.table.add_member(storage)
                && let Some(node) = self.cluster.members.get_mut(storage)
            {
                node.state = NodeState::Running;
                added.push(node.told(storage));
                self.start_storage(storage);
            }
        }
        let names = added.iter().filter_map(|told| told.information.id).map(|id| id.to_string());
        let names: Vec<_> = names.collect();
        self.cluster.tell_nodes(&mut self.links, &added);
        if names.is_empty() {
            self.acknowledge(connection, id, "No node added");
        } else {
            self.acknowledge(connection, id, &format!("Nodes added: {}", names.join(", ")));
        }
        Ok(())
    }

    pub(super) fn repair(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: &Repair,
    ) -> Handled {
        let mut storages = Vec::new();
        for node in &message.ids {
            let known =
                self.cluster.members.get(*node).filter(|known| known.kind == NodeType::Storage);
            let Some(storage) = known.and_then(|known| known.connection) else {
                return Err(Refusal::denied(format!("invalid storage node {node}")));
            };
            storages.push(storage);
        }
        for storage in storages {
            self.links.notify(storage, NotifyRepair { dry_run: message.dry_run });
        }
        self.acknowledge(connection, id, "");
        Ok(())
    }
}

fn refused(partition: Partition) -> Refusal {
    Refusal::denied(format!(
        "Refuse to drop nodes that contain the only readable copies of partition {partition}"
    ))
}
