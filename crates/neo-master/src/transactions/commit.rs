//! The commit of transactions that all storages have locked, in the order of their tids.

use zodium_neo::messages::{
    AnswerFinalTID, AnswerTransactionFinished, InvalidateObjects, InvalidatePartitions,
    NotifyPackSigned, NotifyTransactionFinished, NotifyUnlockInformation,
};
use zodium_neo::{NodeId, NodeType};
use zodium_types::Tid;

use super::{Commit, Transaction, Waiting};
use crate::Master;
use crate::handling::{Handled, Refusal};

impl Master {
    /// A storage has locked a transaction.
    pub(crate) fn locked(&mut self, storage: NodeId, ttid: Tid) -> Handled {
        let commit = self.transactions.all.get_mut(&ttid).and_then(|one| one.commit.as_mut());
        let place = commit
            .as_ref()
            .and_then(|commit| commit.locking.iter().position(|locking| *locking == storage));
        let (Some(commit), Some(place)) = (commit, place) else {
            return Err(Refusal::protocol(format!("{ttid} was not to be locked")));
        };
        commit.locking.swap_remove(place);
        if commit.locking.is_empty() {
            self.commit_locked();
        }
        Ok(())
    }

    /// A storage has left: no transaction waits for it any more.
    pub(crate) fn storage_left_transactions(&mut self, storage: NodeId) {
        for transaction in self.transactions.all.values_mut() {
            transaction.waiting.retain(|waiting| *waiting != Waiting::Storage(storage));
            if let Some(commit) = &mut transaction.commit {
                commit.locking.retain(|other| *other != storage);
                commit.involved.retain(|other| *other != storage);
            }
        }
        self.commit_locked();
    }

    /// Commits what all storages have locked, as long as a start would know of it.
    pub(crate) fn commit_locked(&mut self) {
        if !self.cluster.table.is_settled() {
            // Until a storage says that it has the table.
            return;
        }
        let mut is_any = false;
        while let Some(ttid) = self.transactions.queue.front().copied() {
            let commit = self.transactions.all.get(&ttid).and_then(|one| one.commit.as_ref());
            if commit.is_none_or(|commit| !commit.locking.is_empty()) {
                break;
            }
            self.transactions.queue.pop_front();
            if let Some(mut transaction) = self.transactions.all.remove(&ttid)
                && let Some(commit) = transaction.commit.take()
            {
                self.commit(ttid, &transaction, commit);
                is_any = true;
            }
        }
        if is_any {
            self.retry_delayed();
        }
    }

    fn commit(&mut self, ttid: Tid, transaction: &Transaction, commit: Commit) {
        let Commit { tid, oids, partitions, connection, request, involved, .. } = commit;
        self.cluster.last_tid = tid;
        self.transactions.note_first(tid);
        self.transactions.committed += 1;
        if transaction.client.is_some() {
            self.links.answer(connection, request, AnswerTransactionFinished { ttid, tid });
        }
        for (client, other) in self.cluster.members.identified(NodeType::Client) {
            if transaction.client == Some(client) {
                continue;
            }
            if self.is_backup_master(client) {
                let partitions = partitions.clone();
                self.links.notify(other, InvalidatePartitions { tid, partitions });
            } else {
                self.links.notify(other, InvalidateObjects { tid, oids: oids.clone() });
            }
        }
        for storage in involved {
            if let Some(connection) = self.cluster.members.connection_of(storage) {
                self.links.notify(connection, NotifyUnlockInformation { ttid });
            }
        }
        if self.packs.is_approved(tid) {
            self.tell_pack_approved(tid);
        }
        for waiting in &transaction.waiting {
            match *waiting {
                Waiting::Client { connection, request } => {
                    self.links.answer(connection, request, AnswerFinalTID { tid: Some(tid) });
                }
                Waiting::Storage(storage) => {
                    if let Some(connection) = self.cluster.members.connection_of(storage) {
                        self.links
                            .notify(connection, NotifyTransactionFinished { ttid, max_tid: tid });
                    }
                }
            }
        }
    }

    /// Storages pack, and backup clusters hear of it.
    fn tell_pack_approved(&mut self, tid: Tid) {
        let ready = self.readiness.ready();
        let storages =
            ready.iter().filter_map(|storage| self.cluster.members.connection_of(*storage));
        let clients = self.cluster.members.identified(NodeType::Client).into_iter();
        let backups = clients.filter(|(client, _)| self.is_backup_master(*client));
        let all: Vec<_> = storages.chain(backups.map(|(_, connection)| connection)).collect();
        for connection in all {
            let message = NotifyPackSigned { approved: vec![tid], rejected: Vec::new() };
            self.links.notify(connection, message);
        }
    }

    fn is_backup_master(&self, client: NodeId) -> bool {
        self.cluster.members.get(client).is_some_and(|node| node.about.backup.is_some())
    }
}
