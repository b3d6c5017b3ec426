//! A model of the primary master: it does what the protocol asks of one, and keeps nothing.
//!
//! What a master knows comes from the storages: one that starts anew recovers it from them.

mod cells;
mod commits;
mod membership;
mod packs;
mod recovery;

use std::collections::{BTreeMap, BTreeSet};

use zodium_neo::messages::{
    Error as ErrorMessage, NodeInformation, NotifyClusterInformation, NotifyNodeInformation,
};
use zodium_neo::{
    ClusterState, ErrorCode, Message, NodeId, NodeState, NodeType, Packet, Partition,
    PartitionTable,
};
use zodium_types::Tid;

use self::commits::Transaction;
use self::packs::Packs;
use self::recovery::{Recovery, Verification};
use super::context::Context;
use super::net::{End, WireId};

/// The state of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Recovering,
    Verifying,
    Running,
}

/// What is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Stranger,
    Storage(NodeId),
    Client(NodeId),
}

/// The master.
pub(super) struct Master {
    pub(super) phase: Phase,
    peers: BTreeMap<WireId, Peer>,
    nodes: BTreeMap<NodeId, NodeInformation>,
    pub(super) table: Option<PartitionTable>,
    last_client: u32,
    last_tid: Tid,
    recovery: Recovery,
    verification: Verification,
    /// Storages between StartOperation and NotifyReady.
    starting: BTreeSet<NodeId>,
    /// Transactions that were begun.
    begun: u64,
    /// How many of them had begun when a storage, or a cell, was added: the others it knows.
    node_since: BTreeMap<NodeId, u64>,
    cell_since: BTreeMap<(Partition, NodeId), u64>,
    /// Cells that were taken away: a late message may still say that they are replicated.
    taken: BTreeSet<(Partition, NodeId)>,
    transactions: BTreeMap<Tid, Transaction>,
    /// Transactions that are being locked, in the order of their tids.
    queue: Vec<Tid>,
    outcomes: BTreeMap<Tid, Option<Tid>>,
    /// Requests of clients that wait.
    waiting_begins: Vec<(WireId, u32)>,
    waiting_outcomes: Vec<(WireId, u32, Tid)>,
    /// Transactions whose end a storage wants to know.
    watched: BTreeMap<NodeId, BTreeSet<Tid>>,
    packs: Packs,
}

impl Master {
    pub(super) fn new() -> Master {
        Master {
            phase: Phase::Recovering,
            peers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            table: None,
            last_client: 0,
            last_tid: Tid::ZERO,
            recovery: Recovery::default(),
            verification: Verification::default(),
            starting: BTreeSet::new(),
            begun: 0,
            node_since: BTreeMap::new(),
            cell_since: BTreeMap::new(),
            taken: BTreeSet::new(),
            transactions: BTreeMap::new(),
            queue: Vec::new(),
            outcomes: BTreeMap::new(),
            waiting_begins: Vec::new(),
            waiting_outcomes: Vec::new(),
            watched: BTreeMap::new(),
            packs: Packs::default(),
        }
    }

    /// A process has connected.
    pub(super) fn accepted(&mut self, wire: WireId) {
        self.peers.insert(wire, Peer::Stranger);
    }

    /// A connection has ended.
    pub(super) fn closed(&mut self, context: &mut Context, wire: WireId) {
        match self.peers.remove(&wire) {
            Some(Peer::Storage(node)) => self.storage_lost(context, wire, node),
            Some(Peer::Client(node)) => self.client_lost(context, node),
            Some(Peer::Stranger) | None => {}
        }
    }

    /// A packet has arrived.
    pub(super) fn received(&mut self, context: &mut Context, wire: WireId, packet: Packet<'_>) {
        match self.peers.get(&wire).copied() {
            None => {}
            Some(Peer::Stranger) => self.identify(context, wire, packet),
            Some(Peer::Storage(node)) => self.storage_says(context, wire, node, packet),
            Some(Peer::Client(_)) => self.client_says(context, wire, packet),
        }
    }

    fn storage_says(
        &mut self,
        context: &mut Context,
        wire: WireId,
        node: NodeId,
        packet: Packet<'_>,
    ) {
        let Packet { id, message } = packet;
        match message {
            Message::NotifyReady(_) => self.storage_ready(context, node),
            Message::AskUnfinishedTransactions(_) => self.unfinished_asked(context, wire, id, node),
            Message::NotifyReplicationDone(message) => {
                self.replicated(context, node, message.partition);
            }
            Message::AnswerInformationLocked(message) => {
                self.locked(context, wire, message.ttid);
            }
            Message::AskPackOrders(message) => self.orders_asked(context, wire, id, message.id),
            Message::NotifyPackCompleted(message) => self.packs.complete(node, message.id),
            Message::Error(error) => {
                let (code, text) = (error.code, error.message);
                context.violate(format!("storage {node} refuses the master: {code}: {text}"));
            }
            other => self.recovery_says(context, wire, node, id, other),
        }
    }

    /// Refuses a request, and ends the connection.
    fn refuse(&mut self, context: &mut Context, wire: WireId, id: u32, code: ErrorCode) {
        let message = ErrorMessage { code, message: "not now" };
        context.net.answer(End::MODEL, wire, id, message);
        context.net.close(End::MODEL, wire);
        self.peers.remove(&wire);
    }

    /// The connections to storages.
    fn storages(&self) -> Vec<(WireId, NodeId)> {
        let found = self.peers.iter().filter_map(|(wire, peer)| match peer {
            Peer::Storage(node) => Some((*wire, *node)),
            _ => None,
        });
        found.collect()
    }

    fn clients(&self) -> Vec<WireId> {
        let found = self.peers.iter().filter(|(_, peer)| matches!(peer, Peer::Client(_)));
        found.map(|(wire, _)| *wire).collect()
    }

    fn wire_of(&self, node: NodeId) -> Option<WireId> {
        self.storages().into_iter().find(|(_, other)| *other == node).map(|(wire, _)| wire)
    }

    /// Tells storages, and clients if they may know them, of nodes.
    fn tell_nodes(&self, context: &mut Context, nodes: &[NodeInformation], but: Option<WireId>) {
        let timestamp = context.time();
        let tell = |context: &mut Context, wire: WireId, nodes: Vec<NodeInformation>| {
            if Some(wire) != but && !nodes.is_empty() {
                let message = NotifyNodeInformation { timestamp, nodes };
                context.net.send(End::MODEL, wire, message);
            }
        };
        for (wire, _) in self.storages() {
            tell(context, wire, nodes.to_vec());
        }
        let visible = nodes.iter().filter(|node| node.node_type == NodeType::Storage);
        let visible: Vec<_> = visible.cloned().collect();
        for wire in self.clients() {
            tell(context, wire, visible.clone());
        }
    }

    /// Changes the state of a node.
    fn set_state(&mut self, context: &mut Context, node: NodeId, state: NodeState) {
        let Some(information) = self.nodes.get_mut(&node) else { return };
        information.state = state;
        let information = information.clone();
        self.tell_nodes(context, &[information], None);
    }

    fn tell_phase(&self, context: &mut Context, state: ClusterState) {
        for (wire, _) in self.storages() {
            context.net.send(End::MODEL, wire, NotifyClusterInformation { state });
        }
    }

    /// Whether the cluster runs, all storages are ready, and nothing is left to do.
    pub(super) fn is_idle(&self, context: &Context) -> bool {
        self.phase == Phase::Running
            && self.storages().len() == context.plan.storages
            && self.starting.is_empty()
            && self.transactions.is_empty()
            && self.are_cells_at_rest()
            && self.are_packs_done(context)
    }

    pub(super) fn describe(&self) -> String {
        let Master { phase, table, starting, transactions, packs, .. } = self;
        let rows = table.as_ref().map(|table| format!("{:?}", table.rows()));
        format!(
            "master {phase:?}, storages {:?}, starting {starting:?}, transactions {:?}, {packs:?}, \
             verification {:?}, recovery {:?}, cells {rows:?}",
            self.storages(),
            transactions.keys(),
            self.verification,
            self.recovery,
        )
    }
}
