//! Drops the data of partitions that are not of this node, a step at a time.

use std::collections::BTreeSet;

use zodium_neo::Partition;

use super::Replication;
use crate::cluster::Cluster;
use crate::links::Links;

/// Rows of a partition that is dropped, in one step.
const DROP_ROWS: u32 = 500;

/// Partitions whose data are being dropped.
#[derive(Debug, Default)]
pub(super) struct Dropping {
    partitions: BTreeSet<Partition>,
    is_busy: bool,
}

impl Dropping {
    /// Keeps the data of a partition that this node has again.
    pub(super) fn keep(&mut self, partition: Partition) {
        self.partitions.remove(&partition);
    }

    fn step(&mut self, links: &mut Links) {
        let Some(partition) = self.partitions.first().copied() else { return };
        if std::mem::replace(&mut self.is_busy, true) {
            return;
        }
        links.write_lazily(
            move |database| database.drop_partition(partition, DROP_ROWS),
            move |node, is_more| {
                let dropping = &mut node.replication.dropping;
                dropping.is_busy = false;
                if !is_more {
                    dropping.keep(partition);
                }
                dropping.step(&mut node.links);
            },
        );
    }
}

impl Replication {
    /// Drops the data of partitions that are not of this node.
    pub(crate) fn drop_unassigned(&mut self, links: &mut Links, cluster: &Cluster) {
        let Some((table, own)) = cluster.own_table() else { return };
        if !cluster.settings().drops_partitions {
            return;
        }
        let all = (0..table.partitions()).map(Partition);
        let others = all.filter(|partition| table.state(*partition, own).is_none());
        self.dropping.partitions = others.collect();
        self.dropping.step(links);
    }
}
