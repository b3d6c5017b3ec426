//! Packs of the upstream cluster: its orders come with its transactions, and its decisions here.

use zodium_neo::ConnectionId;
use zodium_neo::messages::{AskPackOrders, NotifyPackSigned, PackOrder};
use zodium_types::Tid;

use super::Backup;
use crate::cluster::Cluster;
use crate::packs::Packs;
use crate::peer::{Asked, Links};

impl Backup {
    /// Asks for the packs that this cluster does not know, or does not know the decision of.
    pub(super) fn ask_upstream_packs(
        &self,
        cluster: &Cluster,
        links: &mut Links,
        packs: &Packs,
        connection: ConnectionId,
    ) {
        let next = self.tid(&cluster.table).unwrap_or_default().next();
        let from = packs.first_open().map_or(next, |open| open.min(next));
        links.ask(connection, AskPackOrders { id: from }, Asked::UpstreamPacks(from));
    }

    /// The upstream cluster has told packs.
    pub(crate) fn upstream_packs_told(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        packs: &mut Packs,
        (from, orders): (Tid, Vec<PackOrder>),
    ) {
        orders.into_iter().for_each(|order| packs.add(order));
        packs.tell_signed(cluster, links, from);
        if let Some(upstream) = &mut self.upstream {
            upstream.knows_packs = true;
        }
    }

    /// The upstream cluster has decided on packs.
    pub(super) fn signed_upstream(
        &self,
        cluster: &Cluster,
        links: &mut Links,
        packs: &mut Packs,
        (connection, message): (ConnectionId, &NotifyPackSigned),
    ) {
        if self.upstream.as_ref().is_none_or(|upstream| !upstream.knows_packs) {
            // The answer that is awaited has them.
            return;
        }
        let approved = message.approved.iter().map(|id| (*id, true));
        let rejected = message.rejected.iter().map(|id| (*id, false));
        let (mut known, mut unknown) = (None, None);
        for (id, is_approved) in approved.chain(rejected) {
            let first = if packs.sign(id, is_approved) { &mut known } else { &mut unknown };
            *first = Some(first.map_or(id, |first: Tid| first.min(id)));
        }
        match (known, unknown) {
            (_, Some(unknown)) => {
                let from = known.map_or(unknown, |known| known.min(unknown));
                let asked = Asked::UpstreamPacks(from);
                links.ask(connection, AskPackOrders { id: unknown }, asked);
            }
            (Some(known), None) => packs.tell_signed(cluster, links, known),
            (None, None) => {}
        }
    }
}
