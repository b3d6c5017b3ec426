//! Nodes that come and go.

use std::collections::BTreeMap;

use zodium_neo::messages::{
    AcceptIdentification, AskRecovery, NodeInformation, NotifyNodeInformation, NotifyPackSigned,
    RequestIdentification, SendPartitionTable, StartOperation, StopOperation, Truncate,
};
use zodium_neo::{
    ClusterState, ErrorCode, Message, NodeId, NodeState, NodeType, Packet, PartitionTable,
};
use zodium_types::Tid;

use super::{Master, Peer, Phase};
use crate::neo::context::Context;
use crate::neo::net::{End, WireId};

impl Master {
    pub(super) fn identify(&mut self, context: &mut Context, wire: WireId, packet: Packet<'_>) {
        let Message::RequestIdentification(request) = packet.message else {
            return context.violate(format!("{} comes first", packet.message.name()));
        };
        match request.node_type {
            NodeType::Storage => self.identify_storage(context, wire, packet.id, request),
            _ => self.identify_client(context, wire, packet.id),
        }
    }

    fn identify_storage(
        &mut self,
        context: &mut Context,
        wire: WireId,
        id: u32,
        request: RequestIdentification<'_>,
    ) {
        let RequestIdentification { id: Some(node), address, .. } = request else {
            return context.violate("a storage has forgotten its id".to_owned());
        };
        if self.wire_of(node).is_some() {
            return self.refuse(context, wire, id, ErrorCode::ProtocolError);
        }
        if self.phase == Phase::Verifying {
            return self.refuse(context, wire, id, ErrorCode::NotReady);
        }
        let is_running = self.phase == Phase::Running;
        let state = if is_running { NodeState::Running } else { NodeState::Pending };
        let (node_type, id_timestamp) = (NodeType::Storage, Some(context.time()));
        let information =
            NodeInformation { node_type, address, id: Some(node), state, id_timestamp };
        self.peers.insert(wire, Peer::Storage(node));
        self.nodes.insert(node, information.clone());
        self.accept(context, wire, id, node, &information);
        self.tell_nodes(context, &[information], Some(wire));
        if is_running {
            self.send_table(context, wire);
            self.start_storage(context, wire, node);
        } else {
            context.net.send(End::MODEL, wire, AskRecovery {});
        }
    }

    fn identify_client(&mut self, context: &mut Context, wire: WireId, id: u32) {
        if self.phase != Phase::Running {
            return self.refuse(context, wire, id, ErrorCode::NotReady);
        }
        self.last_client += 1;
        let Some(node) = NodeId::of(NodeType::Client, self.last_client) else { return };
        let (node_type, id_timestamp) = (NodeType::Client, Some(context.time()));
        let state = NodeState::Running;
        let information =
            NodeInformation { node_type, address: None, id: Some(node), state, id_timestamp };
        self.peers.insert(wire, Peer::Client(node));
        self.nodes.insert(node, information.clone());
        self.accept(context, wire, id, node, &information);
        self.tell_nodes(context, &[information], None);
        self.send_table(context, wire);
    }

    /// Accepts a node, and tells it all nodes, itself first.
    fn accept(
        &self,
        context: &mut Context,
        wire: WireId,
        id: u32,
        node: NodeId,
        information: &NodeInformation,
    ) {
        let accepted = AcceptIdentification {
            node_type: NodeType::Master,
            id: NodeId::of(NodeType::Master, 1),
            your_id: Some(node),
        };
        context.net.answer(End::MODEL, wire, id, accepted);
        let is_client = information.node_type == NodeType::Client;
        let others = self.nodes.values().filter(|other| {
            other.id != Some(node) && (!is_client || other.node_type == NodeType::Storage)
        });
        let nodes = std::iter::once(information).chain(others).cloned().collect();
        let timestamp = context.time();
        context.net.send(End::MODEL, wire, NotifyNodeInformation { timestamp, nodes });
    }

    pub(super) fn send_table(&self, context: &mut Context, wire: WireId) {
        let (table, replicas) =
            (self.table.as_ref().map(PartitionTable::id), context.plan.replicas);
        let rows = self.table.as_ref().map(|table| table.rows().to_vec()).unwrap_or_default();
        context.net.send(End::MODEL, wire, SendPartitionTable { table, replicas, rows });
    }

    /// Has a storage operate. No transaction begins until it is ready.
    pub(super) fn start_storage(&mut self, context: &mut Context, wire: WireId, node: NodeId) {
        self.starting.insert(node);
        self.node_since.insert(node, self.begun);
        let (approved, rejected) = (self.packs.approved(), Vec::new());
        context.net.send(End::MODEL, wire, NotifyPackSigned { approved, rejected });
        context.net.send(End::MODEL, wire, StartOperation { backup: false });
    }

    pub(super) fn storage_ready(&mut self, context: &mut Context, node: NodeId) {
        if !self.starting.remove(&node) && self.phase == Phase::Running {
            context.violate(format!("storage {node} is ready twice"));
        }
        self.begin_waiting(context);
    }

    pub(super) fn storage_lost(&mut self, context: &mut Context, wire: WireId, node: NodeId) {
        context.event("lost", &[node.value() as u64]);
        self.starting.remove(&node);
        self.watched.remove(&node);
        self.set_state(context, node, NodeState::Down);
        match self.phase {
            Phase::Recovering => self.recovery.forget(node),
            Phase::Verifying => self.stop(context, None),
            Phase::Running => {
                let changes = self.outdated_by(node);
                self.change_cells(context, changes);
                if !self.is_operational() {
                    return self.stop(context, None);
                }
                for transaction in self.transactions.values_mut() {
                    transaction.forget(wire);
                }
                self.advance(context);
                self.begin_waiting(context);
            }
        }
    }

    /// The cluster cannot go on, or is truncated: it recovers, with the storages that are there.
    pub(super) fn stop(&mut self, context: &mut Context, truncate: Option<Tid>) {
        context.event("stop", &[]);
        self.phase = Phase::Recovering;
        for wire in self.clients() {
            context.net.close(End::MODEL, wire);
            self.peers.remove(&wire);
        }
        let is_storage = |node: &NodeInformation| node.node_type == NodeType::Storage;
        let (nodes, mut gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.nodes).into_iter().partition(|(_, node)| is_storage(node));
        gone.values_mut().for_each(|client| client.state = NodeState::Unknown);
        self.nodes = nodes;
        let Master { table, peers, mut nodes, last_client, .. } =
            std::mem::replace(self, Master::new());
        let running = nodes.values_mut().filter(|node| node.state == NodeState::Running);
        running.for_each(|node| node.state = NodeState::Pending);
        (self.table, self.peers, self.nodes, self.last_client) = (table, peers, nodes, last_client);
        let nodes: Vec<_> = self.nodes.values().chain(gone.values()).cloned().collect();
        self.tell_phase(context, ClusterState::Recovering);
        for (wire, _) in self.storages() {
            context.net.send(End::MODEL, wire, StopOperation {});
        }
        self.tell_nodes(context, &nodes, None);
        for (wire, _) in self.storages() {
            if let Some(tid) = truncate {
                context.net.send(End::MODEL, wire, Truncate { tid });
            }
            context.net.send(End::MODEL, wire, AskRecovery {});
        }
    }
}
