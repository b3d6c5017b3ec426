//! Transactions from their begin to their commit.
//!
//! A transaction that is being finished has a tid, and its place in a queue by tids. It is
//! committed when all storages have locked it, and all before it are committed.

mod abort;
mod begin;
mod commit;
mod finish;
mod outcome;

use std::collections::{BTreeMap, VecDeque};

use zodium_neo::messages::FailedVote;
use zodium_neo::{NodeId, Partition, Request, TableId};
use zodium_types::{Oid, Tid};

use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::table::Cell;
use crate::tids::Tids;

/// The storages and cells that are there when a transaction begins. Later ones do not get it in
/// full: they replicate it when it is committed.
#[derive(Clone, Copy, Debug)]
struct Audience {
    readiness: u64,
    table: Option<TableId>,
}

/// A transaction that has begun.
#[derive(Debug)]
pub(crate) struct Transaction {
    /// The client; `None` when it has left after it asked for the commit.
    client: Option<NodeId>,
    /// Which storages and cells get the transaction in full.
    audience: Audience,
    /// Storages that miss stores, though they were ready.
    failed: Vec<NodeId>,
    /// Told when it is committed.
    waiting: Vec<Waiting>,
    commit: Option<Commit>,
}

/// What a transaction has when its client asks to finish it.
#[derive(Debug)]
struct Commit {
    tid: Tid,
    oids: Vec<Oid>,
    partitions: Vec<Partition>,
    /// The client's request.
    request: Request,
    /// Storages that lock it.
    involved: Vec<NodeId>,
    /// Those that have not said that they have.
    locking: Vec<NodeId>,
}

/// A node that is told when a transaction is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// A storage that replicates.
    Storage(NodeId),
    /// A client that has lost its connection while it finished the transaction.
    Client(Request),
}

/// A request that waits for storages or for other transactions.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) request: Request,
    pub(crate) client: NodeId,
    pub(crate) what: DelayedRequest,
}

/// What a client asks for.
#[derive(Debug)]
pub(crate) enum DelayedRequest {
    /// To begin a transaction, which may bring its tid.
    Begin(Option<Tid>),
    /// To vote, though not everything could be stored on every storage.
    Vote(FailedVote),
}

/// The largest tid, and the largest oid, that a client may bring. A quarter of all are left for
/// those that masters give: new ones are later than all that are there.
const BROUGHT_MAX: u64 = 3 << 61;
/// The largest oid: databases keep signed numbers.
const OID_MAX: u64 = i64::MAX as u64;
/// Oids that clients may have of an earlier master: a thousand for each of a thousand clients.
const LENT_OIDS_MAX: u64 = 1 << 20;

/// All transactions.
#[derive(Debug)]
pub(crate) struct Transactions {
    /// By ttid.
    all: BTreeMap<Tid, Transaction>,
    /// Those that are being finished, and one that has brought its tid, in the order of their tids.
    queue: VecDeque<Tid>,
    delayed: VecDeque<Delayed>,
    tids: Tids,
    last_oid: Oid,
    /// Whether clients may have oids of an earlier master, which none of them has committed yet.
    may_be_lent: bool,
    first_tid: Tid,
    /// Commits since the start of this master.
    committed: u64,
}

impl Default for Transactions {
    fn default() -> Transactions {
        Transactions {
            all: BTreeMap::new(),
            queue: VecDeque::new(),
            delayed: VecDeque::new(),
            tids: Tids::default(),
            last_oid: Oid::ROOT,
            may_be_lent: false,
            first_tid: Tid::MAX,
            committed: 0,
        }
    }
}

impl Transactions {
    /// Forgets everything but how many were committed.
    pub(crate) fn reset(&mut self) {
        *self = Transactions { committed: self.committed, ..Transactions::default() };
    }

    /// Whether no transaction has begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many have begun.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether a transaction has begun, and not ended.
    pub(crate) fn contains(&self, ttid: Tid) -> bool {
        self.all.contains_key(&ttid)
    }

    /// Those that no client has asked to finish.
    pub(crate) fn unfinished(&self) -> Vec<Tid> {
        let unfinished = self.all.iter().filter(|(_, one)| one.commit.is_none());
        unfinished.map(|(ttid, _)| *ttid).collect()
    }

    /// Commits since the start of this master.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// The first transaction of the database.
    pub(crate) fn first_tid(&self) -> Tid {
        self.first_tid
    }

    /// The last oid in use.
    pub(crate) fn last_oid(&self) -> Oid {
        self.last_oid
    }

    /// Later tids are after this one, and no longer after those that were given before.
    pub(crate) fn begin_after(&mut self, tid: Tid) {
        self.tids.begin_after(tid);
    }

    /// The last tid or ttid in use, at least `committed`.
    pub(crate) fn last_tid(&self, committed: Tid) -> Tid {
        let ttid = self.all.keys().next_back().copied();
        let queued = self.queue.back().and_then(|ttid| self.all.get(ttid));
        let tid = queued.and_then(|transaction| transaction.commit.as_ref()).map(|one| one.tid);
        ttid.max(tid).map_or(committed, |last| last.max(committed))
    }

    /// New oids; `None` if there are not as many. The first ones of this master are far from the
    /// last one that was committed.
    pub(crate) fn new_oids(&mut self, count: u32) -> Option<Vec<Oid>> {
        let lent = if self.may_be_lent { LENT_OIDS_MAX } else { 0 };
        let before = self.last_oid.0.saturating_add(lent);
        let last = before.saturating_add(count.into());
        if last > OID_MAX {
            return None;
        }
        (self.last_oid, self.may_be_lent) = (Oid(last), false);
        Some((before + 1..=last).map(Oid).collect())
    }

    /// Refuses objects that would leave too few oids for new ones. Clients may have oids that this
    /// master, or an earlier one, has given.
    fn check_oids(&self, oids: &[Oid]) -> Handled {
        let given = self.last_oid.0.saturating_add(LENT_OIDS_MAX);
        match oids.iter().find(|oid| oid.0 > given.max(BROUGHT_MAX)) {
            Some(oid) => {
                Err(Refusal::protocol(format!("the object {oid} leaves too few later oids")))
            }
            None => Ok(()),
        }
    }

    /// The largest oid of the database. Clients may still have later ones of an earlier master: a
    /// client behind a gateway does not hear that the master has changed.
    pub(crate) fn begin_after_oid(&mut self, last: Oid) {
        self.note_oid(last);
        self.may_be_lent = last > Oid::ROOT;
    }

    /// An oid is in use.
    pub(crate) fn note_oid(&mut self, oid: Oid) {
        self.last_oid = self.last_oid.max(oid);
    }

    /// A transaction is in the database.
    pub(crate) fn note_first(&mut self, tid: Tid) {
        self.first_tid = self.first_tid.min(tid);
    }

    /// A replicating storage is told when the transactions of now are committed. Gives them.
    pub(crate) fn notify_storage(&mut self, storage: NodeId) -> Vec<Tid> {
        for transaction in self.all.values_mut() {
            transaction.wait(Waiting::Storage(storage));
        }
        self.all.keys().copied().collect()
    }

    /// Removes a transaction.
    fn remove(&mut self, ttid: Tid) -> Option<Transaction> {
        self.queue.retain(|queued| *queued != ttid);
        self.all.remove(&ttid)
    }
}

impl Audience {
    /// What is there now.
    fn of(cluster: &Cluster) -> Audience {
        Audience { readiness: cluster.readiness.count(), table: cluster.table.id() }
    }

    /// Whether a storage was ready then, and is still.
    fn has_storage(self, cluster: &Cluster, storage: NodeId) -> bool {
        cluster.readiness.was_ready(storage, self.readiness)
    }

    /// Whether a cell was there then, and its storage was ready.
    fn has_cell(self, cluster: &Cluster, cell: &Cell) -> bool {
        self.has_storage(cluster, cell.node) && cell.was_given_by(self.table)
    }
}

impl Transaction {
    fn wait(&mut self, waiting: Waiting) {
        if !self.waiting.contains(&waiting) {
            self.waiting.push(waiting);
        }
    }

    /// The storages that are told of its end.
    fn waiting_storages(&self) -> impl Iterator<Item = NodeId> {
        self.waiting.iter().filter_map(|waiting| match waiting {
            Waiting::Storage(storage) => Some(*storage),
            Waiting::Client(_) => None,
        })
    }
}
