//! Finding the primary master, and losing it.

use zodium_neo::messages::*;
use zodium_neo::{ClusterState, ErrorCode, NodeState, NodeType, Partition, TableId};

use crate::support::{Bench, address, node, storage};

#[test]
fn the_primary_is_found_over_a_secondary() {
    let mut bench = Bench::new(&[]);
    let (first, dialled) = bench.dialled.pop().unwrap();
    assert_eq!(dialled, address(101));
    bench.admin.connected(first);
    bench.work();
    assert_eq!(bench.names(), ["RequestIdentification"]);
    let masters = vec![address(109), address(101)];
    bench.tell(first, 0, NotPrimaryMaster { primary: Some(0), masters });
    assert_eq!(bench.closed, [first]);
    assert_eq!(bench.dialled.last().unwrap().1, address(109));
    bench.accept(1);
    assert_eq!(bench.admin.masters().len(), 3);
    assert_eq!(bench.admin.status().master.unwrap(), "127.0.0.1:109");
}

#[test]
fn masters_are_dialled_until_one_accepts() {
    let mut bench = Bench::new(&[]);
    for port in [101, 102, 101] {
        let (connection, dialled) = bench.dialled.pop().unwrap();
        assert_eq!(dialled, address(port));
        bench.cut(connection);
    }
    let (connection, _) = bench.dialled.pop().unwrap();
    bench.admin.connected(connection);
    bench.work();
    bench.names();
    bench.tell(connection, 0, Error { code: ErrorCode::NotReady, message: "Retry Later" });
    assert_eq!(bench.closed, [connection]);
    assert_eq!(bench.dialled.pop().unwrap().1, address(101));
}

#[test]
fn a_report_without_a_master_says_so() {
    let mut bench = Bench::running(&[]);
    let other = bench.operator();
    bench.tell(other, 6, AskMonitorInformation {});
    bench.names();
    bench.cut(bench.master);
    assert_eq!(
        bench.answer(other, 6),
        "AnswerMonitorInformation(AnswerMonitorInformation { warnings: [], problems: [None], \
         summary: \"Not connected to a primary master.\" })"
    );
}

#[test]
fn a_report_does_not_wait_for_a_master_that_is_lost_before_it_tells_the_state() {
    let mut bench = Bench::new(&[]);
    bench.accept(1);
    let operator = bench.operator();
    bench.tell(operator, 6, AskMonitorInformation {});
    assert_eq!(bench.names(), Vec::<String>::new());
    bench.cut(bench.master);
    assert!(bench.answer(operator, 6).contains("Not connected to a primary master."));
}

#[test]
fn a_command_whose_answer_is_lost_fails_and_another_master_is_followed() {
    let mut bench = Bench::running(&[]);
    let operator = bench.operator();
    bench.tell(operator, 5, AddPendingNodes { ids: vec![storage(3)] });
    bench.names();
    bench.cut(bench.master);
    let lost = (ErrorCode::ProtocolError, "connection to master lost".to_owned());
    assert_eq!(bench.refusal(operator, 5), lost);
    assert_eq!(bench.closed, [operator]);
    // The master that it was is dialled first.
    assert_eq!(bench.dialled.last().unwrap().1, address(101));
    bench.cut(bench.dialled.last().unwrap().0);
    assert_eq!(bench.dialled.last().unwrap().1, address(102));
    bench.accept(2);
    bench.master_tells(NotifyClusterInformation { state: ClusterState::Running });
    bench.answer_last_tid(bench.master, 5);
    let operator = bench.operator();
    bench.tell(operator, 7, AskPrimary {});
    assert_eq!(bench.answer(operator, 7), "AnswerPrimary(AnswerPrimary { id: NodeId(M2) })");
    bench.tell(operator, 8, AskNodeList { node_type: Some(NodeType::Master) });
    assert_eq!(bench.answer(operator, 8).matches("node_type").count(), 1);
}

#[test]
fn a_missed_change_of_the_table_begins_anew() {
    let mut bench = Bench::running(&[]);
    let changes = vec![CellChange {
        partition: Partition(0),
        node: storage(1),
        state: zodium_neo::CellState::OutOfDate,
    }];
    bench.master_tells(NotifyPartitionChanges { table: TableId(9), replicas: 0, changes });
    let (code, text) = bench.refusal(bench.master, 99);
    assert_eq!(code, ErrorCode::ProtocolError);
    assert_eq!(text, "a change to partition table 9 follows table 7");
    assert_eq!(bench.closed, [bench.master]);
    assert_eq!(bench.dialled.last().unwrap().1, address(101));
}

#[test]
fn the_admin_ends_with_its_cluster() {
    let mut bench = Bench::running(&[]);
    bench.master_tells(NotifyClusterInformation { state: ClusterState::Stopping });
    assert!(!bench.has_ended);
    let dialled = bench.dialled.len();
    bench.cut(bench.master);
    assert!(bench.has_ended);
    assert_eq!(bench.dialled.len(), dialled);
}

#[test]
fn masters_that_join_and_leave_are_noted() {
    let mut bench = Bench::running(&[]);
    let nodes = vec![
        node(NodeType::Master, 7, NodeState::Running),
        node(NodeType::Master, 2, NodeState::Unknown),
    ];
    bench.master_tells(NotifyNodeInformation { timestamp: 11.0, nodes });
    assert_eq!(bench.admin.masters(), [address(101), address(107)]);
}
