//! A backup cluster: its storages replicate what is committed in another cluster, the upstream one.
//!
//! The primary master is a client of the upstream cluster, which tells it of each commit. It orders
//! storages to fetch partitions: for each partition one of them, from a storage upstream, and the
//! others from that one. Cells are readable all the time, so storages show nothing after the last
//! transaction that all of them have, the `backup_tid`.
//!
//! When the cluster stops to be a backup, what is after that transaction is cut off.

mod clients;
mod orders;
mod packs;
mod progress;
mod upstream;

use tracing::{error, info, warn};
use zodium_neo::{ClusterState, NodeId, NodeType, Partition};
use zodium_types::Tid;

use self::progress::Progress;
pub(crate) use self::upstream::Upstream;
use crate::Master;
use crate::handling::{Handled, Refusal};
use crate::{Phase, Stop};

pub(crate) const NO_UPSTREAM: &str = "No upstream cluster to backup defined in configuration";

/// What the master knows of the backup that its cluster is.
#[derive(Debug)]
pub(crate) struct Backup {
    /// As a storage has told in the recovery.
    found: Tid,
    /// `None` in the recovery.
    progress: Option<Progress>,
}

impl Backup {
    /// The database of a backup cluster, as a storage has told.
    pub(crate) fn found(found: Tid) -> Backup {
        Backup { found, progress: None }
    }
}

impl Master {
    /// The recovery has ended: cells are as far as their storages have told.
    pub(crate) fn restore_backup(&mut self, told: impl Fn(NodeId) -> Option<Tid>) {
        let complete = |node| told(node).unwrap_or(Tid::ZERO);
        let progress = Progress::new(&self.cluster.table, complete);
        if let Some(backup) = &mut self.backup {
            backup.progress = Some(progress);
        }
    }

    /// An empty cluster becomes a backup.
    pub(crate) fn become_empty_backup(&mut self) {
        self.backup = Some(Backup::found(Tid::ZERO));
        self.restore_backup(|_| None);
    }

    /// The last transaction that the cluster has with all before it; `None` if it is no backup.
    pub(crate) fn backup_tid(&self) -> Option<Tid> {
        let backup = self.backup.as_ref()?;
        Some(backup.progress.as_ref().map_or(backup.found, |all| all.complete(&self.cluster.table)))
    }

    /// The last transaction that each readable cell has with all before it.
    pub(crate) fn common_backup_tid(&self) -> Option<Tid> {
        let backup = self.backup.as_ref()?;
        Some(backup.progress.as_ref().map_or(backup.found, |all| all.common(&self.cluster.table)))
    }

    /// The same, for some partitions.
    pub(crate) fn common_backup_tid_of(
        &self,
        partitions: impl Iterator<Item = Partition>,
    ) -> Option<Tid> {
        let progress = self.backup.as_ref()?.progress.as_ref()?;
        partitions.map(|partition| progress.common_of(&self.cluster.table, partition)).min()
    }

    fn progress_mut(&mut self) -> Option<&mut Progress> {
        self.backup.as_mut()?.progress.as_mut()
    }

    /// Begins to follow the upstream cluster. Storages are told to operate before or after.
    pub(crate) fn begin_backup(&mut self) {
        info!(backup_tid = ?self.backup_tid(), "the cluster is a backup, connecting upstream");
        self.phase = Phase::Backup;
        self.cluster.set_state(&mut self.links, ClusterState::StartingBackup);
        if let Some(progress) = self.progress_mut() {
            progress.forget_orders();
        }
    }

    /// The running cluster becomes a backup.
    pub(crate) fn become_backup(&mut self) -> Handled {
        let has_clients = !self.cluster.members.identified(NodeType::Client).is_empty();
        if has_clients || !self.transactions.is_empty() {
            return Err(Refusal::denied(
                "Can not switch to STARTING_BACKUP state with pending transactions or connected \
                 clients",
            ));
        }
        if self.upstream.is_none() {
            return Err(Refusal::denied(NO_UPSTREAM));
        }
        let tid = self.cluster.last_tid;
        self.backup = Some(Backup::found(tid));
        let members = &self.cluster.members;
        let told: Vec<_> =
            members.identified(NodeType::Storage).into_iter().map(|(id, _)| id).collect();
        self.restore_backup(|node| told.contains(&node).then_some(tid));
        for storage in
            told.into_iter().filter(|id| self.cluster.members.is_running(*id)).collect::<Vec<_>>()
        {
            self.tell_operation(storage);
        }
        self.begin_backup();
        Ok(())
    }

    /// Goes on when storages are ready or up to date; whether it has.
    pub(crate) fn advance_backup(&mut self) -> bool {
        match self.cluster.state() {
            ClusterState::StartingBackup => {
                let nodes = self.cluster.table.readable_nodes();
                if nodes.iter().all(|node| self.readiness.is_ready(*node)) {
                    self.dial_upstream();
                }
                false
            }
            ClusterState::StoppingBackup => {
                let tid = self.backup_tid().unwrap_or_default();
                if self.common_backup_tid().unwrap_or_default() < tid {
                    return false;
                }
                self.stops = Some(Stop::LeaveBackup(tid));
                true
            }
            _ => false,
        }
    }

    /// The cluster will not be a backup any more. Cells that are behind others catch up first.
    pub(crate) fn stop_backup(&mut self) {
        let tid = self.backup_tid().unwrap_or_default();
        if tid < self.cluster.last_tid {
            warn!(%tid, last_tid = %self.cluster.last_tid, "stopping the backup: what is later is cut off");
        } else {
            info!(%tid, "stopping the backup");
        }
        self.leave_upstream();
        self.close_clients();
        self.cluster.set_state(&mut self.links, ClusterState::StoppingBackup);
        self.order_all();
    }

    /// An operator stops the backup.
    pub(crate) fn stop_backup_asked(&mut self) -> Handled {
        if self.backup_tid() == Some(Tid::ZERO) && self.cluster.last_tid > Tid::ZERO {
            return Err(Refusal::denied(
                "Nothing is replicated completely yet: leaving the backup would remove everything",
            ));
        }
        Ok(())
    }

    /// The upstream cluster is not reached any more. Clients would not notice that they read old
    /// data.
    fn upstream_down(&mut self) {
        if !matches!(self.phase, Phase::Backup) || self.cluster.state() != ClusterState::BackingUp {
            return;
        }
        error!("the connection to the upstream cluster has ended, connecting again");
        self.close_clients();
        self.begin_backup();
    }

    fn close_clients(&mut self) {
        for (_, client) in self.cluster.members.identified(NodeType::Client) {
            self.close(client);
        }
    }
}
