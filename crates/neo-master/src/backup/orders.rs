//! Orders to storages: what they fetch, and from where.

use std::collections::BTreeMap;

use tracing::debug;
use zodium_neo::messages::Replicate;
use zodium_neo::{Address, ClusterState, Map, NodeId, Partition};
use zodium_types::Tid;

use super::Backup;
use super::progress::{Order, Source, Sources};
use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::peer::Links;

impl Backup {
    /// The upstream cluster has told its last transaction.
    pub(crate) fn upstream_is_at(&mut self, cluster: &mut Cluster, links: &mut Links, last: Tid) {
        cluster.last_tid = last;
        if let Some(progress) = self.progress_mut() {
            progress.begin(&cluster.table, last);
        }
        self.order_all(cluster, links);
    }

    /// A transaction was committed upstream, in these partitions.
    pub(super) fn committed_upstream(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
        tid: Tid,
        partitions: &[Partition],
    ) -> Handled {
        if !self.is_current() {
            // The last transaction is not known yet; it will be this one or a later one.
            return Ok(());
        }
        if tid <= cluster.last_tid {
            return Err(Refusal::protocol(format!("{tid} is not after {}", cluster.last_tid)));
        }
        let previous = std::mem::replace(&mut cluster.last_tid, tid);
        let metadata = cluster.table.partition_of_tid(tid);
        let is_touched = |one| partitions.contains(&one) || metadata == Some(one);
        let Some(progress) = self.progress_mut() else { return Ok(()) };
        let complete = progress.committed(&cluster.table, (previous, tid), is_touched);
        let mut by_node: BTreeMap<NodeId, Vec<_>> = BTreeMap::new();
        for (node, partition) in complete {
            by_node.entry(node).or_default().push((partition, None));
        }
        for (node, partitions) in by_node {
            let told = Told { node, tid, upstream: "", sources: partitions };
            send_order(cluster, links, told);
        }
        self.order_all(cluster, links);
        Ok(())
    }

    /// A storage has everything of a partition up to a transaction.
    pub(crate) fn replicated(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        (partition, node): (Partition, NodeId),
        tid: Tid,
    ) {
        let last = cluster.last_tid;
        let Some(progress) = self.progress_mut() else { return };
        let complete = progress.replicated(&cluster.table, (partition, node), tid, last);
        if let Some(complete) = complete {
            let sources = vec![(partition, None)];
            let told = Told { node, tid: complete, upstream: "", sources };
            send_order(cluster, links, told);
        }
    }

    /// Orders what storages lack, in all partitions.
    pub(crate) fn order_all(&mut self, cluster: &Cluster, links: &mut Links) {
        self.order(cluster, links, (0..cluster.table.partitions()).map(Partition));
    }

    /// Orders what storages lack in some partitions, and were not told.
    pub(crate) fn order(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        partitions: impl Iterator<Item = Partition>,
    ) {
        if !cluster.is_following() {
            return;
        }
        let is_following = self.is_current() && cluster.state() == ClusterState::BackingUp;
        let mut orders = Vec::new();
        for partition in partitions {
            let cells = cluster.table.row(partition).iter().filter(|cell| cell.is_readable());
            let ready =
                cells.map(|cell| cell.node).filter(|node| cluster.readiness.is_ready(*node));
            let ready: Vec<_> = ready.collect();
            let upstream = self.upstream.as_ref().filter(|_| is_following);
            let upstream = upstream.map(|one| one.storages_of(partition)).unwrap_or_default();
            let last = cluster.last_tid;
            let sources = Sources { ready: &ready, upstream: &upstream, last };
            if let Some(progress) = self.progress_mut() {
                orders.extend(progress.orders(partition, &sources));
            }
        }
        self.send_orders(cluster, links, orders);
    }

    fn send_orders(&self, cluster: &Cluster, links: &mut Links, orders: Vec<Order>) {
        type Key = (NodeId, Tid, bool);
        let mut messages: BTreeMap<Key, Vec<(Partition, Option<Address>)>> = BTreeMap::new();
        for Order { node, partition, until, source } in orders {
            let (address, is_upstream) = match source {
                Source::Upstream(address) => (Some(address), true),
                Source::Own(other) => {
                    (cluster.members.get(other).and_then(|node| node.address.clone()), false)
                }
            };
            // Every storage with cells has an address.
            if let Some(address) = address {
                debug!(storage = %node, %partition, %until, from = %address, "to replicate");
                messages
                    .entry((node, until, is_upstream))
                    .or_default()
                    .push((partition, Some(address)));
            }
        }
        let upstream = self.upstream.as_ref().map(|one| one.cluster().to_owned());
        let upstream = upstream.unwrap_or_default();
        for ((node, until, is_upstream), partitions) in messages {
            let upstream = if is_upstream { &*upstream } else { "" };
            let told = Told { node, tid: until, upstream, sources: partitions };
            send_order(cluster, links, told);
        }
    }
}

/// What a storage is told to fetch.
struct Told<'a> {
    node: NodeId,
    tid: Tid,
    /// The upstream cluster, if it is fetched from there.
    upstream: &'a str,
    sources: Vec<(Partition, Option<Address>)>,
}

fn send_order(cluster: &Cluster, links: &mut Links, told: Told<'_>) {
    let Told { node, tid, upstream, sources } = told;
    if !cluster.readiness.is_ready(node) {
        return;
    }
    if let Some(connection) = cluster.members.connection_of(node) {
        links.notify(connection, Replicate { tid, upstream, sources: Map(sources) });
    }
}
