//! Backup clusters: partitions are fetched from a storage of the upstream cluster, or from one of
//! the own cluster that has them already.

use tracing::{error, info};
use zodium_neo::Partition;
use zodium_neo::messages::{NotifyPartitionCorrupted, Replicate};
use zodium_types::Tid;

use super::fetching::Current;
use super::{BackupSource, Cell, Replication};
use crate::cluster::Cluster;
use crate::database::CellProgress;
use crate::links::Links;

impl Cell {
    /// A readable cell of a backup cluster: its last records may be incomplete.
    pub(super) fn of_backup(found: &CellProgress, backup_tid: Tid) -> Cell {
        let first = if backup_tid == Tid::ZERO { Tid::ZERO } else { backup_tid.next() };
        Cell {
            next_transaction: first.max(found.last_transaction.map_or(Tid::ZERO, Tid::next)),
            next_record: first.max(found.last_record.unwrap_or(Tid::ZERO)),
            ..Cell::default()
        }
    }
}

impl Replication {
    /// The cluster becomes a backup while it operates.
    pub(crate) fn enter_backup(&mut self, cluster: &Cluster, cells: &[CellProgress]) {
        let Some(backup_tid) = cluster.backup_tid() else { return };
        for found in cells.iter().filter(|cell| cell.replicated.is_none()) {
            self.cells.insert(found.partition, Cell::of_backup(found, backup_tid));
        }
    }

    /// The master says that there is something new upstream.
    pub(crate) fn note_upstream(&mut self, message: &Replicate<'_>) {
        let Replicate { tid, upstream, sources } = message;
        let current = self.partition();
        for (partition, address) in &sources.0 {
            if let Some(address) = address {
                let (address, cluster) = (address.clone(), (*upstream).to_owned());
                let source = BackupSource { address, cluster };
                self.sources.insert(*partition, source);
                self.wanted.insert(*partition, *tid);
            } else if current != Some(*partition)
                && !self.wanted.contains_key(partition)
                && let Some(cell) = self.cells.get_mut(partition)
            {
                (cell.next_transaction, cell.next_record) = (tid.next(), tid.next());
            }
        }
    }

    /// Fetches nothing of the current partition: the upstream cluster lacks a transaction of it, so
    /// the two together would be a database that never was. The master is told by a partition that
    /// is corrupted in no cell; one of NEO/py logs that.
    pub(super) fn leave_upstream(&mut self, links: &mut Links, tid: Tid) {
        let Some(Current { partition, .. }) = self.current.take() else { return };
        error!(%partition, %tid, "the upstream cluster lacks a transaction of this backup: it was \
            truncated, or an older copy was put back");
        links.notify_master(NotifyPartitionCorrupted { partition, nodes: Vec::new() });
    }

    /// The cluster will not be a backup any more.
    pub(crate) fn stop_backup(&mut self) {
        info!("the cluster stops being a backup");
        let sources = self.sources.iter().filter(|(_, source)| !source.cluster.is_empty());
        let upstream: Vec<Partition> = sources.map(|(partition, _)| *partition).collect();
        for partition in &upstream {
            self.wanted.remove(partition);
        }
        if self.partition().is_some_and(|current| upstream.contains(&current)) {
            self.current = None;
        }
    }

    /// The last transaction up to which all readable cells are complete, in a backup cluster.
    pub(crate) fn complete_until(&self, cluster: &Cluster) -> Tid {
        let readable = cluster.cells().filter(|(_, state)| state.is_readable());
        let cells = readable.filter_map(|(partition, _)| self.cells.get(&partition));
        let next = cells.map(|cell| cell.next_transaction.min(cell.next_record)).min();
        Tid(next.unwrap_or(Tid::ZERO).0.saturating_sub(1))
    }

    /// Whether a partition has all that packs up to `last` may look at, also in a backup cluster.
    pub(crate) fn can_pack(&self, cluster: &Cluster, partition: Partition, last: Tid) -> bool {
        let Some(cell) = self.cells.get(&partition) else { return false };
        cluster.backup_tid().is_none() || cell.next_transaction.min(cell.next_record) > last
    }
}
