//! Questions about packs that are completed: storages know of these.

use std::collections::BTreeMap;

use zodium_neo::messages::{AnswerPackOrders, AskPackOrders, PackOrder};
use zodium_neo::{ConnectionId, NodeId, Partition};
use zodium_types::Tid;

use super::before;
use crate::Master;
use crate::peer::Asked;

/// A question about packs that are completed.
#[derive(Debug)]
pub(super) struct OldOrders {
    connection: ConnectionId,
    request: u32,
    from: Tid,
    is_first_approved: bool,
    /// Partitions whose packs are not known yet.
    missing: Vec<Partition>,
    /// The storages that were asked, and for which partitions.
    asked: Vec<(NodeId, Vec<Partition>)>,
    orders: Vec<PackOrder>,
}

impl Master {
    pub(super) fn ask_old_orders(
        &mut self,
        connection: ConnectionId,
        request: u32,
        from: Tid,
        is_first_approved: bool,
    ) {
        self.packs.last_old += 1;
        let number = self.packs.last_old;
        let question = OldOrders {
            connection,
            request,
            from,
            is_first_approved,
            missing: (0..self.cluster.table.partitions()).map(Partition).collect(),
            asked: Vec::new(),
            orders: Vec::new(),
        };
        self.packs.old.insert(number, question);
        self.ask_storages_of(number);
    }

    /// Asks storages with the partitions that no one was asked for.
    fn ask_storages_of(&mut self, number: u64) {
        let Some(question) = self.packs.old.get_mut(&number) else { return };
        let mut by_storage: BTreeMap<NodeId, Vec<Partition>> = BTreeMap::new();
        for partition in &question.missing {
            if question.asked.iter().any(|(_, asked)| asked.contains(partition)) {
                continue;
            }
            let cells = self.cluster.table.row(*partition).iter().filter(|cell| cell.is_readable());
            let connected = |id: NodeId| self.cluster.members.connection_of(id).is_some();
            if let Some(cell) = cells.filter(|cell| connected(cell.node)).min_by_key(|c| c.node) {
                by_storage.entry(cell.node).or_default().push(*partition);
            }
        }
        let from = question.from;
        question.asked.extend(by_storage.clone());
        for storage in by_storage.into_keys() {
            if let Some(connection) = self.cluster.members.connection_of(storage) {
                self.links.ask(connection, AskPackOrders { id: from }, Asked::OldPacks(number));
            }
        }
    }

    /// A storage has answered.
    pub(crate) fn old_orders_told(&mut self, storage: NodeId, number: u64, orders: Vec<PackOrder>) {
        let Some(question) = self.packs.old.get_mut(&number) else { return };
        question.orders.extend(orders);
        let answered = question.asked.iter().position(|(asked, _)| *asked == storage);
        if let Some(place) = answered {
            let (_, partitions) = question.asked.swap_remove(place);
            question.missing.retain(|partition| !partitions.contains(partition));
        }
        if !question.missing.is_empty() {
            return self.ask_storages_of(number);
        }
        let Some(question) = self.packs.old.remove(&number) else { return };
        let OldOrders { connection, request, from, is_first_approved, orders, .. } = question;
        self.packs.completed = Some(before(from));
        orders.into_iter().for_each(|order| self.packs.add(order));
        let orders = self.packs.orders(from, is_first_approved);
        self.links.answer(connection, request, AnswerPackOrders { orders });
        self.packs_may_be_completed();
    }

    /// A storage that was asked has left, or the node that asks.
    pub(super) fn left_old_orders(&mut self, connection: ConnectionId) {
        self.packs.old.retain(|_, question| question.connection != connection);
        let members = &self.cluster.members;
        for question in self.packs.old.values_mut() {
            question.asked.retain(|(storage, _)| members.connection_of(*storage).is_some());
        }
        let numbers: Vec<_> = self.packs.old.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.ask_storages_of(number));
    }
}
