//! Replication: what this node lacks, and what it gives to others.
//!
//! A cell that is out of date takes part in commits, but checks nothing: it accepts every store
//! without a lock. `progress` says what it lacks, and `target` fetches it from another storage. The
//! cell is announced when no transaction is in progress that was stored unchecked.
//!
//! A pack removes deletions, too. So a cell that lacks a deletion never gets it from a source that
//! has packed since, and its object would live on here. When the source may have carried out a pack
//! that this cell has not, all records are compared, those from before as well. And a source begins
//! no pack of a partition while another storage fetches it.
//!
//! A cell begins with its last transaction. If the source lacks it, nothing is fetched: the
//! database went another way than the cluster, and both together would be one that never was.

mod backup;
mod dropping;
mod fetching;
mod foreign;
mod progress;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use zodium_neo::{Address, Partition};
use zodium_types::Tid;

use self::dropping::Dropping;
use self::fetching::Current;
use crate::ConnectionId;
use crate::status::Missing;

/// What this node replicates.
#[derive(Debug, Default)]
pub(crate) struct Replication {
    /// The cells of this node that are readable or out of date.
    cells: BTreeMap<Partition, Cell>,
    /// Partitions to replicate, and up to which transaction.
    wanted: BTreeMap<Partition, Tid>,
    /// Of a backup cluster: where to fetch partitions from.
    sources: BTreeMap<Partition, BackupSource>,
    /// Transactions that were in progress when the master was asked.
    unfinished: BTreeSet<Tid>,
    /// Questions for unfinished transactions.
    questions: BTreeMap<u64, Question>,
    last_question: u64,
    /// The partition that is being replicated.
    current: Option<Current>,
    /// Numbers the attempts to fetch a partition: what an earlier one has begun is ignored.
    last_attempt: u64,
    /// Chooses among sources in turn.
    turn: usize,
    /// Whether the last source failed: the next one is dialled after a pause.
    has_failed: bool,
    /// Whether the database has transactions that the cluster has not: nothing is fetched then.
    is_foreign: bool,
    /// Whether the database limits the metadata of transactions.
    limits_metadata: bool,
    dropping: Dropping,
}

/// Pause before a source is dialled after one has failed.
const DIAL_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause before a source is dialled after sources have refused.
const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A question for unfinished transactions.
#[derive(Debug, Default)]
struct Question {
    /// The cells that it is for.
    partitions: Vec<Partition>,
    /// Transactions that were not locked here: those that the answer leaves out are over.
    known: Vec<Tid>,
}

/// How far a cell is.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The first transaction whose metadata may be missing.
    next_transaction: Tid,
    /// The first transaction of which records may be missing.
    next_record: Tid,
    /// The cell waits for transactions up to this one to finish.
    waits_for: Option<Tid>,
    /// All records were compared with those of a source that may have carried out packs up to this
    /// one.
    compared: Tid,
    /// How often sources have refused to send the partition since it got further. Some refusals
    /// pass by themselves, as that of a source whose own cell went out of date a moment ago.
    refusals: u32,
    /// Whether a source has lacked the last transaction of the cell.
    was_lacked: bool,
}

impl Replication {
    /// Nothing is replicated.
    pub(crate) fn new(limits_metadata: bool) -> Replication {
        Replication { limits_metadata, ..Replication::default() }
    }

    /// Forgets what is replicated, but not what the database can hold.
    pub(crate) fn reset(&mut self) {
        *self = Replication::new(self.limits_metadata);
    }

    /// The partition that is being fetched.
    pub(crate) fn partition(&self) -> Option<Partition> {
        self.current.as_ref().map(|current| current.partition)
    }

    /// The name of the cluster that a partition is fetched from on a connection, in a backup
    /// cluster; empty for the own one.
    pub(crate) fn cluster_of(&self, connection: ConnectionId) -> Option<&str> {
        let current = self.current.as_ref().filter(|current| current.connection == connection)?;
        current.source.as_ref().map(|source| &*source.cluster)
    }

    /// The pause before a source is dialled.
    pub(crate) fn pause(&self) -> Duration {
        if self.has_failed { DIAL_PAUSE } else { Duration::ZERO }
    }

    /// The pause before a source of a partition is dialled: longer and longer when sources refuse,
    /// which an operator may have to end.
    fn pause_for(&self, partition: Partition) -> Duration {
        match self.refusals_for(partition) {
            0 => self.pause(),
            refusals => (DIAL_PAUSE * (1 << refusals.min(16))).min(REFUSED_PAUSE_MAX),
        }
    }

    fn refusals_for(&self, partition: Partition) -> u32 {
        self.cells.get(&partition).map_or(0, |cell| cell.refusals)
    }

    /// What a cell lacks; `None` if nothing is to be fetched.
    pub(crate) fn missing(&self, partition: Partition) -> Option<Missing> {
        let cell = self.cells.get(&partition)?;
        let current = self.current.as_ref().filter(|current| current.partition == partition);
        let until = self.wanted.get(&partition).copied().max(current.map(|current| current.tid));
        let from = cell.next_record;
        let is_behind = until.is_some() || cell.waits_for.is_some();
        is_behind.then_some(Missing { from, until })
    }
}

/// Where a partition of a backup cluster comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BackupSource {
    address: Address,
    /// The name of the upstream cluster; empty for the own one.
    cluster: String,
}

impl BackupSource {
    fn is_own_cluster(&self) -> bool {
        self.cluster.is_empty()
    }
}

/// A cell waits for an answer of the master.
const UNKNOWN: Tid = Tid(u64::MAX);
