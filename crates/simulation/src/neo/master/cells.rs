//! Changes of the partition table.

use zodium_neo::messages::{AnswerUnfinishedTransactions, CellChange, NotifyPartitionChanges, Row};
use zodium_neo::{CellState, NodeId, Partition, PartitionTable};

use super::{Master, Phase};
use crate::neo::context::Context;
use crate::neo::net::{End, WireId};
use crate::neo::storage::id_of;

impl Master {
    pub(super) fn is_operational(&self) -> bool {
        let is_here = |node| self.wire_of(node).is_some();
        self.table.as_ref().is_some_and(|table| table.is_operational(is_here))
    }

    /// Whether the cluster could go on without these storages.
    pub(super) fn could_lose(&self, failed: impl Fn(NodeId) -> bool) -> bool {
        let is_here = |node| self.wire_of(node).is_some() && !failed(node);
        self.table.as_ref().is_some_and(|table| table.is_operational(is_here))
    }

    /// The cells of storages that are gone, of partitions that are readable without them.
    pub(super) fn outdated_by_absence(&self) -> Vec<CellChange> {
        let is_here = |node: NodeId| self.wire_of(node).is_some();
        let rows = self.table.as_ref().map_or(&[][..], PartitionTable::rows);
        let rows = (0..).map(Partition).zip(rows);
        rows.flat_map(|(partition, row)| outdated(partition, row, is_here)).collect()
    }

    pub(super) fn outdated_by(&self, node: NodeId) -> Vec<CellChange> {
        let all = self.outdated_by_absence();
        all.into_iter().filter(|change| change.node == node).collect()
    }

    /// Changes the table, and tells all nodes.
    pub(super) fn change_cells(&mut self, context: &mut Context, changes: Vec<CellChange>) {
        let Some(table) = self.table.as_mut().filter(|_| !changes.is_empty()) else { return };
        let change = change_of(table, changes);
        if let Err(error) = table.apply(&change) {
            return context.violate(error.to_string());
        }
        context.history.last_table = Some(change.table);
        for change in &change.changes {
            let key = (change.partition, change.node);
            match change.state {
                CellState::OutOfDate => drop(self.cell_since.insert(key, self.begun)),
                CellState::Discarded => drop(self.taken.insert(key)),
                _ => {}
            }
        }
        let storages = self.storages().into_iter().map(|(wire, _)| wire);
        for wire in storages.chain(self.clients()) {
            context.net.send(End::MODEL, wire, change.clone());
        }
    }

    /// Moves a cell to another storage.
    pub(in crate::neo) fn move_cell(&mut self, context: &mut Context) {
        let Some(table) = self.table.as_ref().filter(|_| self.phase == Phase::Running) else {
            return;
        };
        let partition = Partition(context.chance.place(table.partitions() as usize) as u32);
        let row = table.row(partition);
        let Some(to) = id_of(context.chance.place(context.plan.storages)) else { return };
        let is_complete = row.iter().all(|cell| cell.state == CellState::UpToDate);
        let can_take = row.iter().all(|cell| cell.node != to)
            && self.wire_of(to).is_some()
            && !self.starting.contains(&to)
            && !self.taken.contains(&(partition, to));
        if !is_complete || !can_take || row.is_empty() {
            return;
        }
        let from = row[context.chance.place(row.len())].node;
        let change = |node, state| CellChange { partition, node, state };
        context.event("move", &[partition.0.into(), to.value() as u64]);
        let changes = vec![change(from, CellState::Feeding), change(to, CellState::OutOfDate)];
        self.change_cells(context, changes);
    }

    pub(super) fn unfinished_asked(
        &mut self,
        context: &mut Context,
        wire: WireId,
        id: u32,
        node: NodeId,
    ) {
        let ttids: Vec<_> = self.transactions.keys().copied().collect();
        self.watched.entry(node).or_default().extend(&ttids);
        let answer = AnswerUnfinishedTransactions { max_tid: self.last_tid, ttids };
        context.net.answer(End::MODEL, wire, id, answer);
    }

    /// A cell is up to date: those that it replaces are taken away.
    pub(super) fn replicated(&mut self, context: &mut Context, node: NodeId, partition: Partition) {
        let Some(table) = self.table.as_ref().filter(|_| self.phase == Phase::Running) else {
            return;
        };
        if table.state(partition, node) != Some(CellState::OutOfDate) {
            return;
        }
        let row = table.row(partition);
        let up_to_date = row.iter().filter(|cell| cell.state == CellState::UpToDate).count() + 1;
        let mut changes = vec![CellChange { partition, node, state: CellState::UpToDate }];
        if up_to_date > context.plan.replicas as usize {
            let feeding = row.iter().filter(|cell| cell.state == CellState::Feeding);
            let state = CellState::Discarded;
            changes.extend(feeding.map(|cell| CellChange { partition, node: cell.node, state }));
        }
        context.counts.replicated += 1;
        context.event("replicated", &[partition.0.into(), node.value() as u64]);
        self.change_cells(context, changes);
    }

    pub(super) fn are_cells_at_rest(&self) -> bool {
        let Some(table) = &self.table else { return false };
        table.rows().iter().flatten().all(|cell| cell.state == CellState::UpToDate)
    }
}

/// The next change of a table.
pub(super) fn change_of(
    table: &PartitionTable,
    changes: Vec<CellChange>,
) -> NotifyPartitionChanges {
    NotifyPartitionChanges { table: table.id().next(), replicas: table.replicas(), changes }
}

/// The cells of absent storages, if another one is readable.
fn outdated(partition: Partition, row: &Row, is_here: impl Fn(NodeId) -> bool) -> Vec<CellChange> {
    if !row.iter().any(|cell| cell.state.is_readable() && is_here(cell.node)) {
        return Vec::new();
    }
    let absent = row.iter().filter(|cell| cell.state.is_readable() && !is_here(cell.node));
    let changes = absent.map(|cell| {
        let is_feeding = cell.state == CellState::Feeding;
        let state = if is_feeding { CellState::Discarded } else { CellState::OutOfDate };
        CellChange { partition, node: cell.node, state }
    });
    changes.collect()
}
