//! Commands for the partition table.

use std::collections::BTreeSet;

use zodium_neo::messages::{AnswerTweakPartitionTable, TweakPartitionTable};
use zodium_neo::{NodeState, NodeType, Request};

use super::{acknowledge, require_operating};
use crate::backup::Backup;
use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::peer::Links;

/// Changes how many copies of each partition there are beside the first one.
pub(super) fn set_replicas(
    cluster: &mut Cluster,
    links: &mut Links,
    request: Request,
    replicas: u32,
) -> Handled {
    require_operating(cluster, "setNumReplicas")?;
    cluster.table.set_replicas(replicas);
    cluster.tell_cells(links, Vec::new(), true);
    acknowledge(links, request, "");
    Ok(())
}

/// Spreads cells over the storages that are not excluded.
pub(super) fn tweak(
    cluster: &mut Cluster,
    links: &mut Links,
    backup: &mut Backup,
    request: Request,
    message: &TweakPartitionTable,
) -> Handled {
    require_operating(cluster, "tweakPartitionTable")?;
    let mut excluded = BTreeSet::new();
    for (storage, node) in cluster.members.of(NodeType::Storage) {
        if message.excluded.contains(&storage) || node.state == NodeState::Pending {
            excluded.insert(storage);
        } else if node.state != NodeState::Running {
            return Err(Refusal::denied("tweak: down nodes must be listed explicitly"));
        }
    }
    let mut table = cluster.table.clone();
    let Some(changes) = table.tweak(&excluded, &cluster.devices()) else {
        return Err(Refusal::denied("Can't remove all nodes."));
    };
    if !changes.is_empty() && !table.may_follow() {
        return Err(too_early("tweak"));
    }
    let (changed, rows) = (!changes.is_empty(), table.told_rows());
    if !message.dry_run {
        cluster.table = table;
        cluster.tell_cells(links, changes, false);
        backup.order_all(cluster, links);
    }
    links.answer(request, AnswerTweakPartitionTable { changed, rows });
    Ok(())
}

/// Refuses a change after which no storage could say that earlier tables are out of use.
pub(super) fn too_early(command: &str) -> Refusal {
    Refusal::denied(format!(
        "{command}: storages have not confirmed the last change of the partition table, try again"
    ))
}
