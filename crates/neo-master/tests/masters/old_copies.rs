//! Starts with a storage whose database is an older copy.

use zodium_neo::messages::*;
use zodium_neo::{CellState, Map, Message, Partition, TableId};
use zodium_neo_master::{Settings, UpstreamSettings};
use zodium_types::Tid;

use crate::support::*;

/// The tables and last transactions that storages have, by number from 1. The first table is the
/// newest one.
type Said = [(u64, u64)];

/// The partitions of which each storage has a readable cell.
const BOTH: [&[u32]; 2] = [&[1, 2], &[1, 2]];

/// The cells that go out of date at a start, with the numbers of their storages.
fn outdated(rows: [&[u32]; 2], said: &Said, backup_tid: Option<Tid>) -> Vec<(u32, u32)> {
    started(rows, said, backup_tid).1
}

/// A cluster that starts, and the cells that go out of date then.
fn started(rows: [&[u32]; 2], said: &Said, backup_tid: Option<Tid>) -> (Bench, Vec<(u32, u32)>) {
    let upstream = UpstreamSettings { cluster: "upstream".to_owned(), masters: vec![address(901)] };
    let mut bench = Bench::new(Settings { upstream: Some(upstream), ..settings(101) });
    let storages: Vec<_> = (1..).zip(said).map(|(number, _)| bench.storage(number)).collect();
    let cell = |one: &u32| Cell { node: storage(*one), state: CellState::UpToDate };
    let rows = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    for (one, (table, _)) in storages.iter().zip(said) {
        let answer =
            AnswerRecovery { table: Some(TableId(*table)), backup_tid, truncate_tid: None };
        bench.answer(*one, "AskRecovery", answer);
    }
    let table = AnswerPartitionTable { table: TableId(said[0].0), replicas: 1, rows };
    bench.answer(storages[0], "AskPartitionTable", table);
    for one in storages.iter().filter(|_| backup_tid.is_none()) {
        let transactions = Map::default();
        bench.answer(*one, "AskLockedTransactions", AnswerLockedTransactions { transactions });
    }
    for (one, (_, last_tid)) in storages.iter().zip(said) {
        let last_tid = Some(Tid(*last_tid));
        let answer = AnswerLastIDs { last_tid, last_oid: None, first_tid: Tid(10) };
        bench.answer(*one, "AskLastIDs", answer);
    }
    let mut changed = Vec::new();
    while bench.names(storages[0]).contains(&"NotifyPartitionChanges") {
        bench.take_with(storages[0], "NotifyPartitionChanges", |message| {
            let Message::NotifyPartitionChanges(told) = message else { unreachable!() };
            assert!(told.changes.iter().all(|change| change.state == CellState::OutOfDate));
            changed.extend(told.changes.iter().map(|change| {
                let Partition(partition) = change.partition;
                (partition, (1..9).find(|number| storage(*number) == change.node).unwrap())
            }));
        });
    }
    (bench, changed)
}

/// The tid of a second, with metadata in a partition of two.
fn tid(second: u64, partition: u64) -> u64 {
    let tid = Tid::from_unix_nanos((1_800_000_000 + second) * 1_000_000_000).0;
    tid - tid % 2 + partition
}

#[test]
fn a_storage_that_lacks_a_transaction_fetches_what_others_have() {
    assert_eq!(outdated(BOTH, &[(7, 900), (7, 1000)], None), [(0, 1), (1, 1)]);
    assert_eq!(outdated(BOTH, &[(7, 1001), (6, 1000)], None), [(0, 2), (1, 2)]);
    assert_eq!(outdated(BOTH, &[(7, 1000), (7, 1000)], None), []);
}

#[test]
fn a_storage_without_the_metadata_of_a_transaction_need_not_have_it() {
    let rows: [&[u32]; 2] = [&[1, 2], &[2]];
    assert_eq!(outdated(rows, &[(7, 900), (7, 1001)], None), []);
    assert_eq!(outdated(rows, &[(7, 900), (7, 1000)], None), [(0, 1)]);
}

#[test]
fn what_an_older_copy_has_of_transactions_that_were_cut_off_no_storage_lacks() {
    assert_eq!(outdated(BOTH, &[(7, 900), (6, 1000)], None), []);
}

#[test]
fn of_two_older_copies_the_later_one_serves_what_no_other_storage_has() {
    let rows: [&[u32]; 2] = [&[1, 2, 3], &[1, 2]];
    assert_eq!(outdated(rows, &[(7, 900), (7, 800), (7, 1000)], None), [(0, 2), (1, 2), (0, 1)],);
}

#[test]
fn cells_of_a_backup_are_as_far_as_their_storages_have_fetched() {
    assert_eq!(outdated(BOTH, &[(7, 900), (7, 1000)], Some(Tid(900))), []);
}

#[test]
fn a_storage_that_is_far_behind_fetches_also_if_it_need_not_have_the_last_transaction() {
    let rows: [&[u32]; 2] = [&[1, 2], &[2]];
    let last = tid(20, 1);
    assert_eq!(outdated(rows, &[(7, tid(9, 0)), (7, last)], None), [(0, 1)]);
    assert_eq!(outdated(rows, &[(7, tid(11, 0)), (7, last)], None), []);
    assert_eq!(outdated(rows, &[(7, tid(9, 0)), (6, last)], None), []);
    // The storage that has the later one has no cell of the partition.
    let (mut bench, changed) = started([&[1], &[2]], &[(7, tid(9, 0)), (7, last)], None);
    assert_eq!(changed, []);
    assert_eq!(bench.master.status().notes, [""; 0], "it may have all");
}

#[test]
fn what_no_storage_has_any_more_is_noted() {
    let rows: [&[u32]; 2] = [&[1, 2], &[2, 3]];
    // The metadata of the last transaction are with 2 and 3. Storage 1 may have all, but is behind.
    let said = [(7, tid(30, 0)), (7, tid(10, 0)), (7, tid(60, 1))];
    let (mut bench, changed) = started(rows, &said, None);
    assert_eq!(changed, [(0, 2), (1, 2)]);
    let notes = bench.master.status().notes;
    let (first, second) = (Tid(said[1].1), Tid(said[0].1));
    assert!(notes.len() == 1 && notes[0].contains("databases, those of S2, S1, and"), "{notes:?}");
    assert!(notes[0].contains(&format!("S2 ended with {first}, S1 ended with {second}")));
    assert!(notes[0].contains(&format!("`zodium neo ctl truncate tid:0x{first}`")), "{notes:?}");
    // All that is missing is with another storage.
    let (mut bench, _) = started(rows, &[(7, tid(59, 0)), (7, tid(10, 0)), (7, tid(60, 1))], None);
    assert_eq!(bench.master.status().notes, [""; 0]);
}
