//! Packs: ordered by transactions, approved here, carried out by storages.
//!
//! An order is approved at once, unless an older one is still open: packs are carried out in their
//! order.

mod old;

use std::collections::BTreeMap;

use zodium_neo::messages::{
    AnswerPackOrders, NotifyPackSigned, OidList, PackOrder, PackRequest, WaitedForPack,
};
use zodium_neo::{ConnectionId, NodeId, Request};
use zodium_types::{Oid, Tid};

use self::old::OldOrders;
use crate::cluster::Cluster;
use crate::peer::Links;

/// The order of a pack.
#[derive(Debug)]
struct Pack {
    /// `None` while that is open.
    approved: Option<bool>,
    is_partial: bool,
    oids: Option<Vec<Oid>>,
    /// Up to this transaction.
    tid: Tid,
    /// Requests that are answered when it is completed.
    waiting: Vec<Request>,
}

/// The packs that are not completed, as far as is known.
#[derive(Debug, Default)]
pub(crate) struct Packs {
    /// By id: the tid of the transaction with the order.
    orders: BTreeMap<Tid, Pack>,
    /// The last pack that is known to be completed.
    completed: Option<Tid>,
    /// Questions about older packs.
    old: BTreeMap<u64, OldOrders>,
    last_old: u64,
}

impl Packs {
    /// Adds an order that a storage has told.
    pub(crate) fn add(&mut self, order: PackOrder) {
        let PackOrder { id, approved, partial, oids, tid } = order;
        let oids = oids.map(|OidList(oids)| oids);
        match self.orders.get_mut(&id) {
            Some(known) => known.approved = known.approved.or(approved),
            None => {
                let pack = Pack { approved, is_partial: partial, oids, tid, waiting: Vec::new() };
                self.orders.insert(id, pack);
                if self.completed.is_some_and(|completed| completed > id) {
                    self.completed = Some(before(id));
                }
            }
        }
    }

    /// A transaction with this tid orders a pack. Whether it is approved.
    pub(crate) fn order(&mut self, id: Tid, request: PackRequest) -> bool {
        let is_approved = self.orders.values().all(|pack| pack.approved.is_some());
        let PackRequest { oids, tid } = request;
        let is_partial = oids.as_ref().is_some_and(|oids| !oids.is_empty());
        let approved = is_approved.then_some(true);
        self.orders.insert(id, Pack { approved, is_partial, oids, tid, waiting: Vec::new() });
        is_approved
    }

    /// The first order that is open.
    pub(crate) fn first_open(&self) -> Option<Tid> {
        self.orders.iter().find(|(_, pack)| pack.approved.is_none()).map(|(id, _)| *id)
    }

    /// Notes what another cluster has decided; `false` if the order is not known here.
    pub(crate) fn sign(&mut self, id: Tid, is_approved: bool) -> bool {
        let pack = self.orders.get_mut(&id);
        pack.map(|pack| pack.approved = Some(is_approved)).is_some()
    }

    pub(crate) fn is_approved(&self, id: Tid) -> bool {
        self.orders.get(&id).is_some_and(|pack| pack.approved == Some(true))
    }

    /// What is decided of the packs from one on.
    pub(crate) fn signed(&self, from: Tid) -> NotifyPackSigned {
        let decided = |wanted: bool| {
            let packs = self.orders.range(from..);
            packs.filter(move |(_, pack)| pack.approved == Some(wanted)).map(|(id, _)| *id)
        };
        let completed = self.completed.filter(|id| from <= *id);
        let approved = completed.into_iter().chain(decided(true)).collect();
        NotifyPackSigned { approved, rejected: decided(false).collect() }
    }

    /// The orders from one on: all, or the first that is approved.
    fn orders(&self, from: Tid, is_first_approved: bool) -> Vec<PackOrder> {
        let packs = self.orders.range(from..);
        let all = packs.filter(|(_, pack)| !is_first_approved || pack.approved == Some(true));
        let count = if is_first_approved { 1 } else { usize::MAX };
        all.take(count).map(|(id, pack)| pack.told(*id)).collect()
    }

    /// All packs up to one were completed before the cluster was started.
    pub(crate) fn note_completed(&mut self, id: Tid) {
        if id > Tid::ZERO {
            self.completed = Some(id);
        }
    }

    /// All packs up to one are completed. Gives the requests that have waited for them.
    fn complete(&mut self, id: Tid) -> Vec<Request> {
        let left = self.orders.split_off(&id.next());
        let completed = std::mem::replace(&mut self.orders, left);
        self.completed = self.completed.max(completed.keys().next_back().copied());
        completed.into_values().flat_map(|pack| pack.waiting).collect()
    }

    /// A client waits for the end of a pack.
    pub(crate) fn wait(&mut self, links: &mut Links, request: Request, id: Tid) {
        match self.orders.get_mut(&id) {
            Some(pack) => pack.waiting.push(request),
            None => links.answer(request, WaitedForPack {}),
        }
    }

    /// A node asks for the orders from one on: all, or the first that is approved.
    pub(crate) fn tell_orders(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        request: Request,
        from: Tid,
        is_first_approved: bool,
    ) {
        if self.completed.is_some_and(|completed| from <= completed) {
            let question = OldOrders::new(cluster, request, from, is_first_approved);
            return self.ask_old_orders(cluster, links, question);
        }
        let orders = self.orders(from, is_first_approved);
        links.answer(request, AnswerPackOrders { orders });
    }

    /// Tells ready storages what is decided of the packs from one on.
    pub(crate) fn tell_signed(&self, cluster: &Cluster, links: &mut Links, from: Tid) {
        for storage in cluster.readiness.ready() {
            self.tell_signed_to(cluster, links, storage, from);
        }
    }

    /// Tells a storage what is decided of the packs from one on, if there is anything.
    pub(crate) fn tell_signed_to(
        &self,
        cluster: &Cluster,
        links: &mut Links,
        storage: NodeId,
        from: Tid,
    ) {
        let signed = self.signed(from);
        if let Some(connection) = cluster.members.connection_of(storage)
            && !(signed.approved.is_empty() && signed.rejected.is_empty())
        {
            links.notify(connection, signed);
        }
    }

    /// Storages have told how far they have packed.
    pub(crate) fn may_be_completed(&mut self, cluster: &Cluster, links: &mut Links) {
        let Some(id) = completed_by_all(cluster) else { return };
        for request in self.complete(id) {
            links.answer(request, WaitedForPack {});
        }
    }

    /// A client or a storage has left.
    pub(crate) fn left(&mut self, cluster: &Cluster, links: &mut Links, connection: ConnectionId) {
        for pack in self.orders.values_mut() {
            pack.waiting.retain(|waiting| waiting.connection != connection);
        }
        self.left_old_orders(cluster, links, connection);
    }
}

impl Pack {
    fn told(&self, id: Tid) -> PackOrder {
        PackOrder {
            id,
            approved: self.approved,
            partial: self.is_partial,
            oids: self.oids.clone().map(OidList),
            tid: self.tid,
        }
    }
}

/// The last pack that all storages with readable cells have completed, as far as they have told.
pub(crate) fn completed_by_all(cluster: &Cluster) -> Option<Tid> {
    let nodes = cluster.table.readable_nodes();
    nodes.iter().filter_map(|node| cluster.members.get(*node)?.completed_pack).min()
}

/// The tid before one.
fn before(tid: Tid) -> Tid {
    Tid(tid.0.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tid: u64) -> PackRequest {
        PackRequest { oids: None, tid: Tid(tid) }
    }

    #[test]
    fn an_order_is_approved_unless_an_older_one_is_open() {
        let mut packs = Packs::default();
        assert!(packs.order(Tid(10), request(5)));
        let open =
            PackOrder { id: Tid(20), approved: None, partial: false, oids: None, tid: Tid(15) };
        packs.add(open.clone());
        assert!(!packs.order(Tid(30), request(25)));
        packs.add(PackOrder { approved: Some(false), ..open.clone() });
        // What is decided stays so.
        packs.add(PackOrder { approved: Some(true), ..open });
        // The one before it is still open.
        assert!(!packs.order(Tid(40), request(25)));
        let signed = packs.signed(Tid::ZERO);
        assert_eq!(signed.approved, [Tid(10)]);
        assert_eq!(signed.rejected, [Tid(20)]);
        let ids =
            |first| packs.orders(Tid(20), first).iter().map(|one| one.id.0).collect::<Vec<_>>();
        assert_eq!((ids(false), ids(true)), (vec![20, 30, 40], vec![]));
    }

    #[test]
    fn completed_packs_are_forgotten_and_their_waiters_told() {
        let mut packs = Packs::default();
        packs.order(Tid(10), request(5));
        packs.order(Tid(20), request(5));
        let waiting = Request { connection: ConnectionId::new(1), id: 7 };
        packs.orders.get_mut(&Tid(10)).unwrap().waiting.push(waiting);
        assert_eq!(packs.complete(Tid(9)), []);
        assert_eq!(packs.complete(Tid(10)), [waiting]);
        assert_eq!(packs.signed(Tid::ZERO).approved, [Tid(10), Tid(20)]);
        assert_eq!(packs.signed(Tid(11)).approved, [Tid(20)]);
    }
}
