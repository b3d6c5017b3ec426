//! Orders to pack: all of them are approved.

use std::collections::BTreeMap;

use zodium_neo::NodeId;
use zodium_neo::messages::{AnswerPackOrders, NotifyPackSigned, PackOrder};
use zodium_types::Tid;

use super::Master;
use crate::neo::context::Context;
use crate::neo::net::{End, WireId};

/// The orders, and how far each storage is.
#[derive(Debug, Default)]
pub(super) struct Packs {
    orders: BTreeMap<Tid, PackOrder>,
    completed: BTreeMap<NodeId, Tid>,
}

impl Packs {
    pub(super) fn complete(&mut self, node: NodeId, id: Tid) {
        self.completed.insert(node, id);
    }

    pub(super) fn learn(&mut self, orders: Vec<PackOrder>) {
        for order in orders {
            // An order that was not signed is approved now.
            self.orders.insert(order.id, PackOrder { approved: Some(true), ..order });
        }
    }

    pub(super) fn approved(&self) -> Vec<Tid> {
        self.orders.keys().copied().collect()
    }
}

impl Master {
    pub(super) fn order_pack(&mut self, context: &mut Context, order: PackOrder) {
        context.counts.packs += 1;
        let approved = vec![order.id];
        self.packs.learn(vec![order]);
        for (wire, _) in self.storages() {
            let message = NotifyPackSigned { approved: approved.clone(), rejected: Vec::new() };
            context.net.send(End::MODEL, wire, message);
        }
    }

    pub(super) fn orders_asked(&self, context: &mut Context, wire: WireId, id: u32, from: Tid) {
        let orders = self.packs.orders.range(from..).take(1).map(|(_, order)| order.clone());
        let answer = AnswerPackOrders { orders: orders.collect() };
        context.net.answer(End::MODEL, wire, id, answer);
    }

    /// Whether all storages with cells have carried out all orders.
    pub(super) fn are_packs_done(&self, context: &Context) -> bool {
        let (Some(last), Some(table)) = (context.history.last_pack(), &self.table) else {
            return true;
        };
        let is_done = |node| self.packs.completed.get(&node).is_some_and(|id| *id >= last);
        table.nodes().into_iter().all(is_done)
    }
}
