//! Checks that the replicas of partitions are equal.
//!
//! NEO's storages tell which copies differ. Ours also tell which are the same, so they are asked
//! first.

use std::collections::BTreeSet;

use tracing::warn;
use zodium_neo::messages::{CheckPartition, CheckReplicas, CheckSource};
use zodium_neo::{Checked, NodeId, Partition, Request, ask_checks};
use zodium_types::Tid;

use super::nodes::storage_connection;
use super::{acknowledge, require_operating};
use crate::backup::Backup;
use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::peer::Links;

/// Has storages compare partitions with their other copies, up to `least` at least where no end is
/// given. Gives what is compared, as if all of it were the same: `None` for partitions of which a
/// storage will tell.
pub(super) fn check_replicas(
    cluster: &Cluster,
    links: &mut Links,
    backup: &Backup,
    request: Request,
    (message, least): (&CheckReplicas, Tid),
) -> Result<Vec<Checked>, Refusal> {
    require_operating(cluster, "checkReplicas")?;
    require_known(cluster, message)?;
    let partitions = message.references.0.iter().map(|(partition, _)| *partition);
    let complete = backup.common_tid_of(&cluster.table, partitions).unwrap_or(cluster.last_tid);
    let max_tid = message.max_tid.unwrap_or(complete.max(least));
    let min_tid = message.min_tid;
    let mut untold = Vec::new();
    if min_tid > max_tid {
        warn!(%min_tid, %max_tid, "nothing to check");
    } else {
        let mut checking = BTreeSet::new();
        for (partition, source) in &message.references.0 {
            // A backup is compared with the upstream cluster, unless a storage is named.
            let upstream = backup.upstream_of(*partition).filter(|_| source.is_none());
            let others = usize::from(upstream.is_some());
            let node = checker(cluster, *partition, others, &checking);
            if !node.is_some_and(|node| tells(cluster, node)) {
                let copies = readable(cluster, *partition).len() as u32;
                untold.push(Checked { partition: *partition, min_tid, max_tid, copies });
            }
            let Some(node) = node else { continue };
            let is_first = checking.insert(node);
            let own = source.and_then(|source| cluster.members.get(source)?.address.clone());
            if let Some(storage) = cluster.members.connection_of(node) {
                if is_first && tells(cluster, node) {
                    links.notify(storage, ask_checks());
                }
                let (upstream, address) = match upstream {
                    Some((cluster, address)) => (cluster, Some(address)),
                    None => (String::new(), own),
                };
                let source = CheckSource { upstream: &upstream, address };
                let partition = *partition;
                links.notify(storage, CheckPartition { partition, source, min_tid, max_tid });
            }
        }
    }
    acknowledge(links, request, "");
    Ok(untold)
}

/// Refuses partitions that there are not, and storages that are not there.
fn require_known(cluster: &Cluster, message: &CheckReplicas) -> Handled {
    for (partition, source) in &message.references.0 {
        if partition.0 >= cluster.table.partitions() {
            return Err(Refusal::denied(format!("there is no partition {partition}")));
        }
        if let Some(source) = source {
            storage_connection(cluster, *source)?;
        }
    }
    Ok(())
}

/// The storage that compares a partition: one that tells how that ends, and that compares others
/// already, if there is one. `others` storages of another cluster have it, too.
fn checker(
    cluster: &Cluster,
    partition: Partition,
    others: usize,
    checking: &BTreeSet<NodeId>,
) -> Option<NodeId> {
    let mut nodes = readable(cluster, partition);
    if nodes.len() + others < 2 {
        return None;
    }
    if nodes.iter().any(|node| tells(cluster, *node)) {
        nodes.retain(|node| tells(cluster, *node));
    }
    nodes.iter().find(|node| checking.contains(node)).or(nodes.last()).copied()
}

/// The storages with a readable cell of a partition.
fn readable(cluster: &Cluster, partition: Partition) -> Vec<NodeId> {
    let readable = cluster.table.row(partition).iter().filter(|cell| cell.is_readable());
    readable.map(|cell| cell.node).collect()
}

/// Whether a storage tells which copies are the same.
fn tells(cluster: &Cluster, storage: NodeId) -> bool {
    cluster.members.get(storage).is_some_and(|node| node.about.tells_checks)
}
