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
    bench.storage(3);
    let transactions = Map::default();
    let answer = AnswerLockedTransactions { transactions };
    bench.answer(storages[0], "AskLockedTransactions", answer);
    // The third one never answers.
    bench.serve(&storages);
}
