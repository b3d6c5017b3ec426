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
    changed
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
