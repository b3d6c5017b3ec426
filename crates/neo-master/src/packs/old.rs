//! Questions about packs that are completed: storages know of these.

use std::collections::BTreeMap;

use zodium_neo::messages::{AnswerPackOrders, AskPackOrders, PackOrder};
use zodium_neo::{ConnectionId, NodeId, Partition, Request};
use zodium_types::Tid;

use super::{Packs, before};
use crate::cluster::Cluster;
use crate::peer::{Asked, Links};

/// A question about packs that are completed.
#[derive(Debug)]
pub(super) struct OldOrders {
    request: Request,
    from: Tid,
    is_first_approved: bool,
    /// Partitions whose packs are not known yet.
    missing: Vec<Partition>,
    /// The storages that were asked, and for which partitions.
    asked: Vec<(NodeId, Vec<Partition>)>,
    orders: Vec<PackOrder>,
}

impl OldOrders {
    /// A question of a node that no storage was asked yet.
    pub(super) fn new(
        cluster: &Cluster,
        request: Request,
        from: Tid,
        is_first_approved: bool,
    ) -> OldOrders {
        let missing = (0..cluster.table.partitions()).map(Partition).collect();
        let (asked, orders) = Default::default();
        OldOrders { request, from, is_first_approved, missing, asked, orders }
    }
}

impl Packs {
    /// Asks storages what a node asks for.
    pub(super) fn ask_old_orders(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        question: OldOrders,
    ) {
        self.last_old += 1;
        self.old.insert(self.last_old, question);
        self.ask_storages_of(cluster, links, self.last_old);
    }

    /// Asks storages with the partitions that no one was asked for.
    fn ask_storages_of(&mut self, cluster: &Cluster, links: &mut Links, number: u64) {
        let Some(question) = self.old.get_mut(&number) else { return };
        let mut by_storage: BTreeMap<NodeId, Vec<Partition>> = BTreeMap::new();
        for partition in &question.missing {
            if question.asked.iter().any(|(_, asked)| asked.contains(partition)) {
                continue;
            }
            let cells = cluster.table.row(*partition).iter().filter(|cell| cell.is_readable());
            let connected = |id: NodeId| cluster.members.connection_of(id).is_some();
            if let Some(cell) = cells.filter(|cell| connected(cell.node)).min_by_key(|c| c.node) {
                by_storage.entry(cell.node).or_default().push(*partition);
            }
        }
        let from = question.from;
        question.asked.extend(by_storage.clone());
        for storage in by_storage.into_keys() {
            if let Some(connection) = cluster.members.connection_of(storage) {
                links.ask(connection, AskPackOrders { id: from }, Asked::OldPacks(number));
            }
        }
    }

    /// A storage has answered.
    pub(crate) fn old_orders_told(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        (storage, number): (NodeId, u64),
        orders: Vec<PackOrder>,
    ) {
        let Some(question) = self.old.get_mut(&number) else { return };
        question.orders.extend(orders);
        let answered = question.asked.iter().position(|(asked, _)| *asked == storage);
        if let Some(place) = answered {
            let (_, partitions) = question.asked.swap_remove(place);
            question.missing.retain(|partition| !partitions.contains(partition));
        }
        if !question.missing.is_empty() {
            return self.ask_storages_of(cluster, links, number);
        }
        let Some(question) = self.old.remove(&number) else { return };
        let OldOrders { request, from, is_first_approved, orders, .. } = question;
        self.completed = Some(before(from));
        orders.into_iter().for_each(|order| self.add(order));
        let orders = self.orders(from, is_first_approved);
        links.answer(request, AnswerPackOrders { orders });
        self.may_be_completed(cluster, links);
    }

    /// A storage that was asked has left, or the node that asks.
    pub(super) fn left_old_orders(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        connection: ConnectionId,
    ) {
        self.old.retain(|_, question| question.request.connection != connection);
        let members = &cluster.members;
        for question in self.old.values_mut() {
            question.asked.retain(|(storage, _)| members.connection_of(*storage).is_some());
        }
        let numbers: Vec<_> = self.old.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.ask_storages_of(cluster, links, number));
    }
}
