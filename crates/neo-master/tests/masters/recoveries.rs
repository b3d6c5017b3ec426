//! Recoveries that operators, lost masters and storages that hang interfere with.

use zodium_neo::messages::*;
use zodium_neo::{
    CellState, ClusterState, ConnectionId, ErrorCode, Map, Message, NodeState, NodeType, TableId,
};
use zodium_neo_master::Settings;
use zodium_types::Tid;

use crate::support::*;

const TOLD: AnswerRecovery =
    AnswerRecovery { table: Some(TableId(7)), backup_tid: None, truncate_tid: None };

/// A table in which two storages have all.
fn table() -> AnswerPartitionTable {
    let row = [1, 2].map(|one| Cell { node: storage(one), state: CellState::UpToDate });
    AnswerPartitionTable { table: TableId(7), replicas: 1, rows: vec![row.to_vec(); 2] }
}

/// A master without storages, and an admin.
fn recovering() -> (Bench, ConnectionId) {
    let mut bench = Bench::new(Settings { replicas: 1, ..settings(101) });
    let admin = bench.node(NodeType::Admin, None, Some(address(301)));
    (bench, admin)
}

/// A storage comes, and says which table it has.
fn storage_with(bench: &mut Bench, number: u32, told: AnswerRecovery) -> ConnectionId {
    let connection = bench.storage(number);
    bench.answer(connection, "AskRecovery", told);
    connection
}

/// What a command of an operator is answered.
fn ordered<'a>(
    bench: &mut Bench,
    admin: ConnectionId,
    command: impl Into<Message<'a>>,
) -> ErrorCode {
    bench.tell(admin, 9, command);
    bench.take_with(admin, "Error", |message| match message {
        Message::Error(error) => error.code,
        _ => unreachable!(),
    })
}

fn state(bench: &mut Bench) -> Option<ClusterState> {
    bench.master.status().state
}

#[test]
fn a_storage_that_is_stopped_before_the_start_leaves_all_cells_up_to_date() {
    let (mut bench, admin) = recovering();
    let first = storage_with(&mut bench, 1, TOLD);
    bench.answer(first, "AskPartitionTable", table());
    let stop = SetNodeState { id: storage(2), state: NodeState::Down };
    assert_eq!(ordered(&mut bench, admin, stop), ErrorCode::Ack);
    assert!(!bench.names(first).contains(&"NotifyPartitionChanges"));
    let start = SetClusterState { state: ClusterState::Verifying };
    assert_eq!(ordered(&mut bench, admin, start), ErrorCode::Ack);
    assert_eq!(state(&mut bench), Some(ClusterState::Verifying));
}

#[test]
fn another_storage_is_asked_for_the_table_when_the_first_one_is_stopped() {
    let (mut bench, admin) = recovering();
    let hangs = storage_with(&mut bench, 1, TOLD);
    let second = storage_with(&mut bench, 2, TOLD);
    assert!(bench.names(hangs).contains(&"AskPartitionTable"));
    let stop = SetNodeState { id: storage(1), state: NodeState::Down };
    assert_eq!(ordered(&mut bench, admin, stop), ErrorCode::Ack);
    bench.answer(second, "AskPartitionTable", table());
    let start = SetClusterState { state: ClusterState::Verifying };
    assert_eq!(ordered(&mut bench, admin, start), ErrorCode::Ack);
    assert_eq!(state(&mut bench), Some(ClusterState::Verifying));
}

#[test]
fn a_storage_with_cells_is_not_dropped_while_it_is_there() {
    let (mut bench, admin) = recovering();
    let first = storage_with(&mut bench, 1, TOLD);
    bench.answer(first, "AskPartitionTable", table());
    let drop = SetNodeState { id: storage(1), state: NodeState::Unknown };
    assert_eq!(ordered(&mut bench, admin, drop.clone()), ErrorCode::Denied);
    assert!(!bench.closed.contains(&first));
    // The one that is away can be.
    let other = SetNodeState { id: storage(2), ..drop };
    assert_eq!(ordered(&mut bench, admin, other), ErrorCode::Ack);
}

#[test]
fn a_truncation_that_one_storage_was_ordered_is_ordered_of_all() {
    let ordered = AnswerRecovery { truncate_tid: Some(Tid(500)), ..TOLD };
    for (first, second) in [(TOLD, ordered.clone()), (ordered, TOLD)] {
        for is_late in [false, true] {
            let (mut bench, _) = recovering();
            let one = storage_with(&mut bench, 1, first.clone());
            if is_late {
                bench.answer(one, "AskPartitionTable", table());
            }
            let other = storage_with(&mut bench, 2, second.clone());
            if !is_late {
                bench.answer(one, "AskPartitionTable", table());
            }
            let lacks = if first.truncate_tid.is_none() { one } else { other };
            let tid = bench.take_with(lacks, "Truncate", |message| match message {
                Message::Truncate(order) => order.tid,
                _ => unreachable!(),
            });
            assert_eq!(tid, Tid(500));
            assert_eq!(state(&mut bench), Some(ClusterState::Recovering));
            let noted = AnswerRecovery { truncate_tid: Some(tid), ..TOLD };
            bench.answer(lacks, "AskRecovery", noted);
            assert_eq!(state(&mut bench), Some(ClusterState::Verifying));
        }
    }
}

#[test]
fn a_storage_without_cells_is_not_waited_for() {
    let mut bench = Bench::new(settings(101));
    let storages = bench.verifying(1);
    let third = bench.storage(3);
    let transactions = Map::default();
    let answer = AnswerLockedTransactions { transactions };
    bench.answer(storages[0], "AskLockedTransactions", answer);
    // The third one never answers. It is asked, since storages are cut before they answer.
    assert!(bench.names(third).contains(&"AskLastIDs"));
    bench.serve(&storages);
}

#[test]
fn a_storage_without_cells_does_not_hold_up_a_truncation() {
    let (mut bench, _) = recovering();
    let ordered = AnswerRecovery { truncate_tid: Some(Tid(500)), ..TOLD };
    let one = storage_with(&mut bench, 1, ordered.clone());
    // It never notes an order.
    storage_with(&mut bench, 3, TOLD);
    bench.answer(one, "AskPartitionTable", table());
    storage_with(&mut bench, 2, ordered);
    assert_eq!(state(&mut bench), Some(ClusterState::Verifying));
}

/// Starts a cluster with two storages, which say the same, and one without cells, which gives the
/// table. In any order.
fn start_with(told: &AnswerRecovery, other: &AnswerRecovery) -> Vec<(Bench, ConnectionId)> {
    let starts = [[1, 2, 3], [3, 1, 2], [1, 3, 2]].map(|order| {
        let (mut bench, _) = recovering();
        let storages = order.map(|number| {
            let told = if number == 3 { other } else { told };
            (number, storage_with(&mut bench, number, told.clone()))
        });
        bench.answer(storages[0].1, "AskPartitionTable", table());
        let (_, first) = storages.into_iter().find(|(number, _)| *number == 1).unwrap();
        (bench, first)
    });
    starts.into()
}

#[test]
fn an_order_to_truncate_of_a_storage_without_cells_counts_for_nothing() {
    let ordered = AnswerRecovery { truncate_tid: Some(Tid(500)), ..TOLD };
    for (mut bench, first) in start_with(&TOLD, &ordered) {
        assert!(!bench.names(first).contains(&"Truncate"));
        assert_eq!(state(&mut bench), Some(ClusterState::Verifying));
    }
}

#[test]
fn storages_with_cells_say_whether_the_cluster_is_a_backup() {
    let backup = AnswerRecovery { backup_tid: Some(Tid(500)), ..TOLD };
    // Without an upstream cluster a backup does not start.
    for (mut bench, _) in start_with(&backup, &TOLD) {
        assert_eq!(state(&mut bench), Some(ClusterState::Recovering));
    }
    for (mut bench, _) in start_with(&TOLD, &backup) {
        assert_eq!(state(&mut bench), Some(ClusterState::Verifying));
    }
}

#[test]
fn a_backup_that_is_to_be_cut_is_none_any_more() {
    let (mut bench, _) = recovering();
    let ordered = AnswerRecovery { truncate_tid: Some(Tid(500)), ..TOLD };
    let one = storage_with(&mut bench, 1, ordered);
    // The order has not reached it.
    let other = storage_with(&mut bench, 2, AnswerRecovery { backup_tid: Some(Tid(500)), ..TOLD });
    bench.answer(one, "AskPartitionTable", table());
    bench.take(other, "Truncate");
    let noted = AnswerRecovery { truncate_tid: Some(Tid(500)), ..TOLD };
    bench.answer(other, "AskRecovery", noted);
    assert_eq!(state(&mut bench), Some(ClusterState::Verifying));
}
