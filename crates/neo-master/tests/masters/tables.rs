//! Changes of the partition table that have to wait for storages.

use zodium_neo::messages::*;
use zodium_neo::{ClusterState, ConnectionId, ErrorCode, Message, NodeState, NodeType, Partition};
use zodium_types::Tid;

use crate::support::*;

const PARTITIONS: [Partition; 2] = [Partition(0), Partition(1)];

/// An admin asks to stop the first storage. What it is told.
fn stop_first(bench: &mut Bench, admin: ConnectionId) -> (ErrorCode, String) {
    bench.tell(admin, 9, SetNodeState { id: storage(1), state: NodeState::Down });
    bench.take_with(admin, "Error", |message| match message {
        Message::Error(error) => (error.code, error.message.to_owned()),
        _ => unreachable!(),
    })
}

#[test]
fn a_storage_is_not_stopped_while_it_alone_could_start_the_cluster() {
    let (mut bench, storages) = Bench::running(2);
    let admin = bench.node(NodeType::Admin, None, Some(address(301)));
    bench.lose(storages[1]);
    let back = bench.storage(2);
    bench.tell(back, 50, NotifyReady {});
    bench.tell(back, 51, AskUnfinishedTransactions { partitions: PARTITIONS.to_vec() });
    for partition in PARTITIONS {
        bench.tell(back, 52, NotifyReplicationDone { partition, tid: Tid(1000) });
    }
    // The first storage may still have the table in which the second one is out of date.
    let (code, text) = stop_first(&mut bench, admin);
    assert!(code == ErrorCode::Denied && text.contains("try again"), "{text}");
    bench.acknowledge(storages[0]);
    let (code, text) = stop_first(&mut bench, admin);
    assert_eq!((code, text.as_str()), (ErrorCode::Ack, "state changed"));
    bench.acknowledge(back);
    let client = bench.client();
    let ttid = bench.begin(client);
    bench.finish(client, ttid);
    bench.answer(back, "AskLockInformation", AnswerInformationLocked { ttid });
    assert!(bench.names(client).contains(&"AnswerTransactionFinished"));
    assert_eq!(bench.master.status().state, Some(ClusterState::Running));
}

#[test]
fn a_cell_that_is_given_after_a_transaction_began_does_not_lock_it() {
    let (mut bench, storages) = Bench::running(1);
    let admin = bench.node(NodeType::Admin, None, Some(address(301)));
    let second = bench.storage(2);
    bench.tell(admin, 9, AddPendingNodes { ids: vec![storage(2)] });
    bench.tell(second, 50, NotifyReady {});
    let client = bench.client();
    let (early, failed) = (bench.begin(client), bench.begin(client));
    // The second storage gets the partition of the object that is committed, and does not know it.
    bench.tell(admin, 10, TweakPartitionTable { dry_run: false, excluded: Vec::new() });
    bench.acknowledge(storages[0]);
    bench.acknowledge(second);
    bench.finish(client, early);
    bench.answer(storages[0], "AskLockInformation", AnswerInformationLocked { ttid: early });
    assert!(bench.names(client).contains(&"AnswerTransactionFinished"));
    assert!(!bench.names(second).contains(&"AskLockInformation"));
    // That it misses stores of such a transaction does no harm either.
    bench.tell(client, 3, FailedVote { ttid: failed, failed: vec![storage(2)] });
    bench.finish(client, failed);
    bench.answer(storages[0], "AskLockInformation", AnswerInformationLocked { ttid: failed });
    assert!(!bench.closed.contains(&second));
    let late = bench.begin(client);
    bench.finish(client, late);
    assert!(bench.names(second).contains(&"AskLockInformation"));
}
