//! The recovery: the newest partition table is found, and storages come until each partition can be
//! read. The election goes on meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use tracing::{info, warn};
use zodium_neo::messages::{
    AnswerPartitionTable, AnswerRecovery, AskPartitionTable, AskRecovery, Error, Truncate,
};
use zodium_neo::{ConnectionId, ErrorCode, Message, NodeId, NodeState, NodeType, TableId};
use zodium_types::Tid;

use crate::Stop;
use crate::backup::Backup;
use crate::cluster::Cluster;
use crate::election;
use crate::handling::{Handled, Refusal};
use crate::members::Node;
use crate::peer::{Asked, Links};
use crate::table::Table;
use crate::troubles::Troubles;

/// The recovery, and what was decided before it on how the cluster may start.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// How many recoveries have begun.
    number: u64,
    found: Found,
    /// The cluster starts without all storages that it could have.
    may_start: bool,
    /// The partition table that was in use before, unless an operator starts the cluster.
    last_table: Option<TableId>,
    /// The last transaction that the cluster ran with, as far as this master knows.
    last_tid: Option<Tid>,
    /// An operator has started the cluster: one without a table is a new one.
    may_create: bool,
    /// All storages cut their databases after this transaction before they start.
    truncate_tid: Option<Tid>,
}

/// What is known of storages.
#[derive(Debug, Default)]
struct Found {
    /// The newest table that a storage has.
    newest: Option<TableId>,
    /// Storages with that table: the first one is asked for it. Empty when it is loaded.
    sources: Vec<NodeId>,
    is_loaded: bool,
    /// What storages have said of themselves.
    told: BTreeMap<NodeId, Told>,
}

/// A storage whose id belongs to another one, or that has lost what it had.
const NO_TABLE: &str = "this node has no partition table, but the cluster has data under its id";

#[derive(Clone, Copy, Debug)]
struct Told {
    table: Option<TableId>,
    backup_tid: Option<Tid>,
    truncate_tid: Option<Tid>,
}

impl Recovery {
    /// Begins to find the newest table.
    pub(crate) fn begin(&mut self) {
        self.number += 1;
        self.found = Found::default();
        self.truncate_tid = None;
    }

    /// The cluster starts only when all storages are there that it could have.
    pub(crate) fn forbid_start(&mut self) {
        (self.may_start, self.may_create, self.last_table) = (false, false, None);
    }

    /// An operator starts the cluster with the storages that are there.
    pub(crate) fn allow_start(&mut self) {
        (self.may_start, self.may_create, self.last_table) = (true, true, None);
    }

    /// Another master is primary: the cluster may run with it, and what it commits and cuts this
    /// one does not learn.
    pub(crate) fn forget_run(&mut self) {
        self.last_tid = None;
    }

    /// Operation stops. Whether the cluster may start again without all its storages depends on
    /// the reason.
    pub(crate) fn operation_stopped(&mut self, cluster: &Cluster, stop: Stop) {
        // But not if storages that are away could keep what is cut.
        self.may_start = match stop {
            Stop::NotOperational => self.truncate_tid.is_none(),
            Stop::Truncate(_) | Stop::Unsettled => false,
            Stop::LeaveBackup(tid) => tid >= cluster.last_tid,
        };
        (self.may_create, self.last_table) = (false, cluster.table.id());
        if cluster.is_operating() {
            self.last_tid = match stop {
                // What is cut is not missed, and all storages have to be there.
                Stop::Truncate(_) | Stop::LeaveBackup(_) => None,
                Stop::NotOperational | Stop::Unsettled => Some(cluster.last_tid),
            };
        }
    }

    /// The number of this recovery, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The last transaction that the cluster ran with, as far as this master knows.
    pub(crate) fn last_tid(&self) -> Option<Tid> {
        self.last_tid
    }

    /// The transaction after which all storages are to cut their databases.
    pub(crate) fn truncate_tid(&self) -> Option<Tid> {
        self.truncate_tid
    }

    /// All storages have cut their databases.
    pub(crate) fn truncated(&mut self) {
        self.truncate_tid = None;
    }

    /// The partition tables that storages had before this recovery. It needs them no more.
    pub(crate) fn take_tables(&mut self) -> BTreeMap<NodeId, TableId> {
        let told = std::mem::take(&mut self.found.told).into_iter();
        told.filter_map(|(storage, told)| Some((storage, told.table?))).collect()
    }

    /// Asks a storage for what it has.
    pub(crate) fn ask(&self, links: &mut Links, connection: ConnectionId) {
        links.ask(connection, AskRecovery {}, Asked::Recovery(self.number));
    }

    fn ask_table(&self, links: &mut Links, connection: ConnectionId) {
        links.ask(connection, AskPartitionTable {}, Asked::Table(self.number));
    }

    /// Handles the answer of a storage.
    pub(crate) fn told(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
        troubles: &mut Troubles,
        (connection, storage): (ConnectionId, NodeId),
        asked: Option<Asked>,
        message: Message<'_>,
    ) -> Handled {
        match (asked, message) {
            (Some(Asked::Recovery(number)), Message::AnswerRecovery(answer))
                if number == self.number =>
            {
                self.table_offered(links, connection, storage, &answer);
                self.refuse_without_table(cluster, links);
            }
            (Some(Asked::Table(number)), Message::AnswerPartitionTable(answer))
                if number == self.number =>
            {
                self.table_told(cluster, links, troubles, storage, &answer)?;
                self.refuse_without_table(cluster, links);
            }
            // From before this recovery: the storage may have another table since.
            (_, Message::AnswerInformationLocked(_)) | (Some(_), _) => {}
            (None, other) => return Err(Refusal::unexpected(&other)),
        }
        Ok(())
    }

    fn table_offered(
        &mut self,
        links: &mut Links,
        connection: ConnectionId,
        storage: NodeId,
        answer: &AnswerRecovery,
    ) {
        let AnswerRecovery { table, backup_tid, truncate_tid } = *answer;
        let found = &mut self.found;
        let table = table.filter(|table| table.0 > 0);
        found.told.insert(storage, Told { table, backup_tid, truncate_tid });
        let Some(table) = table else { return };
        if found.newest.is_none_or(|newest| newest < table) {
            (found.newest, found.is_loaded) = (Some(table), false);
            found.sources = vec![storage];
            self.ask_table(links, connection);
        } else if found.newest == Some(table) && !found.is_loaded {
            found.sources.push(storage);
            if found.sources.len() == 1 {
                self.ask_table(links, connection);
            }
        }
    }

    fn table_told(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
        troubles: &mut Troubles,
        storage: NodeId,
        answer: &AnswerPartitionTable,
    ) -> Handled {
        let found = &mut self.found;
        if found.newest != Some(answer.table) {
            return Ok(());
        }
        let table = Table::load(answer).map_err(Refusal::protocol)?;
        found.is_loaded = true;
        found.sources.clear();
        self.truncate_tid = None;
        let mut added = Vec::new();
        for node in table.nodes() {
            if cluster.members.get(node).is_none() {
                let unknown = Node::new(NodeType::Storage, None, NodeState::Down);
                added.push(unknown.told(node));
                cluster.members.insert(node, unknown);
            }
        }
        info!(table = %answer.table, %storage, "loaded the partition table");
        troubles.table_found(answer.table, self.last_tid);
        cluster.table = table;
        cluster.tell_nodes(links, &added);
        cluster.tell_table_to_admins(links);
        Ok(())
    }

    /// Refuses storages that have no partition table, though the loaded one has cells of them.
    ///
    /// Such a storage is a new one that came before that whose id it got, or one with a new
    /// database. Taken for what the table says, it would be read instead of the copies there are.
    fn refuse_without_table(&self, cluster: &mut Cluster, links: &mut Links) {
        if cluster.table.is_unused() {
            return;
        }
        let without = self.found.told.iter().filter(|(_, told)| told.table.is_none());
        for (storage, _) in without {
            let connection = cluster.members.connection_of(*storage);
            let Some(connection) = connection.filter(|_| cluster.table.has_member(*storage)) else {
                continue;
            };
            refuse(cluster, links, connection, *storage);
        }
    }

    /// Has a new storage leave whose id is asked for by another one: that may be the only one with
    /// the partition table, without which the new storage would keep the id. The new one gets
    /// another id when it comes again.
    pub(crate) fn make_way(
        &self,
        cluster: &mut Cluster,
        links: &mut Links,
        wanted: Option<NodeId>,
    ) {
        let Some(storage) = wanted else { return };
        let has_no_table = self.found.told.get(&storage).is_some_and(|told| told.table.is_none());
        let is_id_given = cluster.members.get(storage).is_some_and(|node| node.is_id_given);
        if has_no_table
            && is_id_given
            && let Some(connection) = cluster.members.connection_of(storage)
        {
            refuse(cluster, links, connection, storage);
        }
    }

    /// A storage has left.
    pub(crate) fn storage_left(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
        storage: NodeId,
    ) {
        // Another one may get the id of a storage that has no data.
        let is_new = self.found.told.get(&storage).is_some_and(|told| told.table.is_none());
        let is_forgotten = is_new && !cluster.table.has_member(storage);
        if let Some(node) = cluster.members.get_mut(storage) {
            node.state = if is_forgotten { NodeState::Unknown } else { NodeState::Down };
            node.connection = None;
            cluster.tell_node(links, storage);
        }
        if is_forgotten {
            cluster.members.remove(storage);
        }
        self.without(cluster, links, storage);
    }

    /// A storage does not answer any more: another one is asked for the table.
    pub(crate) fn without(&mut self, cluster: &Cluster, links: &mut Links, storage: NodeId) {
        let found = &mut self.found;
        found.told.remove(&storage);
        let was_asked = found.sources.first() == Some(&storage);
        found.sources.retain(|source| *source != storage);
        if was_asked {
            match found.sources.first().and_then(|next| cluster.members.connection_of(*next)) {
                Some(next) => self.ask_table(links, next),
                None => warn!(%storage, "no other storage has the newest partition table, waiting"),
            }
        }
    }

    /// Ends the recovery if it can be; whether it has.
    pub(crate) fn advance(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
        backup: &mut Backup,
    ) -> bool {
        self.weigh(cluster, backup);
        let Some(storages) = self.storages_to_start(cluster, backup) else { return false };
        let is_busy = |id: &NodeId| {
            let connection = cluster.members.connection_of(*id);
            connection.is_none_or(|connection| links.unanswered(connection) > 0)
        };
        if storages.is_empty() || storages.iter().any(is_busy) {
            return false;
        }
        if cluster.table.id().is_none() {
            create_table(cluster, links, &storages);
            return true;
        }
        if self.cut_first(cluster, links) {
            return false;
        }
        let connected = |id: &NodeId| cluster.members.connection_of(*id).is_some();
        let storages = cluster.table.nodes().into_iter().filter(connected).collect();
        run_storages(cluster, links, &storages);
        let members = &cluster.members;
        cluster.table.outdate(None, |id| members.is_running(id));
        // Also when all its storages are there: one that has not answered yet, or that was just
        // being added, may have later versions. Their numbers must not be given to others. And a
        // master that was primary before sees by it that another one has been since.
        cluster.table.begin_anew();
        cluster.tell_table_to_admins(links);
        let told = &self.found.told;
        backup.restore(&cluster.table, |node| told.get(&node).and_then(|told| told.backup_tid));
        true
    }

    /// Finds out whether the cluster is a backup, or is to be cut, from what storages have said.
    ///
    /// Only those with readable cells count. Others may have the newest table, too, without a part
    /// in the last operation. Their state of a backup, or order to truncate, is from long before.
    fn weigh(&mut self, cluster: &Cluster, backup: &mut Backup) {
        if !self.found.is_loaded {
            return;
        }
        let readable = cluster.table.readable_nodes();
        let told = self.found.told.iter().filter(|(storage, _)| readable.contains(storage));
        let told = told.map(|(_, told)| told);
        // An order may have reached only some storages before its master was lost.
        let orders = told.clone().filter_map(|told| told.truncate_tid);
        self.truncate_tid = self.truncate_tid.into_iter().chain(orders).min();
        // A backup that is to be cut is none any more.
        let is_cut = self.truncate_tid.is_some();
        backup.found(told.filter_map(|told| told.backup_tid).min().filter(|_| !is_cut));
    }

    /// The storages that the cluster starts with, if it may start.
    fn storages_to_start(&self, cluster: &Cluster, backup: &Backup) -> Option<BTreeSet<NodeId>> {
        let is_pending = |id: NodeId| cluster.members.state(id) == Some(NodeState::Pending);
        let found = &self.found;
        if backup.lacks_upstream() {
            return None;
        }
        if found.newest.is_some() && !found.is_loaded {
            // Another table is loaded, or none: with that, what was committed since would be lost.
            return None;
        }
        if cluster.table.id().is_some() && cluster.table.is_filled() {
            let storages = cluster.table.operational_nodes(is_pending);
            // Others may have what was committed since an older table, or, after a newer one, what
            // another master committed meanwhile.
            let is_last = self.last_table.is_none_or(|last| cluster.table.id() == Some(last));
            if self.may_start && is_last {
                return Some(storages.into_iter().filter(|id| is_pending(*id)).collect());
            }
            // All that are cut must be there, or those that come later keep what is cut.
            let cuts = self.truncate_tid.is_some() && !storages.is_empty();
            let storages = if cuts { cluster.table.nodes() } else { storages };
            return storages.iter().all(|id| is_pending(*id)).then_some(storages);
        }
        let identified = cluster.members.identified(NodeType::Storage);
        let enough =
            cluster.settings.autostart.is_some_and(|count| identified.len() >= count as usize);
        // A table that a storage is still asked for makes the cluster an old one. And after a loss
        // of storages the one with the table may be away: only an operator can know.
        (cluster.table.id().is_none() && (self.may_create || enough))
            .then(|| identified.into_iter().map(|(id, _)| id).collect())
    }

    /// Has storages with cells note that they are to be cut; whether some had not noted it.
    fn cut_first(&self, cluster: &Cluster, links: &mut Links) -> bool {
        let Some(tid) = self.truncate_tid else { return false };
        let nodes = cluster.table.nodes();
        let is_behind = |told: &Told| told.truncate_tid.is_none_or(|other| other > tid);
        let behind: Vec<_> = self
            .found
            .told
            .iter()
            .filter(|(storage, told)| nodes.contains(storage) && is_behind(told))
            .filter_map(|(id, _)| cluster.members.connection_of(*id))
            .collect();
        for connection in &behind {
            links.notify(*connection, Truncate { tid });
            self.ask(links, *connection);
        }
        !behind.is_empty()
    }
}

/// Refuses a storage that has an id without the partition table that belongs to it.
fn refuse(cluster: &mut Cluster, links: &mut Links, connection: ConnectionId, storage: NodeId) {
    let reason = "it has no partition table, but the cluster has data under its id";
    if cluster.refused.note(storage, reason) {
        warn!(
            %storage, peer = links.name_of(connection),
            "refusing a storage that has no partition table, since the cluster has data under \
            its id: it is another storage, or has lost its database"
        );
    }
    links.notify(connection, Error { code: ErrorCode::ProtocolError, message: NO_TABLE });
    links.close(connection);
}

/// Storages that the cluster starts with run, and the election ends.
fn run_storages(cluster: &mut Cluster, links: &mut Links, storages: &BTreeSet<NodeId>) {
    let mut told = Vec::new();
    for id in storages {
        if let Some(node) = cluster.members.get_mut(*id) {
            node.state = NodeState::Running;
            told.push(node.told(*id));
        }
    }
    told.extend(election::end(cluster, links));
    cluster.tell_nodes(links, &told);
}

/// Makes the first partition table of a cluster.
fn create_table(cluster: &mut Cluster, links: &mut Links, storages: &BTreeSet<NodeId>) {
    info!(storages = storages.len(), "creating a partition table");
    run_storages(cluster, links, storages);
    for id in storages {
        cluster.table.add_member(*id);
    }
    let devices = cluster.devices();
    // There are storages, so it succeeds.
    if cluster.table.tweak(&BTreeSet::new(), &devices).is_some() {
        cluster.table.next_id();
    }
    cluster.table.forget_members_without_cells();
    cluster.tell_table_to_admins(links);
}
