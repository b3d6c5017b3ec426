//! Backup clusters: what a master asks of its storages, and where it cuts the database.

use std::time::Duration;

use zodium_neo::messages::*;
use zodium_neo::{
    CellState, ClusterState, ConnectionId, ErrorCode, Extra, Message, NodeId, NodeState, NodeType,
    Partition, TableId, Value,
};
use zodium_neo_master::{Settings, UpstreamSettings};
use zodium_types::{Oid, Tid};

use crate::support::*;

/// The last transaction of the storages of [`Bench::serve`].
const LAST: Tid = Tid(1000);

/// A backup cluster of two storages, which has just been told the last transaction upstream.
pub(crate) fn following(last: Tid) -> (Bench, Vec<ConnectionId>, ConnectionId, ConnectionId) {
    let mut bench = Bench::new(backup_settings());
    let storages = bench.verifying(2);
    for storage in &storages {
        let answer = AnswerLockedTransactions { transactions: Default::default() };
        bench.answer(*storage, "AskLockedTransactions", answer);
    }
    bench.serve(&storages);
    let admin = bench.node(NodeType::Admin, None, Some(address(301)));
    bench.tell(admin, 1, SetClusterState { state: ClusterState::StartingBackup });
    let upstream = follow(&mut bench, last);
    (bench, storages, admin, upstream)
}

/// The upstream cluster accepts the master, and tells its last transaction.
fn follow(bench: &mut Bench, last: Tid) -> ConnectionId {
    let upstream = bench.dialled.pop().unwrap();
    bench.connect(upstream);
    let (node_type, id) = (NodeType::Master, NodeId::of(NodeType::Master, 1));
    let your_id = NodeId::of(NodeType::Client, 1);
    let accepted = AcceptIdentification { node_type, id, your_id };
    bench.answer(upstream, "RequestIdentification", accepted);
    let node = NodeInformation {
        node_type: NodeType::Storage,
        address: Some(address(911)),
        id: Some(storage(1)),
        state: NodeState::Running,
        id_timestamp: None,
    };
    bench.tell(upstream, 90, NotifyNodeInformation { timestamp: 1.0, nodes: vec![node] });
    let rows = vec![vec![Cell { node: storage(1), state: CellState::UpToDate }]; 2];
    bench.tell(upstream, 91, SendPartitionTable { table: Some(TableId(3)), replicas: 0, rows });
    assert_eq!(bench.master.status().state, Some(ClusterState::BackingUp));
    bench.forget_sent_but(upstream);
    bench.answer(upstream, "AskLastTransaction", AnswerLastTransaction { tid: last });
    upstream
}

/// The settings of a master whose cluster may be a backup.
fn backup_settings() -> Settings {
    let upstream = UpstreamSettings { cluster: "upstream".to_owned(), masters: vec![address(901)] };
    Settings { replicas: 1, upstream: Some(upstream), ..settings(101) }
}

/// What a storage was told to fetch: partitions up to a transaction, and whether from upstream.
fn orders(bench: &mut Bench, storage: ConnectionId) -> Vec<(Partition, Tid, bool)> {
    let mut all = Vec::new();
    while bench.names(storage).contains(&"Replicate") {
        all.extend(bench.take_with(storage, "Replicate", |message| match message {
            Message::Replicate(order) => {
                let is_upstream = !order.upstream.is_empty();
                let fetched = order.sources.0.into_iter().filter(|(_, source)| source.is_some());
                fetched.map(|(one, _)| (one, order.tid, is_upstream)).collect::<Vec<_>>()
            }
            _ => unreachable!(),
        }));
    }
    all
}

fn done(bench: &mut Bench, storage: ConnectionId, partition: u32, tid: Tid) {
    bench.tell(storage, 99, NotifyReplicationDone { partition: Partition(partition), tid });
}

#[test]
fn each_commit_upstream_is_fetched_once_and_then_from_the_own_storage() {
    let (mut bench, storages, _, upstream) = following(LAST);
    assert_eq!(orders(&mut bench, storages[0]), []);
    let tid = Tid(1010);
    bench.tell(upstream, 92, InvalidatePartitions { tid, partitions: vec![Partition(0)] });
    let told = [0, 1].map(|place| orders(&mut bench, storages[place]));
    let primary = usize::from(told[0].is_empty());
    assert_eq!(told[primary], [(Partition(0), tid, true)]);
    assert_eq!(told[1 - primary], []);
    done(&mut bench, storages[primary], 0, tid);
    assert_eq!(orders(&mut bench, storages[1 - primary]), [(Partition(0), tid, false)]);
    assert_eq!(orders(&mut bench, storages[primary]), []);
}

#[test]
fn clients_of_a_backup_only_read() {
    let (mut bench, ..) = following(LAST);
    let client = bench.node(NodeType::Client, None, None);
    let code = bench.take_with(client, "Error", |message| match message {
        Message::Error(error) => error.code,
        _ => unreachable!(),
    });
    assert_eq!(code, ErrorCode::ReadOnlyAccess);
}

#[test]
fn a_backup_is_not_followed_by_another_one() {
    let (mut bench, ..) = following(LAST);
    for (extra, is_accepted) in [
        (Extra::from_iter([("backup", Value::Bytes(b"copy"))]), false),
        (Extra::from_iter([("read_only", Value::Bool(true))]), true),
    ] {
        let client = bench.node_with(NodeType::Client, None, None, extra);
        assert_eq!(bench.names(client).contains(&"AcceptIdentification"), is_accepted);
        assert_eq!(bench.names(client).contains(&"Error"), !is_accepted);
    }
}

#[test]
fn a_backup_that_becomes_a_cluster_is_cut_after_what_is_complete() {
    let (mut bench, storages, admin, upstream) = following(LAST);
    // In both partitions; only one is fetched.
    let tid = Tid(1011);
    let partitions = vec![Partition(0), Partition(1)];
    bench.tell(upstream, 92, InvalidatePartitions { tid, partitions });
    for storage in &storages {
        for (partition, until, _) in orders(&mut bench, *storage) {
            if partition == Partition(0) {
                done(&mut bench, *storage, 0, until);
            }
        }
    }
    bench.tell(admin, 2, SetClusterState { state: ClusterState::StoppingBackup });
    assert!(bench.closed.contains(&upstream));
    let cut = bench.take_with(storages[0], "Truncate", |message| match message {
        Message::Truncate(message) => message.tid,
        _ => unreachable!(),
    });
    assert_eq!(cut, Tid(1010));
    assert!(bench.names(storages[0]).contains(&"StopOperation"));
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
}

#[test]
fn a_backup_does_not_stop_before_replicas_have_what_others_have() {
    let (mut bench, storages, admin, upstream) = following(LAST);
    let tid = Tid(1010);
    bench.tell(upstream, 92, InvalidatePartitions { tid, partitions: vec![Partition(0)] });
    let primary = usize::from(orders(&mut bench, storages[0]).is_empty());
    let replica = storages[1 - primary];
    bench.forget_sent();
    done(&mut bench, storages[primary], 0, tid);
    bench.tell(admin, 2, SetClusterState { state: ClusterState::StoppingBackup });
    assert_eq!(bench.master.status().state, Some(ClusterState::StoppingBackup));
    done(&mut bench, replica, 0, tid);
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
}

#[test]
fn a_lost_upstream_cluster_is_dialled_again_and_a_truncated_one_left() {
    let (mut bench, _, _, upstream) = following(LAST);
    bench.lose(upstream);
    assert_eq!(bench.master.status().state, Some(ClusterState::StartingBackup));
    assert_eq!(bench.dialled.len(), 1);
    assert_eq!(bench.master.status().notes, [""; 0]);
    let (mut bench, storages, _, upstream) = following(Tid(999));
    assert!(bench.closed.contains(&upstream));
    assert!(bench.names(storages[0]).contains(&"Truncate"));
    let notes = bench.master.status().notes;
    let (here, there) = (LAST, Tid(999));
    assert!(notes.len() == 1 && notes[0].contains(&format!("transaction {there}")), "{notes:?}");
    assert!(notes[0].contains(&format!("which ended with {here}")), "{notes:?}");
}

#[test]
fn an_upstream_cluster_that_cannot_be_followed_is_not_dialled_again_and_again() {
    let (mut bench, _, _, upstream) = following(LAST);
    let rows = vec![vec![Cell { node: storage(1), state: CellState::UpToDate }]; 3];
    bench.tell(upstream, 92, SendPartitionTable { table: Some(TableId(4)), replicas: 0, rows });
    assert!(bench.closed.contains(&upstream));
    bench.lose(upstream);
    assert_eq!((bench.dialled.len(), bench.pause), (1, Duration::from_secs(60)));
    // One that refuses this cluster, by its name for example.
    let (mut bench, _, _, mut upstream) = following(LAST);
    let mut pauses = Vec::new();
    for number in 0..6 {
        let code = ErrorCode::ProtocolError;
        bench.tell(upstream, 92 + number, Error { code, message: "invalid cluster name" });
        bench.lose(upstream);
        upstream = bench.dialled.pop().unwrap();
        bench.connect(upstream);
        pauses.push(bench.pause);
    }
    assert!(pauses.is_sorted() && pauses[5] == Duration::from_secs(1), "{pauses:?}");
}

#[test]
fn a_backup_with_a_transaction_that_the_upstream_cluster_lacks_leaves_it() {
    let (mut bench, storages, _, upstream) = following(Tid(1020));
    // A check has found a difference: that is for operators.
    let nodes = vec![storage(1)];
    bench.tell(storages[0], 98, NotifyPartitionCorrupted { partition: Partition(0), nodes });
    assert_eq!(bench.master.status().state, Some(ClusterState::BackingUp));
    let nodes = Vec::new();
    bench.tell(storages[0], 99, NotifyPartitionCorrupted { partition: Partition(0), nodes });
    assert!(bench.closed.contains(&upstream));
    let cut = bench.take_with(storages[0], "Truncate", |message| match message {
        Message::Truncate(message) => message.tid,
        _ => unreachable!(),
    });
    assert_eq!(cut, LAST, "what was complete before stays");
}

#[test]
fn a_backup_in_which_nothing_is_complete_stays_one() {
    // As after a kill while it becomes a backup: one storage has noted it, the other one has not.
    let mut bench = Bench::new(backup_settings());
    let storages = [1, 2].map(|number| bench.storage(number));
    let table = TableId(7);
    for (storage, backup_tid) in storages.iter().zip([Some(LAST), None]) {
        let answer = AnswerRecovery { table: Some(table), backup_tid, truncate_tid: None };
        bench.answer(*storage, "AskRecovery", answer);
    }
    let row = |number| vec![Cell { node: storage(number), state: CellState::UpToDate }];
    let answer = AnswerPartitionTable { table, replicas: 0, rows: vec![row(1), row(2)] };
    bench.answer(storages[0], "AskPartitionTable", answer);
    for storage in storages {
        let (last_tid, last_oid) = (Some(LAST), Some(Oid(50)));
        let answer = AnswerLastIDs { last_tid, last_oid, first_tid: Tid(10) };
        bench.answer(storage, "AskLastIDs", answer);
    }
    for storage in storages {
        bench.answer(storage, "AskPackOrders", AnswerPackOrders { orders: Vec::new() });
    }
    for storage in storages {
        bench.take(storage, "StartOperation");
        bench.tell(storage, 99, NotifyReady {});
    }
    // An earlier one than the backup has.
    follow(&mut bench, Tid(999));
    assert!(!bench.names(storages[0]).contains(&"Truncate"));
    assert_eq!(bench.master.status().state, Some(ClusterState::BackingUp));
    let nodes = Vec::new();
    bench.tell(storages[0], 99, NotifyPartitionCorrupted { partition: Partition(0), nodes });
    assert!(!bench.names(storages[0]).contains(&"Truncate"));
    assert_eq!(bench.master.status().state, Some(ClusterState::BackingUp));
}
