//! Commands of operators.

use zodium_neo::messages::*;
use zodium_neo::{ClusterState, ErrorCode, Map, Message, NodeId, NodeState, NodeType, Partition};
use zodium_neo_master::Settings;
use zodium_types::Tid;

use crate::support::*;

/// What an admin is told that has a partition compared with the copy of a storage.
fn check(partition: u32, source: Option<NodeId>) -> (ErrorCode, String) {
    let (mut bench, storages) = Bench::running(3);
    bench.lose(storages[2]);
    let admin = bench.node(NodeType::Admin, None, Some(address(301)));
    let references = Map(vec![(Partition(0), None), (Partition(partition), source)]);
    bench.tell(admin, 9, CheckReplicas { references, min_tid: Tid::ZERO, max_tid: None });
    let told = bench.take_with(admin, "Error", |message| match message {
        Message::Error(error) => (error.code, error.message.to_owned()),
        _ => unreachable!(),
    });
    let is_checking = |one: &_| bench.names(*one).contains(&"CheckPartition");
    assert_eq!(storages.iter().any(is_checking), told.0 == ErrorCode::Ack);
    told
}

#[test]
fn a_check_of_what_there_is_not_is_refused() {
    assert_eq!(check(1, Some(storage(2))), (ErrorCode::Ack, String::new()));
    let denied = |text: &str| (ErrorCode::Denied, text.to_owned());
    assert_eq!(check(2, None), denied("there is no partition 2"));
    let client = NodeId::of(NodeType::Client, 1).unwrap();
    for source in [storage(3), storage(9), client] {
        assert_eq!(check(1, Some(source)), denied(&format!("invalid storage node {source}")));
    }
}

#[test]
fn a_cluster_stops_without_transactions_that_clients_leave_open() {
    let (mut bench, storages) = Bench::running(1);
    let (client, other) = (bench.client(), bench.client());
    let (ttid, _) = (bench.begin(client), bench.begin(other));
    bench.finish(client, ttid);
    let admin = bench.node(NodeType::Admin, None, Some(address(301)));
    bench.tell(admin, 9, SetClusterState { state: ClusterState::Stopping });
    bench.wake();
    // What is being committed is.
    assert!(!bench.has_ended);
    bench.answer(storages[0], "AskLockInformation", AnswerInformationLocked { ttid });
    assert!(bench.names(client).contains(&"AnswerTransactionFinished"));
    assert!(bench.has_ended);
}

#[test]
fn a_cluster_stops_when_a_storage_that_hangs_is_killed() {
    let (mut bench, storages) = Bench::running(2);
    let client = bench.client();
    let ttid = bench.begin(client);
    bench.finish(client, ttid);
    let admin = bench.node(NodeType::Admin, None, Some(address(301)));
    bench.tell(admin, 9, SetClusterState { state: ClusterState::Stopping });
    bench.answer(storages[0], "AskLockInformation", AnswerInformationLocked { ttid });
    assert!(!bench.has_ended);
    bench.tell(admin, 10, SetNodeState { id: storage(2), state: NodeState::Down });
    bench.acknowledge(storages[0]);
    assert!(bench.names(client).contains(&"AnswerTransactionFinished"));
    assert!(bench.has_ended);
}

#[test]
fn packs_that_were_completed_before_the_start_are_known() {
    let mut bench = Bench::new(Settings { replicas: 1, ..settings(101) });
    let storages = bench.verifying(2);
    for one in &storages {
        let answer = AnswerLockedTransactions { transactions: Map::default() };
        bench.answer(*one, "AskLockedTransactions", answer);
        // As storages tell it before their last ids. The second one has packed further.
        let id = if *one == storages[0] { Tid(700) } else { Tid(900) };
        bench.tell(*one, 98, NotifyPackCompleted { id });
    }
    bench.serve(&storages);
    let client = bench.client();
    bench.tell(client, 5, AskPackOrders { id: Tid(700) });
    let (approved, partial, oids, tid) = (Some(true), false, None, Tid(650));
    let orders = vec![PackOrder { id: Tid(700), approved, partial, oids, tid }];
    // It knows the first one no more, so it asks a storage.
    bench.answer(storages[0], "AskPackOrders", AnswerPackOrders { orders });
    let told = bench.take_with(client, "AnswerPackOrders", |message| match message {
        Message::AnswerPackOrders(answer) => answer.orders.len(),
        _ => unreachable!(),
    });
    assert_eq!(told, 1);
    let admin = bench.node(NodeType::Admin, None, Some(address(301)));
    let mut cut = |tid| {
        bench.tell(admin, 9, Truncate { tid });
        bench.take_with(admin, "Error", |message| match message {
            Message::Error(error) => error.code,
            _ => unreachable!(),
        })
    };
    assert_eq!(cut(Tid(699)), ErrorCode::Denied);
    assert_eq!(cut(Tid(700)), ErrorCode::Ack);
}
