//! What storages have when a real master begins to serve: all that was committed before, and with
//! it the fate of what was being committed.

use std::collections::BTreeSet;

use zodium_neo::{NodeId, Partition, PartitionTable};
use zodium_neo_storage::Reads;
use zodium_sql::NodeDatabase;
use zodium_types::{Oid, Tid};

use crate::neo::context::Context;
use crate::neo::judge;
use crate::neo::storage::{Storage, id_of};

/// A readable cell of a storage that runs.
struct Holder<'a> {
    node: NodeId,
    partition: Partition,
    database: &'a NodeDatabase,
    /// The transactions whose metadata are there.
    tids: BTreeSet<Tid>,
    /// The records that are there.
    records: BTreeSet<(Oid, Tid)>,
}

/// Compares what storages have with what was committed, and finds out what became of transactions
/// that no master has decided on.
pub(crate) fn look(
    context: &mut Context,
    table: &PartitionTable,
    storages: &[Storage],
) -> Result<(), String> {
    let holders = holders(table, storages)?;
    cut(context, table, &holders)?;
    if storages.iter().all(|storage| storage.process.is_some()) {
        context.history.forget_cuts();
    }
    decide(context, table, &holders)?;
    compare(context, table, &holders)
}

fn holders<'a>(table: &PartitionTable, storages: &'a [Storage]) -> Result<Vec<Holder<'a>>, String> {
    let mut holders = Vec::new();
    for (place, storage) in storages.iter().enumerate() {
        let (Some(process), Some(node)) = (&storage.process, id_of(place)) else { continue };
        let cells = table.cells_of(node).filter(|(_, state)| state.is_readable());
        for (partition, _) in cells {
            let database = &process.database;
            let tids = judge::read(database, |reads| judge::found_tids(reads, partition))?;
            let keys = judge::read(database, |reads| judge::found_keys(reads, partition))?;
            let records = keys.into_iter().map(|(tid, oid)| (oid, tid)).collect();
            let tids = tids.into_iter().collect();
            holders.push(Holder { node, partition, database, tids, records });
        }
    }
    Ok(holders)
}

/// If committed transactions are missing, the cluster was to be truncated before them.
fn cut(
    context: &mut Context,
    table: &PartitionTable,
    holders: &[Holder<'_>],
) -> Result<(), String> {
    let missing = context.history.committed.keys().find_map(|tid| {
        let partition = table.partition_of_tid(*tid)?;
        let mut all = holders.iter().filter(|holder| holder.partition == partition);
        all.find(|holder| !holder.tids.contains(tid)).map(|holder| (*tid, holder.node))
    });
    let Some((tid, node)) = missing else { return Ok(()) };
    let Some(last) = context.history.cut_before(tid) else {
        return Err(format!("{node} lacks {tid} when the cluster starts"));
    };
    context.event("truncated", &[last.0]);
    context.history.truncate(last);
    Ok(())
}

/// Transactions that storages were asked to lock are committed if they have them.
fn decide(
    context: &mut Context,
    table: &PartitionTable,
    holders: &[Holder<'_>],
) -> Result<(), String> {
    for (tid, (ttid, oids)) in context.history.undecided() {
        let mut touched = oids.iter().filter_map(|oid| table.partition_of_oid(*oid));
        let own = table.partition_of_tid(tid);
        let is_seen = holders.iter().any(|one| Some(one.partition) == own)
            || touched.any(|partition| holders.iter().any(|one| one.partition == partition));
        if !is_seen {
            // All that could have it have gone again.
            continue;
        }
        if has(holders, tid, ttid, &oids)? {
            context.counts.validated += 1;
            context.event("validated", &[ttid.0, tid.0]);
            context.history.decide(ttid, Some(tid))?;
        } else {
            context.history.abort(ttid);
        }
    }
    context.history.abort_unasked();
    Ok(())
}

fn has(holders: &[Holder<'_>], tid: Tid, ttid: Tid, oids: &BTreeSet<Oid>) -> Result<bool, String> {
    for holder in holders {
        let has_record = oids.iter().any(|oid| holder.records.contains(&(*oid, tid)));
        if has_record {
            return Ok(true);
        }
        if holder.tids.contains(&tid) {
            let found = judge::read(holder.database, |reads: &dyn Reads| {
                judge::text_of(reads.transaction(tid))
            })?;
            return Ok(found.is_some_and(|found| found.ttid == ttid));
        }
    }
    Ok(false)
}

/// Each readable cell has all transactions and records, but those that packs remove.
fn compare(
    context: &Context,
    table: &PartitionTable,
    holders: &[Holder<'_>],
) -> Result<(), String> {
    let history = &context.history;
    let kept: BTreeSet<_> = history.records().into_keys().collect();
    for Holder { node, partition, tids, records, .. } in holders {
        let is_own = |tid: &&Tid| table.partition_of_tid(**tid) == Some(*partition);
        let expected: BTreeSet<_> = history.committed.keys().filter(is_own).copied().collect();
        if *tids != expected {
            let wrong: Vec<_> = tids.symmetric_difference(&expected).collect();
            return Err(format!("{node} starts with {wrong:?} of {partition} more or less"));
        }
        let is_own = |(oid, _): &&(Oid, Tid)| table.partition_of_oid(*oid) == Some(*partition);
        if let Some((oid, tid)) = kept.iter().filter(is_own).find(|key| !records.contains(key)) {
            return Err(format!("{node} starts without {oid} of {tid}"));
        }
        let unknown = records.iter().find(|(_, tid)| !history.committed.contains_key(tid));
        if let Some((oid, tid)) = unknown {
            return Err(format!("{node} starts with {oid} of {tid}, which was not committed"));
        }
    }
    Ok(())
}
