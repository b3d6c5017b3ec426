//! What the node knows of its cluster: its own id, the partition table, members, and phase.
//!
//! Only the coordinator changes it. Parts read it to decide which partitions the node serves.

use std::cmp::Ordering;

use zodium_neo::messages::{NodeInformation, NotifyPartitionChanges, SendPartitionTable};
use zodium_neo::{Address, CellState, NodeId, Partition, PartitionTable};
use zodium_types::{Oid, Tid};

use crate::Settings;
use crate::handling::{Handled, Refusal};
use crate::members::Members;
use crate::phase::Phase;

/// The cluster as one of its storages knows it.
#[derive(Debug)]
pub(crate) struct Cluster {
    settings: Settings,
    /// The id of this node, from the database or from the master.
    id: Option<NodeId>,
    /// Whether the database has the id.
    is_id_saved: bool,
    table: Option<PartitionTable>,
    members: Members,
    phase: Phase,
    /// While operating in a backup cluster: the last transaction that is complete.
    backup_tid: Option<Tid>,
}

impl Cluster {
    /// A cluster without its master. `id` and `table` are from the database.
    pub(crate) fn new(
        settings: Settings,
        id: Option<NodeId>,
        table: Option<PartitionTable>,
    ) -> Cluster {
        let (members, phase) = (Members::default(), Phase::Alone);
        let is_id_saved = id.is_some();
        Cluster { settings, id, is_id_saved, table, members, phase, backup_tid: None }
    }

    /// The options of the node.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The id of this node.
    pub(crate) fn id(&self) -> Option<NodeId> {
        self.id
    }

    /// Notes the id of this node; `None` while it asks for another one.
    pub(crate) fn set_id(&mut self, id: Option<NodeId>) {
        self.is_id_saved &= self.id == id;
        self.id = id;
    }

    /// The id of this node, if the database is to be given it now.
    ///
    /// Not before the first table: a master that does not know the table yet may give a new node
    /// the id of an old one, and refuses the new node when it finds out.
    pub(crate) fn id_to_save(&mut self) -> Option<NodeId> {
        let id = self.id.filter(|_| self.table.is_some() && !self.is_id_saved);
        self.is_id_saved |= id.is_some();
        id
    }

    /// The master is lost: the id that it gave may be another node's.
    pub(crate) fn forget_unsaved_id(&mut self) {
        self.id = self.id.filter(|_| self.is_id_saved);
    }

    /// The other nodes.
    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    /// Notes what the master says of nodes.
    pub(crate) fn note_nodes(&mut self, timestamp: f64, nodes: &[NodeInformation]) {
        self.members.note(timestamp, nodes);
    }

    /// A master has accepted this node: it will tell all members.
    pub(crate) fn begin_recovery(&mut self) {
        self.members = Members::default();
        self.phase = Phase::Recovering;
    }

    /// How far the node is.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Notes how far the node is.
    pub(crate) fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// The last transaction that is complete, while operating in a backup cluster.
    pub(crate) fn backup_tid(&self) -> Option<Tid> {
        self.backup_tid
    }

    /// Notes the last transaction that is complete in a backup cluster.
    pub(crate) fn set_backup_tid(&mut self, tid: Option<Tid>) {
        self.backup_tid = tid;
    }

    /// The partition table.
    pub(crate) fn table(&self) -> Option<&PartitionTable> {
        self.table.as_ref()
    }

    /// The partition table with the id of this node, when both are known.
    pub(crate) fn own_table(&self) -> Option<(&PartitionTable, NodeId)> {
        Some((self.table.as_ref()?, self.id?))
    }

    /// Number of partitions; 0 without a table.
    pub(crate) fn partitions(&self) -> u32 {
        self.table.as_ref().map_or(0, PartitionTable::partitions)
    }

    /// Takes the table that the master sends.
    pub(crate) fn set_table(&mut self, message: SendPartitionTable) -> Handled {
        let table = PartitionTable::from_message(message);
        let table = table.map_err(|error| Refusal::protocol(error.to_string()))?;
        let Some(table) = table.filter(PartitionTable::is_filled) else {
            return Err(Refusal::protocol("a partition table with empty partitions"));
        };
        let known = self.partitions();
        if known != 0 && known != table.partitions() {
            let text = format!("{} partitions instead of {known}", table.partitions());
            return Err(Refusal::protocol(text));
        }
        self.check_is_newer(&table)?;
        self.table = Some(table);
        Ok(())
    }

    /// Refuses a table from before the one that this node has.
    ///
    /// The cluster was created anew, or started without what this node has: it would be replaced.
    fn check_is_newer(&self, table: &PartitionTable) -> Handled {
        let Some((saved, own)) = self.own_table() else { return Ok(()) };
        let has_cells = |table: &PartitionTable| table.cells_of(own).next().is_some();
        let is_earlier = match table.id().cmp(&saved.id()) {
            Ordering::Less => true,
            // Each change of a table has a number of its own.
            Ordering::Equal => !has_cells(table),
            Ordering::Greater => false,
        };
        if !is_earlier || !has_cells(saved) {
            return Ok(());
        }
        Err(Refusal::protocol(format!(
            "partition table {} does not follow table {} of this node: the cluster was created \
             anew, or started without what this node has",
            table.id(),
            saved.id()
        )))
    }

    /// Changes the table as the master says.
    pub(crate) fn change_table(&mut self, message: &NotifyPartitionChanges) -> Handled {
        let Some(table) = &mut self.table else {
            return Err(Refusal::protocol("a change of a partition table that was not sent"));
        };
        table.apply(message).map_err(|error| Refusal::protocol(error.to_string()))
    }

    /// The cells of this node.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (Partition, CellState)> {
        self.own_table().into_iter().flat_map(|(table, own)| table.cells_of(own))
    }

    /// The partitions that this node serves reads of.
    pub(crate) fn readable(&self) -> Vec<Partition> {
        let readable = self.cells().filter(|(_, state)| state.is_readable());
        readable.map(|(partition, _)| partition).collect()
    }

    /// The state of this node's cell of a partition.
    pub(crate) fn state(&self, partition: Partition) -> Option<CellState> {
        let (table, id) = self.own_table()?;
        table.state(partition, id)
    }

    /// Whether this node serves reads of a partition.
    pub(crate) fn is_readable(&self, partition: Partition) -> bool {
        self.state(partition).is_some_and(|state| state.is_readable())
    }

    /// Refuses a read of a partition that this node does not serve.
    ///
    /// Answers check it as well: when the master takes a cell away its rows are dropped, perhaps
    /// before the read.
    pub(crate) fn check_readable(&self, partition: Partition) -> Handled {
        match self.is_readable(partition) {
            true => Ok(()),
            false => Err(Refusal::not_readable()),
        }
    }

    /// Refuses a read of an object that this node does not serve.
    pub(crate) fn check_readable_oid(&self, oid: Oid) -> Handled {
        self.check_readable(self.partition_of(oid)?)
    }

    /// Refuses a read of a transaction that this node does not serve.
    pub(crate) fn check_readable_tid(&self, tid: Tid) -> Handled {
        let partition = self.partition_of_tid(tid);
        self.check_readable(partition.ok_or_else(Refusal::not_readable)?)
    }

    /// The partition of an object.
    pub(crate) fn partition_of(&self, oid: Oid) -> Result<Partition, Refusal> {
        let table = self.table.as_ref();
        let partition = table.and_then(|table| table.partition_of_oid(oid));
        partition.ok_or_else(|| Refusal::not_ready("no partition table"))
    }

    /// The partition of the metadata of a transaction.
    pub(crate) fn partition_of_tid(&self, tid: Tid) -> Option<Partition> {
        self.table.as_ref()?.partition_of_tid(tid)
    }

    /// Whether an object is in one of some partitions.
    pub(crate) fn is_in(&self, partitions: &[Partition], oid: Oid) -> bool {
        let partition = self.table.as_ref().and_then(|table| table.partition_of_oid(oid));
        partition.is_some_and(|partition| partitions.contains(&partition))
    }

    /// Whether this node has a cell of a partition, in any state.
    pub(crate) fn has_cell(&self, partition: Option<Partition>) -> bool {
        let (Some((table, own)), Some(partition)) = (self.own_table(), partition) else {
            return false;
        };
        table.state(partition, own).is_some()
    }

    /// Whether this node has the only cell of a partition, and all its data.
    pub(crate) fn is_alone_in(&self, partition: Option<Partition>) -> bool {
        let (Some((table, own)), Some(partition)) = (self.own_table(), partition) else {
            return false;
        };
        let is_full = |state: CellState| state.is_readable();
        matches!(table.row(partition), [cell] if cell.node == own && is_full(cell.state))
    }

    /// Whether a running storage fetches a partition, or is about to.
    pub(crate) fn is_fetched(&self, partition: Partition) -> bool {
        let Some(table) = &self.table else { return false };
        table.row(partition).iter().any(|cell| {
            cell.state == CellState::OutOfDate
                && Some(cell.node) != self.id
                && self.members.running_address(cell.node).is_some()
        })
    }

    /// Where running storages listen that have all data of a partition.
    pub(crate) fn sources_of(&self, partition: Partition) -> Vec<Address> {
        let others = self.others_with(partition);
        others.filter_map(|node| self.members.running_address(node).cloned()).collect()
    }

    /// Other nodes with a readable cell of a partition.
    pub(crate) fn others_with(&self, partition: Partition) -> impl Iterator<Item = NodeId> {
        let readable = self.table.iter().flat_map(move |table| table.readable(partition));
        readable.filter(|node| Some(*node) != self.id)
    }
}
