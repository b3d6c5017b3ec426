//! What operators' commands are answered.

use zodium_neo::messages::*;
use zodium_neo::{CellState, ClusterState, ErrorCode, NodeState, NodeType, Partition, TableId};

use crate::support::{Bench, node, storage};

#[test]
fn without_a_master_operators_are_told_so() {
    let mut bench = Bench::new(&[]);
    let operator = bench.operator();
    bench.tell(operator, 3, AskClusterState {});
    let expected = (ErrorCode::NotReady, "Not connected to a primary master.".to_owned());
    assert_eq!(bench.refusal(operator, 3), expected);
    assert_eq!(bench.closed, [operator]);
    let operator = bench.operator();
    bench.tell(operator, 4, Ping {});
    assert_eq!(bench.answer(operator, 4), "Pong(Pong)");
}

#[test]
fn the_admin_answers_what_it_knows() {
    let mut bench = Bench::running(&[]);
    let operator = bench.operator();
    bench.tell(operator, 1, AskClusterState {});
    let state = "AnswerClusterState(AnswerClusterState { state: Some(Running) })";
    assert_eq!(bench.answer(operator, 1), state);
    bench.tell(operator, 2, AskPrimary {});
    assert_eq!(bench.answer(operator, 2), "AnswerPrimary(AnswerPrimary { id: NodeId(M1) })");
    bench.tell(operator, 3, AskNodeList { node_type: Some(NodeType::Storage) });
    let nodes = bench.answer(operator, 3);
    assert_eq!(nodes.matches("node_type: Storage").count(), 2);
    assert!(!nodes.contains("node_type: Master"), "{nodes}");
    bench.tell(operator, 4, AskNodeList { node_type: None });
    assert_eq!(bench.answer(operator, 4).matches("node_type").count(), 4);
    assert!(bench.closed.is_empty());
}

#[test]
fn rows_follow_the_changes_of_the_master() {
    let mut bench = Bench::running(&[]);
    let operator = bench.operator();
    let change = |node, state| CellChange { partition: Partition(1), node: storage(node), state };
    let changes = vec![change(1, CellState::OutOfDate), change(2, CellState::Feeding)];
    bench.master_tells(NotifyPartitionChanges { table: TableId(8), replicas: 1, changes });
    bench.answer_last_tid(bench.master, 2);
    bench.tell(operator, 5, AskPartitionList { first: 1, end: 0, node: None });
    assert_eq!(
        bench.answer(operator, 5),
        "AnswerPartitionList(AnswerPartitionList { table: Some(TableId(8)), replicas: 1, rows: \
         [[Cell { node: NodeId(S2), state: Feeding }, Cell { node: NodeId(S1), state: OutOfDate \
         }]] })"
    );
    bench.tell(operator, 6, AskPartitionList { first: 0, end: 3, node: None });
    let refusal = (ErrorCode::ProtocolError, "invalid partition table offset".to_owned());
    assert_eq!(bench.refusal(operator, 6), refusal);
    assert!(bench.closed.is_empty());
}

#[test]
fn commands_are_relayed_and_their_answers_come_back() {
    let mut bench = Bench::running(&[]);
    let (one, other) = (bench.operator(), bench.operator());
    bench.tell(one, 5, SetClusterState { state: ClusterState::Stopping });
    bench.tell(other, 5, AskLastIDs {});
    let (first, second) =
        (bench.take(bench.master, "SetClusterState"), bench.take(bench.master, "AskLastIDs"));
    let last = AnswerLastIDs { last_tid: None, last_oid: None, first_tid: zodium_types::Tid::MAX };
    bench.tell(bench.master, second, last);
    assert!(bench.answer(other, 5).starts_with("AnswerLastIDs"));
    let denied = Error { code: ErrorCode::Denied, message: "no" };
    bench.tell(bench.master, first, denied);
    assert_eq!(bench.refusal(one, 5), (ErrorCode::Denied, "no".to_owned()));
    assert!(bench.closed.is_empty());
    // What the master takes for a mistake ends the operator's connection, not that of the admin.
    bench.tell(one, 6, AskRecovery {});
    let id = bench.take(bench.master, "AskRecovery");
    bench.tell(bench.master, id, Error { code: ErrorCode::ProtocolError, message: "what?" });
    assert_eq!(bench.refusal(one, 6), (ErrorCode::ProtocolError, "what?".to_owned()));
    assert_eq!(bench.closed, [one]);
}

#[test]
fn an_operator_that_has_gone_gets_nothing() {
    let mut bench = Bench::running(&[]);
    let operator = bench.operator();
    bench.tell(operator, 5, AskLastTransaction {});
    bench.tell(operator, 6, AskMonitorInformation {});
    bench.cut(operator);
    let id = bench.take(bench.master, "AskLastTransaction");
    bench.tell(bench.master, id, AnswerLastTransaction { tid: zodium_types::Tid(1) });
    bench.answer_last_tid(bench.master, 1);
    assert_eq!(bench.names(), Vec::<String>::new());
}

#[test]
fn what_no_command_sends_ends_the_connection() {
    let mut bench = Bench::running(&[]);
    let operator = bench.operator();
    bench.tell(operator, 5, AskNewOIDs { count: 1 });
    let refusal = (ErrorCode::ProtocolError, "unexpected AskNewOIDs".to_owned());
    assert_eq!(bench.refusal(operator, 5), refusal);
    assert_eq!(bench.closed, [operator]);
    bench.tell(operator, 6, AskClusterState {});
    assert_eq!(bench.names(), Vec::<String>::new());
}

#[test]
fn a_report_has_the_last_transaction_of_the_moment() {
    let mut bench = Bench::running(&[]);
    let (one, other) = (bench.operator(), bench.operator());
    bench.tell(one, 5, AskMonitorInformation {});
    bench.tell(other, 8, AskMonitorInformation {});
    bench.answer_last_tid(bench.master, 0);
    let names = bench.names();
    assert_eq!(names, ["AnswerMonitorInformation", "AnswerMonitorInformation"]);
    bench.tell(one, 6, AskMonitorInformation {});
    bench.answer_last_tid(bench.master, 0);
    assert_eq!(
        bench.answer(one, 6),
        "AnswerMonitorInformation(AnswerMonitorInformation { warnings: [], problems: [], summary: \
         \"RUNNING; UP_TO_DATE=2; ltid=0000000000000000 (1900-01-01 00:00:00)\" })"
    );
}

#[test]
fn a_report_of_a_cluster_that_does_not_operate_asks_nothing() {
    let mut bench = Bench::running(&[]);
    let nodes = vec![node(NodeType::Storage, 2, NodeState::Down)];
    bench.master_tells(NotifyNodeInformation { timestamp: 11.0, nodes });
    bench.answer_last_tid(bench.master, 1);
    bench.master_tells(NotifyClusterInformation { state: ClusterState::Recovering });
    let operator = bench.operator();
    bench.tell(operator, 6, AskMonitorInformation {});
    assert_eq!(
        bench.answer(operator, 6),
        "AnswerMonitorInformation(AnswerMonitorInformation { warnings: [], problems: [None], \
         summary: \"RECOVERING; UP_TO_DATE=2; DOWN=1\" })"
    );
}
