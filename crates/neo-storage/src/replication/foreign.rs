//! A source that lacks the last transaction of a cell.

use tracing::error;
use zodium_neo::messages::NotifyPartitionCorrupted;
use zodium_types::Tid;

use super::Replication;
use crate::cluster::Cluster;
use crate::links::Links;

impl Replication {
    /// The source of the current partition lacks a transaction of this cell.
    pub(super) fn source_lacks(&mut self, links: &mut Links, cluster: &Cluster, tid: Tid) {
        let Some(current) = &self.current else { return };
        if current.source.is_some() {
            return self.leave_upstream(links, tid);
        }
        let (partition, own) = (current.partition, cluster.id());
        let Some(cell) = self.cells.get_mut(&partition) else { return };
        if !std::mem::replace(&mut cell.was_lacked, true) {
            // Another source may have it. And a pack may just have removed it, as the master tells.
            return self.give_up(links, cluster);
        }
        self.current = None;
        self.is_foreign = true;
        error!(
            %partition, %tid,
            "the database of this storage has transactions that the cluster has not: it is of \
             another cluster, or of before commits were given up. Nothing is fetched. Erase it \
             (--reset), or put the right one here"
        );
        let nodes = own.into_iter().collect();
        links.notify_master(NotifyPartitionCorrupted { partition, nodes });
    }
}
