//! Packs of the upstream cluster: its orders come with its transactions, and its decisions here.

use zodium_neo::ConnectionId;
use zodium_neo::messages::{AskPackOrders, NotifyPackSigned, PackOrder};
use zodium_types::Tid;

use crate::Master;
use crate::peer::Asked;

impl Master {
    /// Asks for the packs that this cluster does not know, or does not know the decision of.
    pub(super) fn ask_upstream_packs(&mut self, connection: ConnectionId) {
        let next = self.backup_tid().unwrap_or_default().next();
        let from = self.packs.first_open().map_or(next, |open| open.min(next));
        self.links.ask(connection, AskPackOrders { id: from }, Asked::UpstreamPacks(from));
    }

    /// The upstream cluster has told packs.
    pub(super) fn upstream_packs_told(&mut self, from: Tid, orders: Vec<PackOrder>) {
        orders.into_iter().for_each(|order| self.packs.add(order));
        self.packs.tell_signed(&self.cluster, &mut self.links, &self.readiness, from);
        if let Some(upstream) = &mut self.upstream {
            upstream.knows_packs = true;
        }
    }

    /// The upstream cluster has decided on packs.
    pub(super) fn signed_upstream(&mut self, connection: ConnectionId, message: &NotifyPackSigned) {
        if self.upstream.as_ref().is_none_or(|upstream| !upstream.knows_packs) {
            // The answer that is awaited has them.
            return;
        }
        let approved = message.approved.iter().map(|id| (*id, true));
        let rejected = message.rejected.iter().map(|id| (*id, false));
        let (mut known, mut unknown) = (None, None);
        for (id, is_approved) in approved.chain(rejected) {
            let first = if self.packs.sign(id, is_approved) { &mut known } else { &mut unknown };
            *first = Some(first.map_or(id, |first: Tid| first.min(id)));
        }
        match (known, unknown) {
            (_, Some(unknown)) => {
                let from = known.map_or(unknown, |known| known.min(unknown));
                let asked = Asked::UpstreamPacks(from);
                self.links.ask(connection, AskPackOrders { id: unknown }, asked);
            }
            (Some(known), None) => {
                self.packs.tell_signed(&self.cluster, &mut self.links, &self.readiness, known)
            }
            (None, None) => {}
        }
    }
}
