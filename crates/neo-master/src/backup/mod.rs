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
use zodium_neo::messages::StartOperation;
use zodium_neo::{Address, ClusterState, NodeId, NodeType, Partition};
use zodium_types::Tid;

use self::progress::Progress;
use self::upstream::Upstream;
use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::peer::Links;
use crate::settings::UpstreamSettings;
use crate::table::Table;

const NO_UPSTREAM: &str = "No upstream cluster to backup defined in configuration";

/// The backup that the cluster is or may become, and the cluster that it follows.
#[derive(Debug)]
pub(crate) struct Backup {
    /// `None` if the cluster is no backup.
    extent: Option<Extent>,
    /// `None` if no such cluster is configured.
    upstream: Option<Upstream>,
}

/// How far a backup is.
#[derive(Debug)]
struct Extent {
    /// As storages have told in the recovery.
    found: Tid,
    /// `None` in the recovery.
    progress: Option<Progress>,
}

impl Backup {
    /// The cluster is no backup yet, as far as is known.
    pub(crate) fn new(upstream: Option<UpstreamSettings>) -> Backup {
        Backup { extent: None, upstream: upstream.map(Upstream::new) }
    }

    /// Whether the cluster is a backup.
    pub(crate) fn is_there(&self) -> bool {
        self.extent.is_some()
    }

    /// Whether the cluster is a backup of one that is not configured.
    pub(crate) fn lacks_upstream(&self) -> bool {
        self.extent.is_some() && self.upstream.is_none()
    }

    /// The cluster is a backup if a storage has told how far that is.
    pub(crate) fn found(&mut self, found: Option<Tid>) {
        let lacked_upstream = self.lacks_upstream();
        self.extent = found.map(|found| Extent { found, progress: None });
        if self.lacks_upstream() && !lacked_upstream {
            error!(
                "the cluster does not start: this is the database of a backup cluster. Give \
                --upstream-cluster and --upstream-masters"
            );
        }
    }

    /// Forgets that the cluster is a backup, and closes the connection to the upstream cluster.
    pub(crate) fn forget(&mut self, links: &mut Links) {
        self.extent = None;
        self.leave_upstream(links);
    }

    /// The recovery has ended: cells are as far as their storages have told.
    pub(crate) fn restore(&mut self, table: &Table, told: impl Fn(NodeId) -> Option<Tid>) {
        if let Some(extent) = &mut self.extent {
            extent.progress = Some(Progress::new(table, |node| told(node).unwrap_or(Tid::ZERO)));
        }
    }

    /// An empty cluster becomes a backup.
    pub(crate) fn become_empty(&mut self, table: &Table) {
        self.found(Some(Tid::ZERO));
        self.restore(table, |_| None);
    }

    /// The running cluster becomes a backup.
    pub(crate) fn become_running(&mut self, cluster: &mut Cluster, links: &mut Links) -> Handled {
        if self.upstream.is_none() {
            return Err(Refusal::denied(NO_UPSTREAM));
        }
        let tid = cluster.last_tid;
        self.found(Some(tid));
        let storages = cluster.members.identified(NodeType::Storage);
        let is_there = |node| storages.iter().any(|(storage, _)| *storage == node);
        self.restore(&cluster.table, |node| is_there(node).then_some(tid));
        for (storage, _) in &storages {
            if cluster.members.is_running(*storage) {
                self.tell_operation(cluster, links, *storage);
            }
        }
        self.begin(cluster, links);
        Ok(())
    }

    /// Tells a storage to operate, if it is there. Transactions do not begin until it is ready.
    pub(crate) fn start_storage(&self, cluster: &mut Cluster, links: &mut Links, storage: NodeId) {
        if cluster.members.connection_of(storage).is_some() {
            cluster.readiness.start(storage);
            self.tell_operation(cluster, links, storage);
        }
    }

    /// Tells a storage to operate, and whether it does in a backup cluster.
    fn tell_operation(&self, cluster: &Cluster, links: &mut Links, storage: NodeId) {
        if let Some(connection) = cluster.members.connection_of(storage) {
            links.notify(connection, StartOperation { backup: self.is_there() });
        }
    }

    /// The last transaction that the cluster has with all before it; `None` if it is no backup.
    pub(crate) fn tid(&self, table: &Table) -> Option<Tid> {
        let extent = self.extent.as_ref()?;
        Some(extent.progress.as_ref().map_or(extent.found, |all| all.complete(table)))
    }

    /// The last transaction that each readable cell has with all before it.
    pub(crate) fn common_tid(&self, table: &Table) -> Option<Tid> {
        let extent = self.extent.as_ref()?;
        Some(extent.progress.as_ref().map_or(extent.found, |all| all.common(table)))
    }

    /// The same, for some partitions.
    pub(crate) fn common_tid_of(
        &self,
        table: &Table,
        partitions: impl Iterator<Item = Partition>,
    ) -> Option<Tid> {
        let progress = self.extent.as_ref()?.progress.as_ref()?;
        partitions.map(|partition| progress.common_of(table, partition)).min()
    }

    fn progress_mut(&mut self) -> Option<&mut Progress> {
        self.extent.as_mut()?.progress.as_mut()
    }

    /// Whether the last transaction upstream is known.
    fn is_current(&self) -> bool {
        let progress = self.extent.as_ref().and_then(|extent| extent.progress.as_ref());
        progress.is_some_and(Progress::is_current)
    }

    /// Begins to follow the upstream cluster. Storages are told to operate before or after.
    pub(crate) fn begin(&mut self, cluster: &mut Cluster, links: &mut Links) {
        let backup_tid = self.tid(&cluster.table);
        info!(?backup_tid, "the cluster is a backup, connecting upstream");
        cluster.set_state(links, ClusterState::StartingBackup);
        if let Some(progress) = self.progress_mut() {
            progress.forget_orders();
        }
    }

    /// Goes on when storages are ready or up to date. The cluster is a backup no longer when it
    /// gives a transaction: what is after that is not complete.
    pub(crate) fn advance(&mut self, cluster: &Cluster, links: &mut Links) -> Option<Tid> {
        match cluster.state() {
            ClusterState::StartingBackup => {
                let nodes = cluster.table.readable_nodes();
                if nodes.iter().all(|node| cluster.readiness.is_ready(*node)) {
                    self.dial_upstream(links);
                }
                None
            }
            ClusterState::StoppingBackup => {
                let tid = self.tid(&cluster.table).unwrap_or_default();
                let common = self.common_tid(&cluster.table).unwrap_or_default();
                (common >= tid).then_some(tid)
            }
            _ => None,
        }
    }

    /// The cluster will not be a backup any more: it leaves the upstream cluster.
    pub(crate) fn begin_stop(&mut self, cluster: &Cluster, links: &mut Links) {
        let (tid, last_tid) = (self.tid(&cluster.table).unwrap_or_default(), cluster.last_tid);
        if tid < last_tid {
            warn!(%tid, %last_tid, "stopping the backup: what is later is cut off");
        } else {
            info!(%tid, "stopping the backup");
        }
        self.leave_upstream(links);
    }

    /// Refuses that an operator stops a backup in which nothing is complete.
    pub(crate) fn require_complete(&self, cluster: &Cluster) -> Handled {
        if self.tid(&cluster.table) == Some(Tid::ZERO) && cluster.last_tid > Tid::ZERO {
            return Err(Refusal::denied(
                "Nothing is replicated completely yet: leaving the backup would remove everything",
            ));
        }
        Ok(())
    }

    /// The upstream cluster, and a storage of it, with which a partition of the backup is compared.
    pub(crate) fn upstream_of(&self, partition: Partition) -> Option<(String, Address)> {
        let upstream = self.upstream.as_ref().filter(|_| self.is_there())?;
        let storage = upstream.storages_of(partition).into_iter().next()?;
        Some((upstream.cluster().to_owned(), storage))
    }
}
