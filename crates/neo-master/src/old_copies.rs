//! Storages with a database from before: an older copy of it, which was put back.
//!
//! A transaction is in each storage with a readable cell of its metadata. So a storage with such a
//! cell whose last transaction is an earlier one is an older copy, and has to fetch what it lacks.
//! Not all older copies are found: the last transactions of the others may have their metadata
//! elsewhere.

use std::collections::BTreeMap;

use tracing::{error, warn};
use zodium_neo::{NodeId, TableId};
use zodium_types::Tid;

use crate::cluster::Cluster;
use crate::peer::Links;
use crate::table::Table;

/// What storages with cells have said of their databases.
#[derive(Debug)]
pub(crate) struct Said {
    /// The last transaction of its readable cells.
    pub(crate) last_tid: Tid,
    /// The partition table that it had before the start.
    pub(crate) table: Option<TableId>,
}

/// Cells of older copies go out of date where others have the partition.
pub(crate) fn outdate(cluster: &mut Cluster, links: &mut Links, said: &BTreeMap<NodeId, Said>) {
    for (last_tid, storage, lacks) in find(&cluster.table, said) {
        warn!(
            %storage, %last_tid, %lacks,
            "the database of a storage is an older copy: it fetches what was committed since"
        );
        let members = &cluster.members;
        let is_other = |id| id != storage && members.is_running(id);
        let changes = cluster.table.outdate(Some(storage), is_other);
        cluster.tell_cells(links, changes, false);
        if cluster.table.readable_nodes().contains(&storage) {
            error!(
                %storage,
                "no other storage has some partitions of an older copy: what was committed there \
                since is lost"
            );
        }
    }
}

/// The older copies, the oldest first: the last transaction, the storage, and one that it lacks.
fn find(table: &Table, said: &BTreeMap<NodeId, Said>) -> Vec<(Tid, NodeId, Tid)> {
    let has_metadata = |storage: &NodeId, tid: Tid| {
        let row = table.partition_of_tid(tid).map_or(&[][..], |partition| table.row(partition));
        row.iter().any(|cell| cell.node == *storage && cell.is_readable())
    };
    let lacks = |(storage, own): (&NodeId, &Said)| {
        // What a storage with an earlier table has more may have been cut off since.
        let others = said.values().filter(|other| other.table >= own.table);
        let tids = others.map(|other| other.last_tid).filter(|tid| *tid > own.last_tid);
        let lacks = tids.filter(|tid| has_metadata(storage, *tid)).max()?;
        Some((own.last_tid, *storage, lacks))
    };
    let mut found: Vec<_> = said.iter().filter_map(lacks).collect();
    found.sort_unstable();
    found
}
