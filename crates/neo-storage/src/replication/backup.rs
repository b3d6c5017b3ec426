//! Backup clusters: partitions are fetched from a storage of the upstream cluster, or from one of
//! the own cluster that has them already.

use tracing::info;
use zodium_neo::Partition;
use zodium_neo::messages::Replicate;
use zodium_types::Tid;

use super::{BackupSource, Cell};
use crate::Node;
use crate::database::CellProgress;
use crate::handling::Handled;

impl Cell {
    /// A readable cell of a backup cluster: its last records may be incomplete.
    pub(super) fn of_backup(found: &CellProgress, backup_tid: Tid) -> Cell {
        let first = if backup_tid == Tid::ZERO { Tid::ZERO } else { backup_tid.next() };
        Cell {
            next_transaction: first.max(found.last_transaction.map_or(Tid::ZERO, Tid::next)),
            next_record: first.max(found.last_record.unwrap_or(Tid::ZERO)),
            waits_for: None,
            compared: Tid::ZERO,
        }
    }
}

impl Node {
    /// The cluster becomes a backup while it operates.
    pub(crate) fn enter_backup(&mut self, cells: &[CellProgress]) {
        let Some(backup_tid) = self.backup_tid else { return };
        for found in cells.iter().filter(|cell| cell.replicated.is_none()) {
            self.replication.cells.insert(found.partition, Cell::of_backup(found, backup_tid));
        }
    }

    /// The master says that there is something new upstream.
    pub(crate) fn replicate_for_backup(&mut self, message: &Replicate<'_>) -> Handled {
        let Replicate { tid, upstream, sources } = message;
        let current = self.replication.current.as_ref().map(|current| current.partition);
        for (partition, address) in &sources.0 {
            if let Some(address) = address {
                let (address, cluster) = (address.clone(), (*upstream).to_owned());
                let source = BackupSource { address, cluster };
                self.replication.sources.insert(*partition, source);
                self.replication.wanted.insert(*partition, *tid);
            } else if current != Some(*partition)
                && !self.replication.wanted.contains_key(partition)
                && let Some(cell) = self.replication.cells.get_mut(partition)
            {
                (cell.next_transaction, cell.next_record) = (tid.next(), tid.next());
            }
        }
        self.save_backup_tid();
        self.replicate_next();
        Ok(())
    }

    /// The cluster will not be a backup any more.
    pub(crate) fn stop_backup(&mut self) {
        info!("the cluster stops being a backup");
        let upstream: Vec<Partition> = self
            .replication
            .sources
            .iter()
            .filter(|(_, source)| !source.cluster.is_empty())
            .map(|(partition, _)| *partition)
            .collect();
        for partition in &upstream {
            self.replication.wanted.remove(partition);
        }
        let current = self.replication.current.as_ref();
        if current.is_some_and(|current| upstream.contains(&current.partition)) {
            self.stop_current();
        }
        self.replicate_next();
    }

    /// Saves up to which transaction all readable cells are complete.
    pub(super) fn save_backup_tid(&mut self) {
        let Some(before) = self.backup_tid else { return };
        let (Some(table), Some(own)) = (&self.table, self.id) else { return };
        let readable = table.cells_of(own).filter(|(_, state)| state.is_readable());
        let cells = readable.filter_map(|(partition, _)| self.replication.cells.get(&partition));
        let next = cells.map(|cell| cell.next_transaction.min(cell.next_record)).min();
        let tid = Tid(next.unwrap_or(Tid::ZERO).0.saturating_sub(1));
        if tid != before {
            self.backup_tid = Some(tid);
            self.write(move |database| database.set_backup_tid(Some(tid)), |_, ()| {});
        }
        if before < self.packing.last() && self.packing.last() <= tid {
            // The order was told before all that it may look at was here.
            self.look_for_packs();
        }
    }

    /// Whether a partition of a backup cluster has all that a pack may look at.
    pub(crate) fn can_pack_in_backup(&self, partition: Partition) -> bool {
        let Some(cell) = self.replication.cells.get(&partition) else { return false };
        self.backup_tid.is_none()
            || cell.next_transaction.min(cell.next_record) > self.packing.last()
    }
}
