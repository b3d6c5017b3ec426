//! Orders to storages: what they fetch, and from where.

use std::collections::BTreeMap;

use tracing::debug;
use zodium_neo::messages::Replicate;
use zodium_neo::{Address, ClusterState, Map, NodeId, Partition};
use zodium_types::Tid;

use super::progress::{Order, Source, Sources};
use crate::Master;
use crate::Phase;
use crate::handling::{Handled, Refusal};

impl Master {
    /// The upstream cluster has told its last transaction.
    pub(super) fn upstream_is_at(&mut self, last: Tid) {
        self.cluster.last_tid = last;
        let Some(backup) = &mut self.backup else { return };
        if let Some(progress) = &mut backup.progress {
            progress.begin(&self.cluster.table, last);
        }
        self.order_all();
    }

    /// A transaction was committed upstream, in these partitions.
    pub(super) fn committed_upstream(&mut self, tid: Tid, partitions: &[Partition]) -> Handled {
        if self.progress_mut().is_none_or(|progress| !progress.is_current()) {
            // The last transaction is not known yet; it will be this one or a later one.
            return Ok(());
        }
        if tid <= self.cluster.last_tid {
            return Err(Refusal::protocol(format!("{tid} is not after {}", self.cluster.last_tid)));
        }
        let previous = std::mem::replace(&mut self.cluster.last_tid, tid);
        let metadata = self.cluster.table.partition_of_tid(tid);
        let is_touched = |one| partitions.contains(&one) || metadata == Some(one);
        let Some(progress) = self.backup.as_mut().and_then(|backup| backup.progress.as_mut())
        else {
            return Ok(());
        };
        let complete = progress.committed(&self.cluster.table, (previous, tid), is_touched);
        let mut by_node: BTreeMap<NodeId, Vec<_>> = BTreeMap::new();
        for (node, partition) in complete {
            by_node.entry(node).or_default().push((partition, None));
        }
        for (node, partitions) in by_node {
            self.send_order(node, tid, "", partitions);
        }
        self.order_all();
        Ok(())
    }

    /// A storage has everything of a partition up to a transaction.
    pub(crate) fn backup_replicated(&mut self, node: NodeId, partition: Partition, tid: Tid) {
        let last = self.cluster.last_tid;
        let Some(progress) = self.backup.as_mut().and_then(|backup| backup.progress.as_mut())
        else {
            return;
        };
        let complete = progress.replicated(&self.cluster.table, (partition, node), tid, last);
        if let Some(complete) = complete {
            self.send_order(node, complete, "", vec![(partition, None)]);
        }
    }

    /// Orders what storages lack, in all partitions.
    pub(crate) fn order_all(&mut self) {
        self.order((0..self.cluster.table.partitions()).map(Partition));
    }

    /// Orders what storages lack in some partitions, and were not told.
    pub(crate) fn order(&mut self, partitions: impl Iterator<Item = Partition>) {
        if !matches!(self.phase, Phase::Backup) {
            return;
        }
        let is_current = self.progress_mut().is_some_and(|progress| progress.is_current());
        let is_following = is_current && self.cluster.state() == ClusterState::BackingUp;
        let mut orders = Vec::new();
        for partition in partitions {
            let cells = self.cluster.table.row(partition).iter().filter(|cell| cell.is_readable());
            let ready = cells.map(|cell| cell.node).filter(|node| self.readiness.is_ready(*node));
            let ready: Vec<_> = ready.collect();
            let upstream = self.upstream.as_ref().filter(|_| is_following);
            let upstream = upstream.map(|one| one.storages_of(partition)).unwrap_or_default();
            let last = self.cluster.last_tid;
            let sources = Sources { ready: &ready, upstream: &upstream, last };
            if let Some(progress) = self.progress_mut() {
                orders.extend(progress.orders(partition, &sources));
            }
        }
        self.send_orders(orders);
    }

    fn send_orders(&mut self, orders: Vec<Order>) {
        type Key = (NodeId, Tid, bool);
        let mut messages: BTreeMap<Key, Vec<(Partition, Option<Address>)>> = BTreeMap::new();
        for Order { node, partition, until, source } in orders {
            let (address, is_upstream) = match source {
                Source::Upstream(address) => (Some(address), true),
                Source::Own(other) => {
                    (self.cluster.members.get(other).and_then(|node| node.address.clone()), false)
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
            self.send_order(node, until, upstream, partitions);
        }
    }

    fn send_order(
        &mut self,
        node: NodeId,
        tid: Tid,
        upstream: &str,
        sources: Vec<(Partition, Option<Address>)>,
    ) {
        if !self.readiness.is_ready(node) {
            return;
        }
        if let Some(connection) = self.cluster.members.connection_of(node) {
            self.links.notify(connection, Replicate { tid, upstream, sources: Map(sources) });
        }
    }
}
