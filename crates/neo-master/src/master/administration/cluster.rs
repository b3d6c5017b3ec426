//! Commands for the whole cluster: its start, its logs.

use zodium_neo::messages::FlushLog;
use zodium_neo::{ConnectionId, NodeType};

use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::peer::{Links, Role};

/// Refuses a start without storages, or while one of them has something to tell.
pub(super) fn require_storages(cluster: &Cluster, links: &Links) -> Handled {
    let storages = cluster.members.identified(NodeType::Storage);
    if storages.is_empty() {
        return Err(Refusal::denied("Cannot exit recovery without any storage node"));
    }
    let entering = storages.iter().find(|(_, connection)| links.unanswered(*connection) > 0);
    if let Some((storage, _)) = entering {
        return Err(Refusal::denied(format!(
            "Cannot exit recovery now: node {storage} is entering cluster"
        )));
    }
    Ok(())
}

/// Has all nodes write out their logs, but the one that asks for it.
pub(super) fn flush_logs(links: &mut Links, connection: ConnectionId) {
    let is_node = |role: &Role| {
        matches!(role, Role::Secondary { .. } | Role::Storage(_) | Role::Client(_) | Role::Admin(_))
    };
    for node in links.with(is_node) {
        if node != connection {
            links.notify(node, FlushLog {});
        }
    }
}
