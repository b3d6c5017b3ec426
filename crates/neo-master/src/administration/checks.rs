//! Checks that the replicas of partitions are equal.

use std::collections::BTreeSet;

use tracing::warn;
use zodium_neo::messages::{CheckPartition, CheckReplicas, CheckSource};
use zodium_neo::{ConnectionId, NodeId, Partition};

use crate::Master;
use crate::handling::Handled;

impl Master {
    pub(super) fn check_replicas(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: &CheckReplicas,
    ) -> Handled {
        self.require_running("checkReplicas")?;
        let max_tid = message.max_tid.unwrap_or(self.last_tid);
        let min_tid = message.min_tid;
        if min_tid > max_tid {
            warn!(%min_tid, %max_tid, "nothing to check");
        } else {
            let mut checking = BTreeSet::new();
            for (partition, source) in &message.references.0 {
                let Some(node) = self.checker(*partition, &checking) else { continue };
                checking.insert(node);
                let address = source.and_then(|source| self.members.get(source)?.address.clone());
                if let Some(storage) = self.members.connection_of(node) {
                    let source = CheckSource { upstream: "", address };
                    let partition = *partition;
                    self.notify(storage, CheckPartition { partition, source, min_tid, max_tid });
                }
            }
        }
        self.acknowledge(connection, id, "");
        Ok(())
    }

    /// The storage that compares a partition: one that compares others already, if there is one.
    fn checker(&self, partition: Partition, checking: &BTreeSet<NodeId>) -> Option<NodeId> {
        let readable = self.table.row(partition).iter().filter(|cell| cell.is_readable());
        let nodes: Vec<_> = readable.map(|cell| cell.node).collect();
        if nodes.len() < 2 {
            return None;
        }
        nodes.iter().find(|node| checking.contains(node)).or(nodes.last()).copied()
    }
}
