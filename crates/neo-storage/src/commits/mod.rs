//! Votes, locks, unlocks and aborts.
//!
//! Data of a transaction are in memory, or in its spool, until its vote. The vote writes them, with
//! the rest, in one change of the database. A lock makes the tid durable, and no object can be read
//! until the unlock. The unlock need not be durable itself: after a crash the master asks what is
//! locked. `holding` says which transactions are written, or synced, at their lock only.

mod holding;
mod readiness;
mod spooling;
mod stores;
mod transactions;

use tracing::{debug, warn};
use zodium_neo::messages::{
    AnswerFinalTID, AnswerInformationLocked, AnswerStoreTransaction, AnswerVoteTransaction,
    AskLockInformation, AskStoreTransaction,
};
use zodium_neo::{ErrorCode, Message, NodeId};
use zodium_types::{Oid, Tid, TransactionMetadata};

use self::holding::Way;
use self::stores::answer_lock;
pub(crate) use self::stores::checked_data;
use self::transactions::{Held, Kept, Rows, Transactions, Vote};
use crate::ConnectionId;
use crate::cluster::Cluster;
use crate::database::{NewRecord, NewTransaction, PackRow, Voted};
use crate::handling::{Handled, Refusal};
use crate::links::Links;
use crate::status::TransactionCounts;

/// Most objects of a transaction, and of an order to pack: what fits into a column of NEO's MySQL
/// tables.
const OIDS_MAX: usize = 1 << 21;

/// Transactions in progress, and what decides when their rows are written.
#[derive(Debug)]
pub(crate) struct Commits {
    transactions: Transactions,
    /// Whether the database may refuse data when they are written.
    may_refuse_data: bool,
    /// Whether the disk of the database had room when it was written last.
    has_room: bool,
}

impl Commits {
    /// No transaction is in progress.
    pub(crate) fn new(may_refuse_data: bool) -> Commits {
        Commits { transactions: Transactions::default(), may_refuse_data, has_room: false }
    }

    /// Forgets all transactions.
    pub(crate) fn clear(&mut self) {
        self.transactions = Transactions::default();
    }

    /// Notes whether the disk of the database has room.
    pub(crate) fn note_room(&mut self, has_room: bool) {
        self.has_room = has_room;
    }

    /// A client asks for the vote on a transaction whose metadata this node gets.
    pub(crate) fn store_transaction_asked(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
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
        let metadata = TransactionMetadata {
            user: user.to_vec(),
            description: description.to_vec(),
            extension: extension.to_vec(),
        };
        if let Err(error) = metadata.check() {
            // Any replica may be on MariaDB, whose columns hold no more.
            warn!(%ttid, reason = %error, "refusing a transaction");
            return Err(Refusal::answer(ErrorCode::BackendNotImplemented, error.to_string()));
        }
        self.register(links, from.0, ttid)?;
        let pack =
            pack.map(|pack| PackRow { id: ttid, approved: None, oids: pack.oids, until: pack.tid });
        // The client may not know yet that the cell was taken away. Its rows are dropped already.
        let is_here = cluster.has_cell(cluster.partition_of_tid(ttid));
        let transaction = is_here.then_some(NewTransaction { metadata, oids, pack });
        self.vote(links, cluster, from, ttid, transaction, AnswerStoreTransaction {}.into())
    }

    /// A client asks for the vote on a transaction whose metadata another node has.
    pub(crate) fn vote_asked(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        from: (ConnectionId, u32),
        ttid: Tid,
    ) -> Handled {
        self.check_owner(links, from.0, ttid)?;
        self.vote(links, cluster, from, ttid, None, AnswerVoteTransaction {}.into())
    }

    fn vote(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        from: (ConnectionId, u32),
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
        let way = self.way_of(cluster, ttid, transaction, metadata.as_ref());
        let partition = cluster.partition_of_tid(ttid);
        let Some(transaction) = self.transactions.all.get_mut(&ttid) else { return Ok(()) };
        transaction.vote = Vote::Asked;
        transaction.has_metadata = metadata.is_some();
        let objects = transaction.objects.iter_mut();
        let stored = objects.filter_map(|(oid, object)| Some((*oid, object.stored.as_mut()?)));
        if let (Way::Hold, Some(partition)) = (way, partition) {
            let records = stored.map(|(oid, stored)| (oid, stored.data.take())).collect();
            transaction.rows = Rows::Held(Held { records, transaction: metadata, partition });
            self.voted(links, from, ttid, answer);
            return Ok(());
        }
        let stored: Vec<_> =
            stored.map(|(oid, stored)| (oid, stored.data.take(), stored.data_serial)).collect();
        transaction.unvoted.clear();
        if way == Way::Unsynced {
            transaction.rows = Rows::Unsynced;
        }
        links.write_as(
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
                    node.commits.has_room = has_room;
                    node.commits.voted(&mut node.links, from, ttid, answer);
                }
                Voted::Refused(reason) => {
                    warn!(%ttid, reason, "refusing a transaction");
                    node.abort(ttid);
                    let refusal = Refusal::answer(ErrorCode::BackendNotImplemented, reason);
                    node.links.refuse(from, "a vote", &refusal);
                }
            },
        );
        Ok(())
    }

    fn voted(
        &mut self,
        links: &mut Links,
        (connection, id): (ConnectionId, u32),
        ttid: Tid,
        answer: Message<'static>,
    ) {
        if let Some(transaction) = self.transactions.all.get_mut(&ttid) {
            transaction.vote = Vote::Done;
            links.count().votes += 1;
            links.answer((connection, id), answer);
        }
    }

    /// The master commits a transaction.
    pub(crate) fn lock_asked(
        &mut self,
        links: &mut Links,
        (connection, id): (ConnectionId, u32),
        message: &AskLockInformation,
    ) -> Handled {
        let AskLockInformation { ttid, tid, pack_approved } = *message;
        let transactions = &mut self.transactions;
        let transaction = transactions.all.get_mut(&ttid);
        let transaction = transaction.ok_or_else(|| Refusal::unknown_transaction(ttid))?;
        let is_in_range = ttid <= tid && tid <= Tid::MAX;
        if transaction.vote == Vote::No || transaction.tid.is_some() || !is_in_range {
            return Err(Refusal::protocol(format!("transaction {ttid} cannot be locked now")));
        }
        transaction.tid = Some(tid);
        let stored = transaction.objects.iter().filter(|(_, object)| object.stored.is_some());
        transactions.read_locks.extend(stored.map(|(oid, _)| (*oid, ttid)));
        if !transaction.has_metadata {
            // The master learns the tid from the node that has them.
            links.answer((connection, id), AnswerInformationLocked { ttid });
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
                links.count().held_commits += 1;
                links.write(
                    move |database| held.commit(database, ttid, tid),
                    move |node, has_room| {
                        node.commits.has_room = has_room;
                        node.commits.committed_at_lock(&mut node.links, (connection, id), answer);
                    },
                );
            }
            Rows::Unsynced => links.write(
                move |database| database.unlock(ttid, tid),
                move |node, ()| {
                    node.commits.committed_at_lock(&mut node.links, (connection, id), answer);
                },
            ),
            Rows::Voted | Rows::Committing | Rows::Committed => links.write(
                move |database| database.lock(ttid, tid, pack_approved),
                move |node, ()| node.links.answer((connection, id), answer),
            ),
        }
        Ok(())
    }

    /// The database has committed a transaction, whose objects stay locked until its unlock.
    fn committed_at_lock(
        &mut self,
        links: &mut Links,
        (connection, id): (ConnectionId, u32),
        answer: AnswerInformationLocked,
    ) {
        if let Some(transaction) = self.transactions.all.get_mut(&answer.ttid) {
            transaction.rows = Rows::Committed;
            links.answer((connection, id), answer);
        }
    }

    /// The transaction is committed in the whole cluster; whether it can be unlocked now.
    pub(crate) fn unlock(&self, links: &mut Links, ttid: Tid) -> Result<bool, Refusal> {
        let transaction = self.transactions.all.get(&ttid);
        let locked = transaction.and_then(|one| Some((one.tid?, &one.rows)));
        let (tid, rows) = locked.ok_or_else(|| Refusal::unknown_transaction(ttid))?;
        match rows {
            Rows::Committed => return Ok(true),
            // After the commit, which was ordered before.
            Rows::Committing => {
                links.write_lazily(|_| Ok(()), move |node, ()| node.unlocked(ttid));
            }
            Rows::Voted | Rows::Unsynced | Rows::Held(_) => links.write_lazily(
                move |database| database.unlock(ttid, tid),
                move |node, ()| node.unlocked(ttid),
            ),
        }
        Ok(false)
    }

    /// Notes that a transaction is unlocked; the objects that it has stored.
    pub(crate) fn unlocked(&mut self, ttid: Tid) -> impl Iterator<Item = Oid> {
        self.transactions.note_serials(ttid);
        self.transactions.stored(ttid)
    }

    /// Gives a transaction up, unless it is locked; whether it did.
    pub(crate) fn abort(&self, links: &mut Links, ttid: Tid) -> bool {
        let Some(transaction) = self.transactions.all.get(&ttid) else { return false };
        if transaction.tid.is_some() {
            return false;
        }
        debug!(%ttid, "aborting");
        links.count().aborts += 1;
        if transaction.vote != Vote::No && transaction.rows.are_voted() {
            links.write_lazily(move |database| database.abort(ttid), |_, ()| {});
        }
        true
    }

    /// Forgets a transaction that is over; the objects that it had, and releases.
    pub(crate) fn forget(&mut self, links: &mut Links, ttid: Tid) -> Option<Vec<Oid>> {
        let (transaction, oids) = self.transactions.remove(ttid)?;
        for request in transaction.unvoted.into_delayed() {
            answer_lock(links, request, Some(Tid::ZERO));
        }
        Some(oids)
    }

    /// A client asks whether a transaction was committed.
    pub(crate) fn outcome_asked(
        &self,
        links: &mut Links,
        cluster: &Cluster,
        from: (ConnectionId, u32),
        ttid: Tid,
    ) -> Handled {
        if let Some(transaction) = self.transactions.all.get(&ttid) {
            let tid = transaction.tid;
            links.answer(from, AnswerFinalTID { tid });
            return Ok(());
        }
        cluster.check_readable_tid(ttid)?;
        links.read_shortly_for(
            from,
            move |database| database.final_tid(ttid),
            move |node, tid| {
                node.cluster.check_readable_tid(ttid)?;
                node.links.answer(from, AnswerFinalTID { tid });
                Ok(())
            },
        );
        Ok(())
    }

    /// Whether nothing is locked, and no request waits for a lock.
    pub(crate) fn is_unlocked(&self) -> bool {
        self.transactions.is_unlocked()
    }

    /// Whether no transaction is in progress.
    pub(crate) fn is_empty(&self) -> bool {
        self.transactions.all.is_empty()
    }

    /// Whether an object is between lock and unlock: it cannot be read.
    pub(crate) fn is_read_locked(&self, oid: Oid) -> bool {
        self.transactions.read_locks.contains_key(&oid)
    }

    /// Whether a transaction up to this one is between lock and unlock.
    pub(crate) fn is_locked_until(&self, tid: Tid) -> bool {
        self.transactions.is_locked_until(tid)
    }

    /// Whether the transaction with this tid is between lock and unlock.
    pub(crate) fn is_locked(&self, tid: Tid) -> bool {
        self.transactions.all.values().any(|one| one.tid == Some(tid))
    }

    /// The last transaction between lock and unlock.
    pub(crate) fn last_locked(&self) -> Option<Tid> {
        self.transactions.all.values().filter_map(|one| one.tid).max()
    }

    /// The serial of an object that a transaction has stored itself, for an undo.
    pub(crate) fn own_serial(&self, ttid: Tid, oid: Oid) -> Option<Tid> {
        let transaction = self.transactions.all.get(&ttid)?;
        let stored = transaction.objects.get(&oid)?.stored.as_ref()?;
        Some(stored.data_serial.unwrap_or(ttid))
    }

    /// The transactions that are not locked.
    pub(crate) fn unlocked_ttids(&self) -> Vec<Tid> {
        self.transactions.unlocked()
    }

    /// The transactions of a client that are not locked.
    pub(crate) fn of_client(&self, client: NodeId) -> Vec<Tid> {
        self.transactions.of_client(client)
    }

    /// The transactions that are over with a connection. The client may take part in the end of
    /// what it has voted, unless that was over already. It may also have connected again, and store
    /// on the new connection already.
    pub(crate) fn lost_with(&self, connection: ConnectionId) -> Vec<Tid> {
        self.transactions.lost_with(connection)
    }

    /// Notes that the master has ended a transaction.
    pub(crate) fn note_end(&mut self, ttid: Tid) {
        self.transactions.note_end(ttid);
    }

    /// Notes what the master tells of transactions in progress; those here that are over.
    pub(crate) fn note_in_progress(&mut self, committed: Tid, ttids: &[Tid]) -> Vec<Tid> {
        self.transactions.note_in_progress(committed, ttids)
    }

    /// Transactions in progress, by how far they are.
    pub(crate) fn counts(&self) -> TransactionCounts {
        let mut counts = TransactionCounts::default();
        for transaction in self.transactions.all.values() {
            match (transaction.tid, transaction.vote) {
                (Some(_), _) => counts.locked += 1,
                (None, Vote::Done) => counts.voted += 1,
                (None, Vote::No | Vote::Asked) => counts.open += 1,
            }
        }
        counts
    }

    /// The bytes of data in memory that are not written.
    pub(crate) fn unvoted_bytes(&self) -> u64 {
        self.transactions.unvoted_bytes()
    }
}
