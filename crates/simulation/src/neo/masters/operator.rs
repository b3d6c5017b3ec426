//! An operator, with an admin of its own: what people order in a cluster.
//!
//! Storages that are pending are taken in, and get cells. While faults are on, storages are also
//! stopped and removed, cells move, and the database is truncated. In the end replicas are
//! compared.

use std::collections::BTreeMap;

use zodium_neo::messages::{
    AddPendingNodes, AskClusterState, CheckReplicas, RequestIdentification, SetNodeState,
    SetNumReplicas, Truncate, TweakPartitionTable,
};
use zodium_neo::{
    ClusterState, Extra, Map, Message, NodeId, NodeState, NodeType, Packet, Partition,
};
use zodium_types::Tid;

use crate::neo::addresses;
use crate::neo::context::{CLUSTER, Context};
use crate::neo::net::{End, WireId};

/// What an operator wants beside that all storages have cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Cells are spread anew, over some of the storages.
    Move,
    /// A storage is stopped or removed, or the number of replicas is another one.
    Change,
    Truncate,
}

/// What the master is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    State,
    Add,
    Tweak,
    Check,
    Other,
}

/// An operator.
#[derive(Debug, Default)]
pub(crate) struct Operator {
    next_master: usize,
    master: Option<WireId>,
    is_accepted: bool,
    state: Option<ClusterState>,
    storages: BTreeMap<NodeId, NodeState>,
    partitions: u32,
    asked: Option<(u32, Order)>,
    wish: Option<Wish>,
    /// Storages were added, or cells may be missing: the next order is a tweak.
    is_uneven: bool,
    is_checked: bool,
}

impl Operator {
    /// Wants something, when it is connected.
    pub(crate) fn wish(&mut self, wish: Wish) {
        self.wish = Some(wish);
    }

    /// Whether there is something to do that does not wait for a master.
    pub(crate) fn is_free(&self) -> bool {
        self.master.is_none()
            || self.state == Some(ClusterState::Running)
                && self.asked.is_none()
                && (self.wish.is_some() || self.is_wanting())
    }

    /// Whether storages wait to be taken in, or get cells.
    fn is_wanting(&self) -> bool {
        self.is_uneven && self.down().next().is_none() || self.pending().next().is_some()
    }

    /// Whether all storages are taken in, and nothing is asked.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == Some(ClusterState::Running) && self.asked.is_none() && !self.is_wanting()
    }

    fn in_state(&self, wanted: NodeState) -> impl Iterator<Item = NodeId> {
        let all = self.storages.iter().filter(move |(_, state)| **state == wanted);
        all.map(|(node, _)| *node)
    }

    fn pending(&self) -> impl Iterator<Item = NodeId> {
        self.in_state(NodeState::Pending)
    }

    fn down(&self) -> impl Iterator<Item = NodeId> {
        self.in_state(NodeState::Down)
    }

    /// Dials a master, or orders something.
    pub(crate) fn act(&mut self, context: &mut Context) {
        if self.master.is_none() {
            let to = End::Master(self.next_master % context.plan.masters.max(1));
            self.next_master += 1;
            self.master = Some(context.net.dial(End::Operator, to));
            return;
        }
        let pending: Vec<_> = self.pending().collect();
        match self.wish.take() {
            _ if !pending.is_empty() => {
                self.order(context, Order::Add, AddPendingNodes { ids: pending });
            }
            Some(Wish::Move) => self.move_cells(context),
            Some(Wish::Change) => self.change(context),
            Some(Wish::Truncate) => self.truncate(context),
            None => {
                let message = TweakPartitionTable { dry_run: false, excluded: Vec::new() };
                self.order(context, Order::Tweak, message);
            }
        }
    }

    fn order<'a>(&mut self, context: &mut Context, order: Order, message: impl Into<Message<'a>>) {
        let Some(wire) = self.master else { return };
        let id = context.net.send(End::Operator, wire, message);
        self.asked = Some((id, order));
    }

    fn move_cells(&mut self, context: &mut Context) {
        let mut excluded: Vec<_> = self.down().collect();
        let running: Vec<_> = self.in_state(NodeState::Running).collect();
        excluded.extend(running.get(context.chance.place(running.len() * 2)));
        self.is_uneven = true;
        context.event("move", &[excluded.len() as u64]);
        let message = TweakPartitionTable { dry_run: false, excluded };
        self.order(context, Order::Other, message);
    }

    fn change(&mut self, context: &mut Context) {
        let down: Vec<_> = self.down().collect();
        let running: Vec<_> = self.in_state(NodeState::Running).collect();
        let most = context.plan.storages as u64 - 1;
        if let Some(node) = down.get(context.chance.place(down.len() + 1)) {
            context.event("drop", &[node.value() as u64]);
            let message = SetNodeState { id: *node, state: NodeState::Unknown };
            self.order(context, Order::Other, message);
        } else if let Some(node) = running.get(context.chance.place(running.len() + 1)) {
            context.event("stop storage", &[node.value() as u64]);
            let message = SetNodeState { id: *node, state: NodeState::Down };
            self.order(context, Order::Other, message);
        } else {
            let replicas = context.chance.number(0..=most.min(2)) as u32;
            context.event("replicas", &[replicas.into()]);
            self.is_uneven = true;
            self.order(context, Order::Other, SetNumReplicas { replicas });
        }
    }

    fn truncate(&mut self, context: &mut Context) {
        let tids: Vec<Tid> = context.history.committed.keys().copied().collect();
        if let Some(tid) = tids.get(context.chance.place(tids.len())) {
            self.order(context, Order::Other, Truncate { tid: *tid });
        }
    }

    /// Has all replicas compared; whether they were before.
    pub(crate) fn check(&mut self, context: &mut Context) -> bool {
        if self.is_checked {
            return true;
        }
        self.is_checked = true;
        context.event("check", &[]);
        let references = (0..self.partitions).map(|partition| (Partition(partition), None));
        let references = Map(references.collect());
        let message = CheckReplicas { references, min_tid: Tid::ZERO, max_tid: None };
        self.order(context, Order::Check, message);
        false
    }

    /// A connection that it dialled is there, or cannot be made.
    pub(crate) fn dialled(&mut self, context: &mut Context, wire: WireId, is_there: bool) {
        if !is_there {
            return self.closed(wire);
        }
        let (node_type, cluster, extra) = (NodeType::Admin, CLUSTER, Extra::default());
        let (id, address, id_timestamp) = (None, None, None);
        let message =
            RequestIdentification { node_type, id, address, cluster, id_timestamp, extra };
        context.net.send(End::Operator, wire, message);
    }

    /// A connection has ended.
    pub(crate) fn closed(&mut self, wire: WireId) {
        if self.master == Some(wire) {
            let Operator { next_master, wish, is_checked, .. } = *self;
            *self = Operator { next_master, wish, is_checked, ..Operator::default() };
        }
    }

    /// A packet has arrived.
    pub(crate) fn received(&mut self, context: &mut Context, wire: WireId, packet: Packet<'_>) {
        if self.master != Some(wire) {
            return;
        }
        let Packet { id, message } = packet;
        match message {
            Message::AcceptIdentification(_) => {
                (self.is_accepted, self.is_uneven) = (true, true);
                self.order(context, Order::State, AskClusterState {});
            }
            Message::NotPrimaryMaster(message) => {
                let primary = message.primary.and_then(|at| message.masters.get(at as usize));
                if let Some(End::Master(place)) = primary.map(addresses::end_of) {
                    self.next_master = place;
                }
            }
            Message::NotifyNodeInformation(message) => {
                for node in message.nodes {
                    let (NodeType::Storage, Some(id)) = (node.node_type, node.id) else { continue };
                    match node.state {
                        NodeState::Unknown => drop(self.storages.remove(&id)),
                        state => drop(self.storages.insert(id, state)),
                    }
                }
            }
            Message::SendPartitionTable(message) => self.partitions = message.rows.len() as u32,
            Message::NotifyClusterInformation(message) => self.state = Some(message.state),
            // The connection is closed after it.
            Message::Error(_) if !self.is_accepted => {}
            message => self.answered(context, id, message),
        }
    }

    fn answered(&mut self, context: &mut Context, id: u32, message: Message<'_>) {
        let Some((asked, order)) = self.asked else { return };
        if asked != id {
            return;
        }
        self.asked = None;
        match (order, message) {
            (Order::State, Message::AnswerClusterState(answer)) => self.state = answer.state,
            (Order::Add, Message::Error(_)) => self.is_uneven = true,
            (Order::Tweak, Message::AnswerTweakPartitionTable(answer)) => {
                self.is_uneven = answer.changed;
            }
            // Also a refusal of an order that came too early.
            (Order::Tweak | Order::Check | Order::Other, _) => {}
            (order, other) => context.violate(format!("{} answers {order:?}", other.name())),
        }
    }
}
