//! The finish of a transaction: it gets its tid, and storages lock it.

use zodium_neo::messages::{AskFinishTransaction, AskLockInformation, PackRequest};
use zodium_neo::{ConnectionId, NodeId, Partition, Request};
use zodium_types::{Oid, Tid};

use super::{Audience, Commit, Transactions};
use crate::cluster::Cluster;
use crate::handling::Refusal;
use crate::packs::Packs;
use crate::peer::Links;

/// What a client asks to commit.
#[derive(Debug)]
pub(crate) struct Finish {
    request: Request,
    ttid: Tid,
    oids: Vec<Oid>,
    /// Partitions of stores and of deleted objects.
    partitions: Vec<Partition>,
    /// These, those that were checked, and that of the metadata.
    touched: Vec<Partition>,
    /// Storages that miss stores.
    failed: Vec<NodeId>,
    audience: Audience,
    pack: Option<PackRequest>,
}

impl Finish {
    /// Whether the cluster can go on without the storages that miss stores.
    pub(crate) fn is_complete(&self, cluster: &Cluster) -> bool {
        self.failed.is_empty() || cluster.is_operational_without(&self.failed)
    }

    /// Storages that miss stores: their cells go out of date before the transaction is locked,
    /// which a verification relies on.
    pub(crate) fn to_disconnect(&self, cluster: &Cluster) -> Vec<NodeId> {
        let has_cell = |storage: &NodeId| {
            let rows = self.touched.iter().map(|partition| cluster.table.row(*partition));
            let mut cells = rows.flatten().filter(|cell| cell.node == *storage);
            cells.any(|cell| self.audience.has_cell(cluster, cell))
        };
        self.failed.iter().filter(|one| has_cell(one)).copied().collect()
    }

    /// The storages that lock the transaction, with their connections.
    fn storages_to_lock(&self, cluster: &Cluster) -> Vec<(NodeId, ConnectionId)> {
        let mut involved: Vec<(NodeId, ConnectionId)> = Vec::new();
        for partition in &self.touched {
            for cell in cluster.table.row(*partition) {
                let is_known = involved.iter().any(|(storage, _)| *storage == cell.node);
                if is_known || !self.audience.has_cell(cluster, cell) {
                    continue;
                }
                if let Some(connection) = cluster.members.connection_of(cell.node)
                    && cell.state.is_writable()
                {
                    involved.push((cell.node, connection));
                }
            }
        }
        involved
    }
}

impl Transactions {
    /// A client asks to commit a transaction that is voted. Gives what that needs.
    pub(crate) fn finish(
        &self,
        cluster: &Cluster,
        request: Request,
        client: NodeId,
        message: AskFinishTransaction,
    ) -> Result<Finish, Refusal> {
        let AskFinishTransaction { ttid, oids, deleted, checked, pack } = message;
        if let Some(pack) = &pack
            && !(Tid::ZERO < pack.tid && pack.tid <= cluster.last_tid)
        {
            return Err(Refusal::protocol("invalid pack time"));
        }
        let transaction = self.transaction_of(client, ttid)?;
        self.check_oids(&oids)?;
        let (failed, audience) = (transaction.failed.clone(), transaction.audience);
        let partitions = oids.iter().filter_map(|oid| cluster.table.partition_of_oid(*oid));
        let partitions = sorted(partitions.chain(deleted).collect());
        let metadata = cluster.table.partition_of_tid(ttid);
        let touched = partitions.iter().copied().chain(checked).chain(metadata);
        let touched = sorted(touched.collect());
        Ok(Finish { request, ttid, oids, partitions, touched, failed, audience, pack })
    }

    /// Has storages lock a transaction with the next tid; `false` if there are none.
    pub(crate) fn lock(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        packs: &mut Packs,
        finish: Finish,
    ) -> bool {
        let involved = finish.storages_to_lock(cluster);
        if involved.is_empty() {
            return false;
        }
        let Finish { request, ttid, oids, partitions, pack, .. } = finish;
        let tid = self.take_tid(cluster, ttid);
        if let Some(oid) = oids.iter().max() {
            self.note_oid(*oid);
        }
        let pack_approved = pack.is_some_and(|pack| packs.order(tid, pack));
        let locking = involved.iter().map(|(storage, _)| *storage).collect::<Vec<_>>();
        let commit = Commit { tid, oids, partitions, request, involved: locking.clone(), locking };
        if let Some(transaction) = self.all.get_mut(&ttid) {
            transaction.commit = Some(commit);
        }
        for (_, storage) in involved {
            links.notify(storage, AskLockInformation { ttid, tid, pack_approved });
        }
        true
    }

    fn take_tid(&mut self, cluster: &Cluster, ttid: Tid) -> Tid {
        if self.queue.contains(&ttid) {
            // It has brought its tid.
            return ttid;
        }
        self.queue.push_back(ttid);
        self.tids.next_like(cluster.clock.tid(), ttid, cluster.table.partitions())
    }
}

fn sorted(mut partitions: Vec<Partition>) -> Vec<Partition> {
    partitions.sort_unstable();
    partitions.dedup();
    partitions
}
