//! What an operator should know although the cluster may run: storages that do not answer, copies
//! that differ, transactions that a start has given up, databases that are older copies.
//!
//! The log has each once. The status has it as long as it is so, and admins that ask for it are
//! told: those of NEO/py do not, since no message of NEO is for that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tracing::{error, info, warn};
use zodium_neo::messages::{NotifyMonitorInformation, Ping};
use zodium_neo::{
    Checked, ClusterState, Extra, NodeId, NodeType, Output, Partition, TableId, Value,
};
use zodium_types::Tid;

use crate::clock_watch::ClockWatch;
use crate::cluster::Cluster;
use crate::old_copies::OldCopies;
use crate::peer::{Asked, Links};

/// Interval between the looks at storages.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// A storage that has not answered for so many looks is reported.
const LOOKS_MAX: u32 = 2;
/// Most partitions and storages that are named.
const NAMED_MAX: usize = 10;

/// What is not as it should be.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    /// The number of the alarm for the next look, while this master is primary.
    alarm: Option<u64>,
    /// Storages that were pinged and have not answered, with the number of looks since then.
    pinged: BTreeMap<NodeId, u32>,
    /// Partitions whose copies differ, and the storages that have them.
    different: BTreeMap<Partition, BTreeSet<NodeId>>,
    /// The last table that the cluster ran with, as far as this master knows.
    ran_with: Option<TableId>,
    /// That table and the last transaction, if only an older table is found.
    older: Option<(TableId, Tid)>,
    given_up: Option<GivenUp>,
    old_copies: Option<OldCopies>,
    left_backup: Option<LeftBackup>,
    clock: ClockWatch,
    /// The version of the refused storages that was told.
    refused: u64,
    /// Whether the notes may be other ones now.
    is_changed: bool,
    notes: Vec<String>,
}

/// A backup that its upstream cluster lacked transactions of.
#[derive(Debug)]
struct LeftBackup {
    /// The last transaction of the upstream cluster, if it is known.
    upstream: Option<Tid>,
    here: Tid,
}

/// Transactions that a start has given up.
#[derive(Debug)]
struct GivenUp {
    /// The last transaction that was kept.
    kept: Tid,
    /// The last one that there was.
    until: Tid,
    /// Partitions of which some copy may have them.
    unchecked: BTreeSet<Partition>,
}

impl GivenUp {
    /// Notes copies that are the same; whether those of a partition are known to be.
    fn same(&mut self, cluster: &Cluster, checked: &Checked) -> bool {
        let copies = cluster.table.row(checked.partition).len();
        let is_whole = checked.min_tid <= self.kept
            && self.until <= checked.max_tid
            && checked.copies as usize == copies;
        is_whole && self.unchecked.remove(&checked.partition)
    }
}

impl Troubles {
    /// The cluster recovers; `alarm` is a number that no other alarm has.
    pub(crate) fn begin_recovery(&mut self, links: &mut Links, alarm: u64) {
        (self.alarm, self.older, self.is_changed) = (Some(alarm), None, true);
        // What they were asked before, they need not answer any more.
        self.pinged.clear();
        links.push(Output::Wake { alarm, after: LOOK_INTERVAL });
    }

    /// The cluster begins to operate.
    pub(crate) fn begin_operation(&mut self) {
        (self.older, self.is_changed) = (None, true);
    }

    /// The time of an alarm has come: storages are asked whether they are there.
    pub(crate) fn look(&mut self, cluster: &mut Cluster, links: &mut Links, alarm: u64) {
        if self.alarm != Some(alarm) {
            // Of a recovery before, or another alarm.
            return;
        }
        self.is_changed |= self.clock.look(cluster.last_tid, cluster.clock.now());
        cluster.refused.look();
        // Commits wait for none that is new.
        let is_starting = is_starting(cluster);
        let mut storages = cluster.members.identified(NodeType::Storage);
        storages.retain(|(storage, _)| is_starting || cluster.members.is_running(*storage));
        for (storage, connection) in storages {
            let Some(looks) = self.pinged.get_mut(&storage) else {
                links.ask(connection, Ping {}, Asked::Alive);
                self.pinged.insert(storage, 0);
                continue;
            };
            *looks += 1;
            self.is_changed |= *looks >= LOOKS_MAX;
            if *looks == LOOKS_MAX {
                let (peer, seconds) = (links.name_of(connection), seconds(*looks));
                let what = if is_starting { "the start" } else { "commits" };
                warn!(%storage, peer, seconds, "a storage does not answer: {what} may wait for it");
            }
        }
        links.push(Output::Wake { alarm, after: LOOK_INTERVAL });
    }

    /// A storage has answered.
    pub(crate) fn answered(&mut self, storage: NodeId) {
        if self.pinged.remove(&storage).is_some_and(|looks| looks >= LOOKS_MAX) {
            info!(%storage, "the storage answers again");
            self.is_changed = true;
        }
    }

    /// The connection of a storage has ended.
    pub(crate) fn storage_left(&mut self, storage: NodeId) {
        self.is_changed |= self.pinged.remove(&storage).is_some();
    }

    /// A check has found that copies of a partition differ.
    pub(crate) fn differ(&mut self, partition: Partition, storages: &[NodeId]) {
        self.different.entry(partition).or_default().extend(storages);
        if let Some(given_up) = &mut self.given_up {
            given_up.unchecked.insert(partition);
        }
        let storages: Vec<_> = storages.iter().map(ToString::to_string).collect();
        error!("Partition {partition} corrupted in: {}", storages.join(", "));
        self.is_changed = true;
    }

    /// An operator has partitions compared again: what differs is told again.
    pub(crate) fn check(&mut self, partitions: impl Iterator<Item = Partition>) {
        partitions.for_each(|partition| drop(self.different.remove(&partition)));
        self.is_changed = true;
    }

    /// The last transaction that a start has given up: some copies may have it.
    pub(crate) fn given_up_until(&self) -> Tid {
        self.given_up.as_ref().map_or(Tid::ZERO, |given_up| given_up.until)
    }

    /// Copies of a partition were compared, and are the same.
    pub(crate) fn same(&mut self, cluster: &Cluster, checked: &Checked) {
        let Some(given_up) = &mut self.given_up else { return };
        if given_up.same(cluster, checked) && given_up.unchecked.is_empty() {
            info!("no copy has transactions that the start has given up");
            (self.given_up, self.is_changed) = (None, true);
        }
    }

    /// A recovery has found a table; `last_tid` is the last transaction that the cluster ran with,
    /// as far as this master knows.
    pub(crate) fn table_found(&mut self, found: TableId, last_tid: Option<Tid>) {
        let older = self.ran_with.filter(|last| found < *last).zip(last_tid);
        (self.older, self.is_changed) = (older, true);
        if let Some((last, tid)) = older {
            warn!(
                table = %found, last_table = %last, last_tid = %tid,
                "the partition table is older than that which the cluster ran with: the storages \
                 that are there lack what was committed since"
            );
        }
    }

    /// The cluster starts with this last transaction; it had `before` when it ran.
    pub(crate) fn started_after(&mut self, cluster: &Cluster, before: Option<Tid>) {
        let kept = cluster.last_tid;
        let Some(until) = before.filter(|before| kept < *before) else { return };
        warn!(
            last_tid = %kept, lost = %until,
            "the cluster starts without transactions that were committed: erase the database of \
             each storage that was missing (--reset) before it comes back"
        );
        let unchecked = (0..cluster.table.partitions()).map(Partition).collect();
        (self.given_up, self.is_changed) = (Some(GivenUp { kept, until, unchecked }), true);
    }

    /// A start has found these older copies, after all storages were cut if they were to be.
    pub(crate) fn old_copies_found(&mut self, found: Option<OldCopies>, cut_after: Option<Tid>) {
        let is_whole = |old: &OldCopies| cut_after.is_some_and(|tid| tid <= old.first_tid());
        if found.is_some() || self.old_copies.as_ref().is_some_and(is_whole) {
            (self.old_copies, self.is_changed) = (found, true);
        }
    }

    /// The cluster, with this last transaction, stops being a backup, since the upstream cluster
    /// lacks a transaction.
    pub(crate) fn left_backup(&mut self, upstream: Option<Tid>, here: Tid) {
        (self.left_backup, self.is_changed) = (Some(LeftBackup { upstream, here }), true);
    }

    /// The cluster is a backup.
    pub(crate) fn follows(&mut self) {
        self.is_changed |= self.left_backup.take().is_some();
    }

    /// Has admins told of all, as one of them has just come.
    pub(crate) fn admin_came(&mut self) {
        self.is_changed = true;
    }

    /// What is not as it should be, in sentences.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Tells admins of what has changed: the notes, and the table that the cluster ran with.
    pub(crate) fn tell(&mut self, cluster: &Cluster, links: &mut Links) {
        // With a table whose last change no storage has, nothing was committed.
        let is_in_use = cluster.is_operating() && cluster.table.is_settled();
        let table = cluster.table.id().filter(|_| is_in_use).or(self.ran_with);
        let refused = std::mem::replace(&mut self.refused, cluster.refused.version());
        self.is_changed |= table != self.ran_with || refused != self.refused;
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        self.ran_with = table;
        self.notes = self.sentences(cluster);
        let notes = self.notes.iter().map(|note| Value::Bytes(note.as_bytes())).collect();
        let table = table.and_then(|table| i64::try_from(table.0).ok());
        let table = table.map_or(Value::Nil, Value::Int);
        let information = Extra::from_iter([("notes", Value::Array(notes)), ("table", table)]);
        for (admin, connection) in cluster.members.identified(NodeType::Admin) {
            if cluster.members.get(admin).is_some_and(|node| node.about.wants_notes) {
                let information = information.clone();
                links.notify(connection, NotifyMonitorInformation { information });
            }
        }
    }

    fn sentences(&self, cluster: &Cluster) -> Vec<String> {
        let silent = self.pinged.iter().filter(|(_, looks)| **looks >= LOOKS_MAX);
        let silent = silent.map(|(storage, looks)| silent_storage(cluster, *storage, *looks));
        let older = self.older.map(|(table, tid)| {
            format!(
                "only table {} is found, and the cluster ran with table {table}: the storages \
                 that are there lack what was committed since, up to transaction {tid}. Start the \
                 others",
                cluster.table.id().map_or("none".to_owned(), |id| id.to_string()),
            )
        });
        let given_up = self.given_up.as_ref().map(|GivenUp { kept, until, .. }| {
            format!(
                "the cluster was started without transactions that were committed, those after \
                 {kept} up to {until}: a storage that was missing then has to be erased (`zodium \
                 neo storage --reset`) before it comes back. When all are there and up to date, \
                 `zodium neo ctl check :` compares them, and ends this note if they are the same"
            )
        });
        let old_copies = self.old_copies.as_ref().map(lost_by_old_copies);
        let left_backup = self.left_backup.as_ref().map(left_backup);
        let lost = older.into_iter().chain(given_up).chain(old_copies).chain(left_backup);
        silent
            .chain(cluster.refused.sentences())
            .chain(lost)
            .chain(self.clock.note())
            .chain(self.differences())
            .collect()
    }

    fn differences(&self) -> Option<String> {
        if self.different.is_empty() {
            return None;
        }
        let copies = self.different.iter();
        let copies = copies.map(|(id, storages)| format!("{id} in {}", named(storages.iter())));
        Some(format!(
            "a check, or a storage that fetches, has found copies that differ, of partition {}: \
             find out which are right. Then stop one storage with a wrong copy, erase it (`zodium \
             neo storage --reset`), start it, and wait until `zodium neo status` shows it up to \
             date, before the next one: others may have their only right copy there. A new `zodium \
             neo ctl check` ends this note",
            listed(copies, "; ")
        ))
    }
}

fn lost_by_old_copies(old: &OldCopies) -> String {
    let first = old.first_tid();
    let ends = old.last_tids.iter().map(|(tid, storage)| format!("{storage} ended with {tid}"));
    format!(
        "the cluster was started with older copies of databases, those of {}, and no other storage \
         has some of their partitions: transactions after {first} may be there in part only. {}. \
         Stop all nodes and put newer databases there. Or, before clients commit, `zodium neo ctl \
         truncate tid:0x{first}` cuts off what is later in all storages, and ends this note",
        named(old.storages.iter()),
        listed(ends, ", ")
    )
}

fn left_backup(LeftBackup { upstream, here }: &LeftBackup) -> String {
    let upstream = upstream.map(|tid| format!(" ends with transaction {tid}, and"));
    format!(
        "the cluster has left backup mode by itself, and clients can commit to it: the upstream \
         cluster{} lacks transactions of this one, which ended with {here}. To have it follow \
         again, erase the databases of all its storages (`zodium neo storage --reset`), start it, \
         and `zodium neo ctl set cluster STARTING_BACKUP`. That, or a new master, ends this note",
        upstream.unwrap_or_default()
    )
}

/// Whether storages are asked for what they have, before the cluster operates.
fn is_starting(cluster: &Cluster) -> bool {
    matches!(cluster.state(), ClusterState::Recovering | ClusterState::Verifying)
}

fn silent_storage(cluster: &Cluster, storage: NodeId, looks: u32) -> String {
    let what = format!("{storage} has not answered for {} s", seconds(looks));
    if is_starting(cluster) {
        let is_needed = cluster.table.id().is_none() || cluster.table.has_member(storage);
        let waits = if is_needed { ", and the cluster does not start meanwhile" } else { "" };
        return format!("{what}{waits}: if it hangs, restart it");
    }
    let next = match cluster.is_operational_without(&[storage]) {
        true => format!("or let `zodium neo ctl kill {storage}` go on without it"),
        false => "since it alone has some partitions up to date".to_owned(),
    };
    format!("{what}, and commits wait for it: if it hangs, restart it, {next}")
}

fn seconds(looks: u32) -> u64 {
    LOOK_INTERVAL.as_secs() * u64::from(looks)
}

fn named(all: impl Iterator<Item = impl ToString>) -> String {
    listed(all, ", ")
}

fn listed(all: impl Iterator<Item = impl ToString>, separator: &str) -> String {
    let mut names: Vec<_> = all.take(NAMED_MAX + 1).map(|one| one.to_string()).collect();
    if names.len() > NAMED_MAX {
        names[NAMED_MAX] = "others".to_owned();
    }
    names.join(separator)
}
