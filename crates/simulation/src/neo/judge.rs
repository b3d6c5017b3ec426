//! What must hold in the end: every readable cell has what was committed, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use zodium_neo::{Partition, PartitionTable};
use zodium_neo_storage::{Loaded, PackRow, Reads, TransactionRecord, Writes};
use zodium_sql::NodeDatabase;
use zodium_types::{Oid, Tid};

use super::history::{Change, History, Pack, metadata_of};
use super::world::World;

/// More rows than any run has.
const ROWS_MAX: u32 = 1_000_000;
const ALL: (Tid, Tid) = (Tid::ZERO, Tid::MAX);

type Records = BTreeMap<(Oid, Tid), Option<Vec<u8>>>;

/// Compares all databases with the history.
pub(super) fn judge(world: &World) -> Result<(), String> {
    let history = &world.context.history;
    let table = world.table().ok_or("there is no partition table in the end")?;
    let records = history.records();
    for (place, storage) in world.storages.iter().enumerate() {
        let process = storage.process.as_ref().ok_or("a storage is down in the end")?;
        let Some(node) = super::storage::id_of(place) else { continue };
        let mut own = BTreeSet::new();
        for (partition, state) in table.cells_of(node) {
            own.insert(partition);
            if state.is_readable() {
                let compared = compare(&process.database, table, partition, (history, &records));
                compared.map_err(|error| format!("partition {partition} of {node}: {error}"))?;
            }
        }
        let unfinished = check_unfinished(&process.database, table, &own, history);
        unfinished.map_err(|error| format!("{node}: {error}"))?;
        check_dropped(&process.database, table, &own)
            .and_then(|()| check_orphans(&process.database))
            .map_err(|error| format!("{node}: {error}"))?;
    }
    Ok(())
}

fn compare(
    database: &NodeDatabase,
    table: &PartitionTable,
    partition: Partition,
    (history, records): (&History, &Records),
) -> Result<(), String> {
    let is_here = |oid: Oid| table.partition_of_oid(oid) == Some(partition);
    let expected: Records = records
        .iter()
        .filter(|((oid, _), _)| is_here(*oid))
        .map(|(key, data)| (*key, data.clone()))
        .collect();
    let found = read(database, |reads| found_records(reads, partition))?;
    if found != expected {
        let packs = history.committed.iter().filter(|(_, one)| one.attempt.pack.is_some());
        let packs: Vec<_> = packs.map(|(tid, one)| (*tid, one.attempt.pack.as_ref())).collect();
        let differs = difference(&found, &expected);
        return Err(format!("it has records {differs}; packs are {packs:?}"));
    }
    let is_here = |tid: &Tid| table.partition_of_tid(*tid) == Some(partition);
    let expected: Vec<_> = history.committed.keys().copied().filter(is_here).collect();
    let found = read(database, |reads| found_tids(reads, partition))?;
    if found != expected {
        return Err(format!("it has the transactions {found:?}, not {expected:?}"));
    }
    for tid in found {
        let found = read(database, |reads| text_of(reads.transaction(tid)))?;
        compare_transaction(history, tid, found)?;
    }
    Ok(())
}

fn compare_transaction(
    history: &History,
    tid: Tid,
    found: Option<TransactionRecord>,
) -> Result<(), String> {
    let (Some(found), Some(committed)) = (found, history.committed.get(&tid)) else {
        return Err(format!("transaction {tid} is not there"));
    };
    let objects = committed.attempt.objects.iter();
    let stored = objects.filter(|(_, (_, change))| *change != Change::Check);
    let oids: BTreeSet<_> = stored.map(|(oid, _)| *oid).collect();
    let own: BTreeSet<_> = found.oids.iter().copied().collect();
    if found.ttid != committed.ttid || own != oids {
        return Err(format!("transaction {tid} is {found:?}"));
    }
    let metadata = metadata_of(committed.ttid);
    if found.metadata != metadata {
        return Err(format!("transaction {tid} has {:?}, not {metadata:?}", found.metadata));
    }
    // All are approved.
    let ordered = |pack: &Pack| {
        let Pack { oids, until } = pack.clone();
        PackRow { id: tid, approved: Some(true), oids, until }
    };
    let pack = committed.attempt.pack.as_ref().map(ordered);
    if found.pack != pack {
        return Err(format!("transaction {tid} has the pack {:?}, not {pack:?}", found.pack));
    }
    Ok(())
}

/// The records that differ.
fn difference(found: &Records, expected: &Records) -> String {
    let (more, less) = (beyond(found, expected), beyond(expected, found));
    format!("beyond {more:?}, and lacks {less:?}")
}

/// The records of the one that the other does not have.
fn beyond(one: &Records, other: &Records) -> Vec<String> {
    let own = one.iter().filter(|(key, data)| other.get(key) != Some(data));
    let line = |((oid, tid), data): (&(Oid, Tid), &Option<Vec<u8>>)| {
        let kind = if data.is_some() { "data" } else { "deletion" };
        format!("{kind} {oid} of {tid}")
    };
    own.map(line).collect()
}

/// The transactions whose metadata are there.
pub(super) fn found_tids(reads: &dyn Reads, partition: Partition) -> Result<Vec<Tid>, String> {
    text_of(reads.tids(partition, ALL, ROWS_MAX))
}

/// The records that are there.
pub(super) fn found_keys(
    reads: &dyn Reads,
    partition: Partition,
) -> Result<Vec<(Tid, Oid)>, String> {
    text_of(reads.records(partition, ALL, Oid(0), ROWS_MAX))
}

fn found_records(reads: &dyn Reads, partition: Partition) -> Result<Records, String> {
    let keys = found_keys(reads, partition)?;
    let mut records = BTreeMap::new();
    for (tid, oid) in keys {
        let Loaded::Found(record) = text_of(reads.load(oid, Some(tid), None))? else {
            return Err(format!("{oid} of {tid} is listed, and cannot be loaded"));
        };
        records.insert((oid, tid), record.data.map(|data| data.bytes));
    }
    Ok(records)
}

/// No vote is left, but of commits whose cells were all taken away before their end. Their rows go
/// with the next start of operation.
fn check_unfinished(
    database: &NodeDatabase,
    table: &PartitionTable,
    own: &BTreeSet<Partition>,
    history: &History,
) -> Result<(), String> {
    let unfinished = text_of(database.write(false, |writes: &mut dyn Writes| writes.unfinished()))?;
    let is_elsewhere = |ttid: &Tid| {
        let mut committed = history.committed.values();
        let Some(committed) = committed.find(|one| one.ttid == *ttid) else { return false };
        let oids = committed.attempt.objects.keys();
        let partitions = oids.map(|oid| table.partition_of_oid(*oid));
        let mut all = partitions.chain(std::iter::once(table.partition_of_tid(*ttid)));
        !all.any(|partition| partition.is_some_and(|partition| own.contains(&partition)))
    };
    let left: Vec<_> = unfinished.into_iter().filter(|(ttid, _)| !is_elsewhere(ttid)).collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(format!("it has unfinished transactions: {left:?}")),
    }
}

/// Nothing is left of cells that were taken away.
fn check_dropped(
    database: &NodeDatabase,
    table: &PartitionTable,
    own: &BTreeSet<Partition>,
) -> Result<(), String> {
    let others = (0..table.partitions()).map(Partition).filter(|one| !own.contains(one));
    for partition in others {
        let left = read(database, |reads| found_keys(reads, partition))?;
        if !left.is_empty() {
            return Err(format!("it has records of partition {partition}: {left:?}"));
        }
        let left = read(database, |reads| found_tids(reads, partition))?;
        if !left.is_empty() {
            return Err(format!("it has transactions of partition {partition}: {left:?}"));
        }
    }
    Ok(())
}

/// No data are left that no record has.
fn check_orphans(database: &NodeDatabase) -> Result<(), String> {
    let count = |writes: &mut dyn Writes| writes.prune_orphans(true);
    match text_of(database.write(false, count))? {
        0 => Ok(()),
        count => Err(format!("it has data of {count} records that are gone")),
    }
}

pub(super) fn read<T>(
    database: &NodeDatabase,
    read: impl FnOnce(&dyn Reads) -> Result<T, String>,
) -> Result<T, String> {
    text_of(database.read(read))?
}

pub(super) fn text_of<T>(result: Result<T, impl std::fmt::Display>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
