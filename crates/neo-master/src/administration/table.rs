//! Commands for the partition table.

use std::collections::BTreeSet;

use zodium_neo::messages::{AnswerTweakPartitionTable, TweakPartitionTable};
use zodium_neo::{ConnectionId, NodeState, NodeType};

use crate::Master;
use crate::handling::{Handled, Refusal};

impl Master {
    pub(super) fn set_num_replicas(
        &mut self,
        connection: ConnectionId,
        id: u32,
        replicas: u32,
    ) -> Handled {
        self.require_operating("setNumReplicas")?;
        self.cluster.table.set_replicas(replicas);
        self.cluster.tell_cells(&mut self.links, Vec::new(), true);
        self.acknowledge(connection, id, "");
        Ok(())
    }

    pub(super) fn tweak_table(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: &TweakPartitionTable,
    ) -> Handled {
        self.require_operating("tweakPartitionTable")?;
        let mut excluded = BTreeSet::new();
        for (storage, node) in self.cluster.members.of(NodeType::Storage) {
            if message.excluded.contains(&storage) || node.state == NodeState::Pending {
                excluded.insert(storage);
            } else if node.state != NodeState::Running {
                return Err(Refusal::denied("tweak: down nodes must be listed explicitly"));
            }
        }
        let mut table = self.cluster.table.clone();
        let Some(changes) = table.tweak(&excluded, &self.cluster.devices()) else {
            return Err(Refusal::denied("Can't remove all nodes."));
        };
        if !changes.is_empty() && !table.may_follow() {
            return Err(too_early("tweak"));
        }
        let (changed, rows) = (!changes.is_empty(), table.told_rows());
        if !message.dry_run {
            self.cluster.table = table;
            self.cluster.tell_cells(&mut self.links, changes, false);
            self.order_all();
        }
        self.links.answer(connection, id, AnswerTweakPartitionTable { changed, rows });
        Ok(())
    }
}

/// Refuses a change after which no storage could say that earlier tables are out of use.
pub(super) fn too_early(command: &str) -> Refusal {
    Refusal::denied(format!(
        "{command}: storages have not confirmed the last change of the partition table, try again"
    ))
}
