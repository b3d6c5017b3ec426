//! The recovery: the newest partition table is found, and storages come until each partition can be
//! read. The election goes on meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use tracing::{error, info, warn};
use zodium_neo::messages::{
    AnswerPartitionTable, AnswerRecovery, AskPartitionTable, AskRecovery, Truncate,
};
use zodium_neo::{ClusterState, ConnectionId, Message, NodeId, NodeState, NodeType, TableId};
use zodium_types::Tid;

use crate::Master;
use crate::Phase;
use crate::handling::{Handled, Refusal};
use crate::members::Node;
use crate::peer::Asked;
use crate::table::Table;

/// What is known of storages.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// The newest table that a storage has.
    newest: Option<TableId>,
    /// Storages with that table: the first one is asked for it. Empty when it is loaded.
    sources: Vec<NodeId>,
    is_loaded: bool,
    /// What storages have said of themselves.
    told: BTreeMap<NodeId, Told>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    backup_tid: Option<Tid>,
    truncate_tid: Option<Tid>,
}

impl Master {
    pub(crate) fn begin_recovery(&mut self) {
        self.recoveries += 1;
        self.phase = Phase::Recovery(Recovery::default());
        self.truncate_tid = None;
        self.backup.forget(&mut self.links);
        self.cluster.forget_table();
        self.cluster.set_state(&mut self.links, ClusterState::Recovering);
        for (_, connection) in self.cluster.members.identified(NodeType::Storage) {
            self.ask_recovery(connection);
        }
    }

    pub(crate) fn ask_recovery(&mut self, connection: ConnectionId) {
        self.links.ask(connection, AskRecovery {}, Asked::Recovery(self.recoveries));
    }

    /// Handles the answer of a storage in the recovery.
    pub(crate) fn recovery_told(
        &mut self,
        connection: ConnectionId,
        storage: NodeId,
        asked: Option<Asked>,
        message: Message<'_>,
    ) -> Handled {
        match (asked, message) {
            (Some(Asked::Recovery(number)), Message::AnswerRecovery(answer))
                if number == self.recoveries =>
            {
                self.table_offered(connection, storage, &answer);
            }
            (Some(Asked::Table(number)), Message::AnswerPartitionTable(answer))
                if number == self.recoveries =>
            {
                self.table_told(storage, &answer)?;
            }
            // From before this recovery: the storage may have another table since.
            (_, Message::AnswerInformationLocked(_)) | (Some(_), _) => {}
            (None, other) => return Err(Refusal::unexpected(&other)),
        }
        Ok(())
    }

    fn table_offered(
        &mut self,
        connection: ConnectionId,
        storage: NodeId,
        answer: &AnswerRecovery,
    ) {
        let Phase::Recovery(recovery) = &mut self.phase else { return };
        let AnswerRecovery { table, backup_tid, truncate_tid } = *answer;
        recovery.told.insert(storage, Told { backup_tid, truncate_tid });
        let Some(table) = table.filter(|table| table.0 > 0) else { return };
        let is_newer = recovery.newest.is_none_or(|newest| newest < table);
        if is_newer {
            (recovery.newest, recovery.is_loaded) = (Some(table), false);
            recovery.sources = vec![storage];
            self.links.ask(connection, AskPartitionTable {}, Asked::Table(self.recoveries));
        } else if recovery.newest == Some(table) && !recovery.is_loaded {
            recovery.sources.push(storage);
            if recovery.sources.len() == 1 {
                self.links.ask(connection, AskPartitionTable {}, Asked::Table(self.recoveries));
            }
        }
    }

    fn table_told(&mut self, storage: NodeId, answer: &AnswerPartitionTable) -> Handled {
        let Phase::Recovery(recovery) = &mut self.phase else { return Ok(()) };
        if recovery.newest != Some(answer.table) {
            return Ok(());
        }
        let table = Table::load(answer).map_err(Refusal::protocol)?;
        recovery.is_loaded = true;
        recovery.sources.clear();
        let told = recovery.told.get(&storage);
        self.backup.found(told.and_then(|told| told.backup_tid));
        self.truncate_tid = told.and_then(|told| told.truncate_tid);
        let mut added = Vec::new();
        for node in table.nodes() {
            if self.cluster.members.get(node).is_none() {
                let unknown = Node::new(NodeType::Storage, None, NodeState::Down);
                added.push(unknown.told(node));
                self.cluster.members.insert(node, unknown);
            }
        }
        info!(table = %answer.table, %storage, "loaded the partition table");
        if self.backup.lacks_upstream() {
            error!(
                "the cluster does not start: this is the database of a backup cluster. Give \
                --upstream-cluster and --upstream-masters"
            );
        }
        self.cluster.table = table;
        self.cluster.tell_nodes(&mut self.links, &added);
        self.cluster.tell_table_to_admins(&mut self.links);
        Ok(())
    }

    /// A storage has left in the recovery.
    pub(crate) fn storage_left_recovery(&mut self, storage: NodeId) {
        if let Some(node) = self.cluster.members.get_mut(storage) {
            (node.state, node.connection) = (NodeState::Down, None);
            self.cluster.tell_node(&mut self.links, storage);
        }
        let Phase::Recovery(recovery) = &mut self.phase else { return };
        recovery.told.remove(&storage);
        let was_asked = recovery.sources.first() == Some(&storage);
        recovery.sources.retain(|source| *source != storage);
        if was_asked {
            match recovery
                .sources
                .first()
                .and_then(|next| self.cluster.members.connection_of(*next))
            {
                Some(next) => {
                    self.links.ask(next, AskPartitionTable {}, Asked::Table(self.recoveries))
                }
                None => warn!(%storage, "no other storage has the newest partition table, waiting"),
            }
        }
    }

    /// Ends the recovery if it can be; whether it has.
    pub(crate) fn advance_recovery(&mut self) -> bool {
        let Some(storages) = self.storages_to_start() else { return false };
        let is_busy = |id: &NodeId| {
            let connection = self.cluster.members.connection_of(*id);
            connection.is_none_or(|connection| self.links.is_asked(connection))
        };
        if storages.is_empty() || storages.iter().any(is_busy) {
            return false;
        }
        if self.cluster.table.id().is_none() {
            self.start_new_cluster(&storages);
            return true;
        }
        if self.cut_first() {
            return false;
        }
        let connected = |id: &NodeId| self.cluster.members.connection_of(*id).is_some();
        let storages = self.cluster.table.nodes().into_iter().filter(connected).collect();
        self.run_storages(&storages);
        let members = &self.cluster.members;
        self.cluster.table.outdate(None, |id| members.is_running(id));
        // Also when all its storages are there: one that has not answered yet, or that was just
        // being added, may have later versions. Their numbers must not be given to others. And a
        // master that was primary before sees by it that another one has been since.
        self.cluster.table.begin_anew();
        self.cluster.tell_table_to_admins(&mut self.links);
        if let Phase::Recovery(recovery) = &mut self.phase {
            let told = std::mem::take(&mut recovery.told);
            let backup_tid = |node| told.get(&node).and_then(|told: &Told| told.backup_tid);
            self.backup.restore(&self.cluster.table, backup_tid);
        }
        self.begin_verification();
        true
    }

    /// The storages that the cluster starts with, if it may start.
    fn storages_to_start(&self) -> Option<BTreeSet<NodeId>> {
        let is_pending = |id: NodeId| self.cluster.members.state(id) == Some(NodeState::Pending);
        let Phase::Recovery(recovery) = &self.phase else { return None };
        if self.backup.lacks_upstream() {
            return None;
        }
        if recovery.newest.is_some() && !recovery.is_loaded {
            // Another table is loaded, or none: with that, what was committed since would be lost.
            return None;
        }
        if self.cluster.table.id().is_some() && self.cluster.table.is_filled() {
            let storages = self.cluster.table.operational_nodes(is_pending);
            // Others may have what was committed since an older table, or, after a newer one, what
            // another master committed meanwhile.
            let is_last = self.last_table.is_none_or(|last| self.cluster.table.id() == Some(last));
            if self.may_start && is_last {
                return Some(storages.into_iter().filter(|id| is_pending(*id)).collect());
            }
            // All that are cut must be there, or those that come later keep what is cut.
            let cuts = self.truncate_tid.is_some() && !storages.is_empty();
            let storages = if cuts { self.cluster.table.nodes() } else { storages };
            return storages.iter().all(|id| is_pending(*id)).then_some(storages);
        }
        let identified = self.cluster.members.identified(NodeType::Storage);
        let enough =
            self.cluster.settings.autostart.is_some_and(|count| identified.len() >= count as usize);
        // A table that a storage is still asked for makes the cluster an old one. And after a loss
        // of storages the one with the table may be away: only an operator can know.
        (self.cluster.table.id().is_none() && (self.may_create || enough))
            .then(|| identified.into_iter().map(|(id, _)| id).collect())
    }

    /// Has storages note that they are to be cut, which have not; whether there are any.
    fn cut_first(&mut self) -> bool {
        let (Some(tid), Phase::Recovery(recovery)) = (self.truncate_tid, &self.phase) else {
            return false;
        };
        let is_behind = |told: &Told| told.truncate_tid.is_none_or(|other| other > tid);
        let behind: Vec<_> = recovery
            .told
            .iter()
            .filter(|(_, told)| is_behind(told))
            .filter_map(|(id, _)| self.cluster.members.connection_of(*id))
            .collect();
        for connection in &behind {
            self.links.notify(*connection, Truncate { tid });
            self.ask_recovery(*connection);
        }
        !behind.is_empty()
    }

    fn run_storages(&mut self, storages: &BTreeSet<NodeId>) {
        let mut told = Vec::new();
        for id in storages {
            if let Some(node) = self.cluster.members.get_mut(*id) {
                node.state = NodeState::Running;
                told.push(node.told(*id));
            }
        }
        told.extend(self.end_election());
        self.cluster.tell_nodes(&mut self.links, &told);
    }

    /// Makes the first partition table of a cluster.
    fn start_new_cluster(&mut self, storages: &BTreeSet<NodeId>) {
        info!(storages = storages.len(), "creating a partition table");
        self.run_storages(storages);
        for id in storages {
            self.cluster.table.add_member(*id);
        }
        let devices = self.cluster.devices();
        // There are storages, so it succeeds.
        if self.cluster.table.tweak(&BTreeSet::new(), &devices).is_some() {
            self.cluster.table.next_id();
        }
        self.cluster.table.forget_members_without_cells();
        self.cluster.tell_table_to_admins(&mut self.links);
        self.begin_verification();
    }
}
