//! Votes, locks, unlocks and aborts.
//!
//! Data of a transaction are in memory, or in its spool, until its vote. The vote writes them, with
//! the rest, in one change of the database. A lock makes the tid durable, and no object can be read
//! until the unlock. The unlock need not be durable itself: after a crash the master asks what is
//! locked. `holding` says which transactions are written, or synced, at their lock only.

use tracing::{debug, warn};
use zodium_neo::messages::{
    AnswerFinalTID, AnswerInformationLocked, AnswerStoreTransaction, AnswerVoteTransaction,
    AskLockInformation, AskStoreTransaction,
};
use zodium_neo::{ErrorCode, Message, NodeId};
use zodium_types::{Tid, TransactionMetadata};

use super::holding::Way;
use crate::database::{NewRecord, NewTransaction, PackRow, Voted};
use crate::handling::{Handled, Refusal};
use crate::transactions::{Held, Kept, Rows, Vote};
use crate::{ConnectionId, Node};

/// Most objects of a transaction, and of an order to pack: what fits into a column of NEO's MySQL
/// tables.
const OIDS_MAX: usize = 1 << 21;

impl Node {
    pub(super) fn store_transaction_asked(
        &mut self,
        from: (ConnectionId, u32),
        message: AskStoreTransaction<'_>,
    ) -> Handled {
        let AskStoreTransaction { ttid, user, description, extension, oids, pack } = message;
        let packed = pack.as_ref().and_then(|pack| pack.oids.as_ref()).map_or(0, Vec::len);
        if oids.len() >= OIDS_MAX || packed >= OIDS_MAX {
            return Err(Refusal::protocol("a transaction of 2^21 objects or more"));
        }
        if i64::try_from(ttid.0).is_err() {
            return Err(Refusal::protocol("a transaction whose ttid is larger than 2^63 - 1"));
        }
        self.register(from.0, ttid)?;
        let pack =
            pack.map(|pack| PackRow { id: ttid, approved: None, oids: pack.oids, until: pack.tid });
        let metadata = TransactionMetadata {
            user: user.to_vec(),
            description: description.to_vec(),
            extension: extension.to_vec(),
        };
        let transaction = NewTransaction { metadata, oids, pack };
        self.vote(from, ttid, Some(transaction), AnswerStoreTransaction {}.into())
    }

    pub(super) fn vote_asked(&mut self, from: (ConnectionId, u32), ttid: Tid) -> Handled {
        self.vote(from, ttid, None, AnswerVoteTransaction {}.into())
    }

    fn vote(
        &mut self,
        (connection, id): (ConnectionId, u32),
        ttid: Tid,
        metadata: Option<NewTransaction>,
        answer: Message<'static>,
    ) -> Handled {
        let transaction = self.transactions.all.get(&ttid);
        let transaction = transaction.ok_or_else(|| Refusal::unknown_transaction(ttid))?;
        let is_waiting = !transaction.checking.is_empty() || transaction.unvoted.delays();
        if transaction.vote != Vote::No || is_waiting {
            return Err(Refusal::protocol(format!("transaction {ttid} cannot be voted now")));
        }
        let way = self.way_of(ttid, transaction, metadata.as_ref());
        let partition = self.table.as_ref().and_then(|table| table.partition_of_tid(ttid));
        let Some(transaction) = self.transactions.all.get_mut(&ttid) else { return Ok(()) };
        transaction.vote = Vote::Asked;
        transaction.has_metadata = metadata.is_some();
        let objects = transaction.objects.iter_mut();
        let stored = objects.filter_map(|(oid, object)| Some((*oid, object.stored.as_mut()?)));
        if let (Way::Hold, Some(partition)) = (way, partition) {
            let records = stored.map(|(oid, stored)| (oid, stored.data.take())).collect();
            transaction.rows = Rows::Held(Held { records, transaction: metadata, partition });
            self.voted((connection, id), ttid, answer);
            return Ok(());
        }
        let stored: Vec<_> =
            stored.map(|(oid, stored)| (oid, stored.data.take(), stored.data_serial)).collect();
        transaction.unvoted.clear();
        if way == Way::Unsynced {
            transaction.rows = Rows::Unsynced;
        }
        self.write_as(
            way == Way::Durable,
            move |database| {
                // One record is in memory at a time, of those that are in the spool.
                let mut records = stored.into_iter().map(|(oid, data, data_serial)| {
                    let data = data.map(Kept::into_data).transpose()?;
                    Ok(NewRecord { oid, data, data_serial })
                });
                let voted = database.vote(ttid, &mut records, metadata)?;
                Ok((voted, database.has_room()))
            },
            move |node, (voted, has_room)| match voted {
                Voted::Done => {
                    node.has_room = has_room;
                    node.voted((connection, id), ttid, answer);
                }
                Voted::Refused(reason) => {
                    warn!(%ttid, reason, "refusing a transaction");
                    node.abort(ttid);
                    let refusal = Refusal::answer(ErrorCode::BackendNotImplemented, reason);
                    node.refuse(connection, id, "a vote", &refusal);
                }
            },
        );
        Ok(())
    }

    fn voted(
        &mut self,
        (connection, id): (ConnectionId, u32),
        ttid: Tid,
        answer: Message<'static>,
    ) {
        if let Some(transaction) = self.transactions.all.get_mut(&ttid) {
            transaction.vote = Vote::Done;
            self.counts.votes += 1;
            self.answer(connection, id, answer);
        }
    }

    /// The master commits a transaction.
    pub(crate) fn lock_asked(
        &mut self,
        (connection, id): (ConnectionId, u32),
        message: &AskLockInformation,
    ) -> Handled {
        let AskLockInformation { ttid, tid, pack_approved } = *message;
        let transactions = &mut self.transactions;
        let transaction = transactions.all.get_mut(&ttid);
        let transaction = transaction.ok_or_else(|| Refusal::unknown_transaction(ttid))?;
        if transaction.vote == Vote::No || transaction.tid.is_some() || tid < ttid {
            return Err(Refusal::protocol(format!("transaction {ttid} cannot be locked now")));
        }
        transaction.tid = Some(tid);
        let stored = transaction.objects.iter().filter(|(_, object)| object.stored.is_some());
        transactions.read_locks.extend(stored.map(|(oid, _)| (*oid, ttid)));
        if !transaction.has_metadata {
            // The master learns the tid from the node that has them.
            self.answer(connection, id, AnswerInformationLocked { ttid });
            return Ok(());
        }
        let rows = match &transaction.rows {
            Rows::Voted => Rows::Voted,
            _ => std::mem::replace(&mut transaction.rows, Rows::Committing),
        };
        transaction.unvoted.clear();
        let answer = AnswerInformationLocked { ttid };
        match rows {
            Rows::Held(held) => {
                self.counts.held_commits += 1;
                self.write(
                    move |database| held.commit(database, ttid, tid),
                    move |node, has_room| {
                        node.has_room = has_room;
                        node.committed_at_lock((connection, id), answer);
                    },
                );
            }
            Rows::Unsynced => self.write(
                move |database| database.unlock(ttid, tid),
                move |node, ()| node.committed_at_lock((connection, id), answer),
            ),
            Rows::Voted | Rows::Committing | Rows::Committed => self.write(
                move |database| database.lock(ttid, tid, pack_approved),
                move |node, ()| node.answer(connection, id, answer),
            ),
        }
        Ok(())
    }

    /// The database has committed a transaction, whose objects stay locked until its unlock.
    fn committed_at_lock(
        &mut self,
        (connection, id): (ConnectionId, u32),
        answer: AnswerInformationLocked,
    ) {
        if let Some(transaction) = self.transactions.all.get_mut(&answer.ttid) {
            transaction.rows = Rows::Committed;
            self.answer(connection, id, answer);
        }
    }

    /// The transaction is committed in the whole cluster.
    pub(crate) fn unlock(&mut self, ttid: Tid) -> Handled {
        let transaction = self.transactions.all.get(&ttid);
        let locked = transaction.and_then(|one| Some((one.tid?, &one.rows)));
        let (tid, rows) = locked.ok_or_else(|| Refusal::unknown_transaction(ttid))?;
        match rows {
            Rows::Committed => self.unlocked(ttid),
            // After the commit, which was ordered before.
            Rows::Committing => {
                self.write_lazily(|_| Ok(()), move |node, ()| node.unlocked(ttid));
            }
            Rows::Voted | Rows::Unsynced | Rows::Held(_) => self.write_lazily(
                move |database| database.unlock(ttid, tid),
                move |node, ()| node.unlocked(ttid),
            ),
        }
        Ok(())
    }

    fn unlocked(&mut self, ttid: Tid) {
        self.counts.commits += 1;
        self.transactions.note_serials(ttid);
        self.records.remove(self.transactions.stored(ttid));
        self.forget(ttid);
    }

    /// Gives a transaction up, unless it is locked.
    pub(crate) fn abort(&mut self, ttid: Tid) {
        let Some(transaction) = self.transactions.all.get(&ttid) else { return };
        if transaction.tid.is_some() {
            return;
        }
        debug!(%ttid, "aborting");
        self.counts.aborts += 1;
        if transaction.vote != Vote::No && transaction.rows.are_voted() {
            self.write_lazily(move |database| database.abort(ttid), |_, ()| {});
        }
        self.forget(ttid);
    }

    /// Gives up the transactions of a client that are not locked.
    pub(crate) fn abort_for(&mut self, client: NodeId) {
        self.transactions.of_client(client).into_iter().for_each(|ttid| self.abort(ttid));
    }

    /// A client's connection has ended. The client may take part in the end of what it has voted,
    /// unless that was over already. It may also have connected again, and store on the new
    /// connection already.
    pub(crate) fn client_lost(&mut self, connection: ConnectionId) {
        self.transactions.lost_with(connection).into_iter().for_each(|ttid| self.abort(ttid));
    }

    fn forget(&mut self, ttid: Tid) {
        let Some((transaction, oids)) = self.transactions.remove(ttid) else { return };
        for request in transaction.unvoted.into_delayed() {
            self.answer_lock(request, Some(Tid::ZERO));
        }
        self.announce_replicated();
        self.read_delayed();
        for oid in oids {
            self.lock_waiting(oid);
        }
    }

    pub(super) fn outcome_asked(&mut self, from: (ConnectionId, u32), ttid: Tid) -> Handled {
        if let Some(transaction) = self.transactions.all.get(&ttid) {
            let tid = transaction.tid;
            self.answer(from.0, from.1, AnswerFinalTID { tid });
            return Ok(());
        }
        self.readable_partition_of_tid(ttid)?;
        self.read_shortly_for(
            from,
            move |database| database.final_tid(ttid),
            move |node, tid| {
                node.readable_partition_of_tid(ttid)?;
                node.answer(from.0, from.1, AnswerFinalTID { tid });
                Ok(())
            },
        );
        Ok(())
    }
}
