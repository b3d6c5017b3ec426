//! Storages with a database from before: an older copy of it, which was put back.
//!
//! A transaction is in each storage with a readable cell of its metadata. So a storage with such a
//! cell whose last transaction is an earlier one is an older copy, and has to fetch what it lacks.
//! Another storage may have had no part in the last transactions of the others. But storages of a
//! cluster in use end within moments of each other: one that is further behind fetches, too. If it
//! lacks nothing, this costs some questions.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{error, info, warn};
use zodium_neo::{NodeId, TableId};
use zodium_types::Tid;

use crate::cluster::Cluster;
use crate::peer::Links;
use crate::table::Table;

/// A storage whose last transaction is so much earlier than that of another one may lack some.
const BEHIND_MIN: Duration = Duration::from_secs(10);

/// What storages with cells have said of their databases.
#[derive(Debug)]
pub(crate) struct Said {
    /// The last transaction of its readable cells.
    pub(crate) last_tid: Tid,
    /// The partition table that it had before the start.
    pub(crate) table: Option<TableId>,
}

/// A storage that lacks transactions, or may lack some.
#[derive(Debug)]
struct Behind {
    storage: NodeId,
    last_tid: Tid,
    /// A transaction that others have: it lacks this one, or may lack some until then.
    until: Tid,
    /// Whether it certainly is an older copy.
    is_older: bool,
}

/// Older copies, some of which have partitions alone: what was committed there since is lost.
#[derive(Debug)]
pub(crate) struct OldCopies {
    /// The storages with them, and those with partitions alone that may have others.
    pub(crate) storages: Vec<NodeId>,
    /// The last transactions of storages with readable cells, the earliest first.
    pub(crate) last_tids: Vec<(Tid, NodeId)>,
}

impl OldCopies {
    /// The last transaction that all of them have.
    pub(crate) fn first_tid(&self) -> Tid {
        self.last_tids.first().map_or(Tid::ZERO, |(tid, _)| *tid)
    }
}

/// Cells of older copies go out of date where others have the partition. Gives what is lost.
pub(crate) fn outdate(
    cluster: &mut Cluster,
    links: &mut Links,
    said: &BTreeMap<NodeId, Said>,
) -> Option<OldCopies> {
    let readable = cluster.table.readable_nodes();
    let behind = find(&cluster.table, said);
    for Behind { storage, last_tid, until, is_older } in &behind {
        let storage = *storage;
        if *is_older {
            warn!(
                %storage, %last_tid, lacks = %until,
                "the database of a storage is an older copy: it fetches what was committed since"
            );
        } else {
            info!(
                %storage, %last_tid, %until,
                "a storage ends with an earlier transaction: it asks others for what was committed \
                 since"
            );
        }
        let members = &cluster.members;
        let is_other = |id| id != storage && members.is_running(id);
        let changes = cluster.table.outdate(Some(storage), is_other);
        cluster.tell_cells(links, changes, false);
    }
    let is_alone = |one: &&Behind| cluster.table.readable_nodes().contains(&one.storage);
    for Behind { storage, .. } in behind.iter().filter(|one| one.is_older).filter(is_alone) {
        error!(
            %storage,
            "no other storage has some partitions of an older copy: what was committed there since \
             is lost"
        );
    }
    // One older copy makes others that are behind suspicious: all may have been put back.
    if !behind.iter().any(|one| one.is_older) || !behind.iter().any(|one| is_alone(&one)) {
        return None;
    }
    let named = behind.iter().filter(|one| one.is_older || is_alone(one));
    let storages = named.map(|one| one.storage).collect();
    let ends = said.iter().filter(|(storage, _)| readable.contains(storage));
    let mut last_tids: Vec<_> = ends.map(|(storage, said)| (said.last_tid, *storage)).collect();
    last_tids.retain(|(tid, _)| *tid > Tid::ZERO);
    last_tids.sort_unstable();
    Some(OldCopies { storages, last_tids })
}

/// Storages that are behind: those that certainly are first, then the oldest first.
fn find(table: &Table, said: &BTreeMap<NodeId, Said>) -> Vec<Behind> {
    let has_metadata = |storage: &NodeId, tid: Tid| {
        let row = table.partition_of_tid(tid).map_or(&[][..], |partition| table.row(partition));
        row.iter().any(|cell| cell.node == *storage && cell.is_readable())
    };
    let behind = |(storage, own): (&NodeId, &Said)| {
        // What a storage with an earlier table has more may have been cut off since.
        let others = said.values().filter(|other| other.table >= own.table);
        let tids = others.map(|other| other.last_tid).filter(|tid| *tid > own.last_tid);
        let lacks = tids.clone().filter(|tid| has_metadata(storage, *tid)).max();
        let last = tids.max().filter(|last| is_far_after(*last, own.last_tid));
        let (until, is_older) = (lacks.or(last)?, lacks.is_some());
        Some(Behind { storage: *storage, last_tid: own.last_tid, until, is_older })
    };
    let readable = table.readable_nodes();
    let mut found: Vec<_> = said.iter().filter_map(behind).collect();
    found.retain(|one| readable.contains(&one.storage));
    found.sort_unstable_by_key(|one| (!one.is_older, one.last_tid, one.storage));
    found
}

fn is_far_after(later: Tid, tid: Tid) -> bool {
    later.to_unix_nanos().saturating_sub(tid.to_unix_nanos()) >= BEHIND_MIN.as_nanos() as u64
}
