//! The commit of transactions that all storages have locked, in the order of their tids.

use zodium_neo::messages::{
    AnswerFinalTID, AnswerTransactionFinished, InvalidateObjects, InvalidatePartitions,
    NotifyPackSigned, NotifyTransactionFinished, NotifyUnlockInformation,
};
use zodium_neo::{NodeId, NodeType};
use zodium_types::Tid;

use super::{Commit, Transaction, Transactions, Waiting};
use crate::cluster::Cluster;
use crate::handling::Refusal;
use crate::packs::Packs;
use crate::peer::Links;

impl Transactions {
    /// A storage has locked a transaction; whether all have.
    pub(crate) fn locked(&mut self, storage: NodeId, ttid: Tid) -> Result<bool, Refusal> {
        let commit = self.all.get_mut(&ttid).and_then(|one| one.commit.as_mut());
        let place = commit
            .as_ref()
            .and_then(|commit| commit.locking.iter().position(|locking| *locking == storage));
        let (Some(commit), Some(place)) = (commit, place) else {
            return Err(Refusal::protocol(format!("{ttid} was not to be locked")));
        };
        commit.locking.swap_remove(place);
        Ok(commit.locking.is_empty())
    }

    /// A storage has left: no transaction waits for it any more.
    pub(crate) fn storage_left(&mut self, storage: NodeId) {
        for transaction in self.all.values_mut() {
            transaction.waiting.retain(|waiting| *waiting != Waiting::Storage(storage));
            if let Some(commit) = &mut transaction.commit {
                commit.locking.retain(|other| *other != storage);
                commit.involved.retain(|other| *other != storage);
            }
        }
    }

    /// Commits what all storages have locked, as long as a start would know of it. Whether there
    /// was any.
    pub(crate) fn commit_locked(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
        packs: &Packs,
    ) -> bool {
        if !cluster.table.is_settled() {
            // Until a storage says that it has the table.
            return false;
        }
        let mut is_any = false;
        while let Some(ttid) = self.queue.front().copied() {
            let commit = self.all.get(&ttid).and_then(|one| one.commit.as_ref());
            if commit.is_none_or(|commit| !commit.locking.is_empty()) {
                break;
            }
            self.queue.pop_front();
            if let Some(mut transaction) = self.all.remove(&ttid)
                && let Some(commit) = transaction.commit.take()
            {
                let tid = commit.tid;
                cluster.last_tid = tid;
                self.note_first(tid);
                self.committed += 1;
                tell_committed(cluster, links, ttid, &transaction, commit);
                if packs.is_approved(tid) {
                    tell_pack_approved(cluster, links, tid);
                }
                tell_waiting(cluster, links, &transaction, ttid, tid);
                is_any = true;
            }
        }
        is_any
    }
}

/// Answers the client of a transaction, and tells the other clients and the storages.
fn tell_committed(
    cluster: &Cluster,
    links: &mut Links,
    ttid: Tid,
    transaction: &Transaction,
    commit: Commit,
) {
    let Commit { tid, oids, partitions, request, involved, .. } = commit;
    if transaction.client.is_some() {
        links.answer(request, AnswerTransactionFinished { ttid, tid });
    }
    for (client, other) in cluster.members.identified(NodeType::Client) {
        if transaction.client == Some(client) {
            continue;
        }
        if is_backup_master(cluster, client) {
            let partitions = partitions.clone();
            links.notify(other, InvalidatePartitions { tid, partitions });
        } else {
            links.notify(other, InvalidateObjects { tid, oids: oids.clone() });
        }
    }
    for storage in involved {
        if let Some(connection) = cluster.members.connection_of(storage) {
            links.notify(connection, NotifyUnlockInformation { ttid });
        }
    }
}

/// Tells the nodes that wait for the end of a transaction.
fn tell_waiting(
    cluster: &Cluster,
    links: &mut Links,
    transaction: &Transaction,
    ttid: Tid,
    tid: Tid,
) {
    for waiting in &transaction.waiting {
        match *waiting {
            Waiting::Client(request) => links.answer(request, AnswerFinalTID { tid: Some(tid) }),
            Waiting::Storage(storage) => {
                if let Some(connection) = cluster.members.connection_of(storage) {
                    links.notify(connection, NotifyTransactionFinished { ttid, max_tid: tid });
                }
            }
        }
    }
}

/// Storages pack, and backup clusters hear of it.
fn tell_pack_approved(cluster: &Cluster, links: &mut Links, tid: Tid) {
    let ready = cluster.readiness.ready();
    let storages = ready.iter().filter_map(|storage| cluster.members.connection_of(*storage));
    let clients = cluster.members.identified(NodeType::Client).into_iter();
    let backups = clients.filter(|(client, _)| is_backup_master(cluster, *client));
    for connection in storages.chain(backups.map(|(_, connection)| connection)) {
        let message = NotifyPackSigned { approved: vec![tid], rejected: Vec::new() };
        links.notify(connection, message);
    }
}

/// Whether a client is the master of a backup cluster.
fn is_backup_master(cluster: &Cluster, client: NodeId) -> bool {
    cluster.members.get(client).is_some_and(|node| node.about.backup.is_some())
}
