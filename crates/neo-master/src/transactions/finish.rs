//! The finish of a transaction: it gets its tid, and storages lock it.

use zodium_neo::messages::{AskFinishTransaction, AskLockInformation, Error as ErrorMessage};
use zodium_neo::{ConnectionId, ErrorCode, NodeId, Partition};
use zodium_types::Tid;

use super::Commit;
use crate::Master;
use crate::handling::{Handled, Refusal};

impl Master {
    /// A client asks to commit a transaction that is voted.
    pub(crate) fn finish(
        &mut self,
        connection: ConnectionId,
        request: u32,
        client: NodeId,
        message: AskFinishTransaction,
    ) -> Handled {
        let AskFinishTransaction { ttid, oids, deleted, checked, pack } = message;
        if let Some(pack) = &pack
            && !(Tid::ZERO < pack.tid && pack.tid <= self.cluster.last_tid)
        {
            return Err(Refusal::protocol("invalid pack time"));
        }
        let transaction = self.transaction_of(client, ttid)?;
        let (failed, readiness) = (transaction.failed.clone(), transaction.readiness);
        if !failed.is_empty() && !self.cluster.is_operational_without(&failed) {
            self.give_up(connection, request, ttid);
            return Ok(());
        }
        let mut partitions: Vec<_> =
            oids.iter().filter_map(|oid| self.cluster.table.partition_of_oid(*oid)).collect();
        partitions.extend(deleted);
        partitions.sort_unstable();
        partitions.dedup();
        let mut touched = partitions.clone();
        touched.extend(checked);
        touched.extend(self.cluster.table.partition_of_tid(ttid));
        touched.sort_unstable();
        touched.dedup();
        self.disconnect_failed(&failed, &touched);
        if self.stops.is_some() || !self.transactions.all.contains_key(&ttid) {
            return Ok(());
        }
        let involved = self.storages_to_lock(&touched, readiness);
        if involved.is_empty() {
            self.give_up(connection, request, ttid);
            return Ok(());
        }
        let tid = self.take_tid(ttid);
        if let Some(oid) = oids.iter().max() {
            self.transactions.note_oid(*oid);
        }
        let pack_approved = pack.is_some_and(|pack| self.packs.order(tid, pack));
        let locking = involved.iter().map(|(storage, _)| *storage).collect::<Vec<_>>();
        let commit = Commit {
            tid,
            oids,
            partitions,
            connection,
            request,
            involved: locking.clone(),
            locking,
        };
        if let Some(transaction) = self.transactions.all.get_mut(&ttid) {
            transaction.commit = Some(commit);
        }
        for (_, storage) in involved {
            self.links.request(storage, AskLockInformation { ttid, tid, pack_approved });
        }
        Ok(())
    }

    /// Closes the connections of storages that miss stores: their cells go out of date before the
    /// transaction is locked, which a verification relies on.
    fn disconnect_failed(&mut self, failed: &[NodeId], touched: &[Partition]) {
        let has_cell = |storage: &NodeId| {
            let rows = touched.iter().map(|partition| self.cluster.table.row(*partition));
            rows.flatten().any(|cell| cell.node == *storage)
        };
        let failed: Vec<_> = failed.iter().filter(|one| has_cell(one)).copied().collect();
        for storage in failed {
            if let Some(connection) = self.cluster.members.connection_of(storage) {
                self.close(connection);
            }
        }
    }

    /// The storages that lock a transaction, with their connections.
    fn storages_to_lock(
        &self,
        touched: &[Partition],
        readiness: u64,
    ) -> Vec<(NodeId, ConnectionId)> {
        let mut involved: Vec<(NodeId, ConnectionId)> = Vec::new();
        for partition in touched {
            for cell in self.cluster.table.row(*partition) {
                let is_known = involved.iter().any(|(storage, _)| *storage == cell.node);
                if is_known || !self.readiness.was_ready(cell.node, readiness) {
                    continue;
                }
                if let Some(connection) = self.cluster.members.connection_of(cell.node)
                    && cell.state.is_writable()
                {
                    involved.push((cell.node, connection));
                }
            }
        }
        involved
    }

    fn take_tid(&mut self, ttid: Tid) -> Tid {
        let (now, partitions) = (self.cluster.clock.tid(), self.cluster.table.partitions());
        let transactions = &mut self.transactions;
        if transactions.queue.contains(&ttid) {
            // It has brought its tid.
            return ttid;
        }
        transactions.queue.push_back(ttid);
        transactions.tids.next_like(now, ttid, partitions)
    }

    /// Too many storages failed: the transaction is aborted everywhere.
    fn give_up(&mut self, connection: ConnectionId, request: u32, ttid: Tid) {
        let code = ErrorCode::IncompleteTransaction;
        self.links.answer(connection, request, ErrorMessage { code, message: "" });
        let storages = self.readiness.ready();
        self.abort_at(ttid, storages);
    }
}
