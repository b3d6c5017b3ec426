//! What a master notes for operators: storages that do not answer, copies that differ, starts that
//! give commits up.

use zodium_neo::messages::*;
use zodium_neo::{
    CellState, Checked, ClusterState, ConnectionId, Extra, Map, Message, NodeState, NodeType,
    Partition, TELLS_CHECKS, TableId, Value,
};
use zodium_neo_master::Settings;
use zodium_types::Tid;

use crate::support::*;

/// An admin that takes notes.
fn admin(bench: &mut Bench) -> ConnectionId {
    let extra = Extra::from_iter([("notes", Value::Bool(true))]);
    let admin = bench.node_with(NodeType::Admin, None, Some(address(301)), extra);
    bench.forget_sent();
    admin
}

/// The notes that an admin is told.
fn told(bench: &mut Bench, admin: ConnectionId) -> Vec<String> {
    told_with_table(bench, admin).0
}

/// The notes that an admin is told last, and the table that the cluster ran with.
fn told_with_table(bench: &mut Bench, admin: ConnectionId) -> (Vec<String>, Option<i64>) {
    let is_it = |name: &&&str| **name == "NotifyMonitorInformation";
    for _ in 1..bench.names(admin).iter().filter(is_it).count() {
        bench.take(admin, "NotifyMonitorInformation");
    }
    bench.take_with(admin, "NotifyMonitorInformation", |message| match message {
        Message::NotifyMonitorInformation(told) => {
            let notes = told.information.get(&"notes").unwrap().as_array().unwrap().to_vec();
            let text = |note: &Value<'_>| String::from_utf8(note.as_bytes().unwrap().to_vec());
            let notes = notes.iter().map(|note| text(note).unwrap()).collect();
            (notes, told.information.get(&"table").unwrap().as_int())
        }
        _ => unreachable!(),
    })
}

#[test]
fn a_storage_that_does_not_answer_is_named_until_it_does() {
    let (mut bench, storages) = Bench::running(2);
    let admin = admin(&mut bench);
    bench.wake();
    bench.acknowledge(storages[0]);
    let ping = bench.take(storages[1], "Ping");
    bench.wake();
    bench.acknowledge(storages[0]);
    assert_eq!(bench.master.status().notes, [""; 0], "it was asked 5 s ago");
    bench.wake();
    let notes = bench.master.status().notes;
    assert!(notes.len() == 1 && notes[0].starts_with("S2 has not answered for 10 s"), "{notes:?}");
    assert!(notes[0].contains("let `zodium neo ctl kill S2` go on without it"), "{notes:?}");
    assert_eq!(told(&mut bench, admin), notes);
    bench.tell(storages[1], ping, Pong {});
    assert_eq!(told(&mut bench, admin), [""; 0]);
    assert_eq!(bench.master.status().notes, [""; 0]);
}

#[test]
fn a_storage_that_hangs_alone_is_not_to_be_killed() {
    let (mut bench, _) = Bench::running(1);
    (0..3).for_each(|_| bench.wake());
    let notes = bench.master.status().notes;
    assert!(notes[0].contains("S1 has not answered"), "{notes:?}");
    assert!(notes[0].ends_with("it alone has some partitions up to date"), "{notes:?}");
}

#[test]
fn a_storage_that_hangs_before_the_start_is_named() {
    let mut bench = Bench::new(Settings { replicas: 1, ..settings(101) });
    let admin = admin(&mut bench);
    let hangs = bench.storage(1);
    (0..3).for_each(|_| bench.wake());
    let named = "S1 has not answered for 10 s, and the cluster does not start meanwhile: if it \
                 hangs, restart it";
    assert_eq!(bench.master.status().notes, [named]);
    assert_eq!(told(&mut bench, admin), [named]);
    bench.lose(hangs);
    assert_eq!(bench.master.status().notes, [""; 0]);
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
}

#[test]
fn a_storage_that_hangs_in_the_verification_is_named_until_the_cluster_runs() {
    let mut bench = Bench::new(Settings { replicas: 1, ..settings(101) });
    let storages = bench.verifying(2);
    let transactions = Map::default();
    bench.answer(storages[0], "AskLockedTransactions", AnswerLockedTransactions { transactions });
    for _ in 0..3 {
        bench.wake();
        bench.acknowledge(storages[0]);
    }
    let notes = bench.master.status().notes;
    let named = "S2 has not answered for 10 s, and the cluster does not start meanwhile";
    assert!(notes.len() == 1 && notes[0].starts_with(named), "{notes:?}");
    assert_eq!(bench.master.status().state, Some(ClusterState::Verifying));
    let transactions = Map::default();
    bench.answer(storages[1], "AskLockedTransactions", AnswerLockedTransactions { transactions });
    bench.serve(&storages);
    assert_eq!(bench.master.status().notes, [""; 0]);
}

#[test]
fn a_storage_that_hung_and_left_is_not_named_any_more() {
    let (mut bench, storages) = Bench::running(2);
    (0..3).for_each(|_| bench.wake());
    bench.lose(storages[1]);
    let notes = bench.master.status().notes;
    assert!(notes.len() == 1 && notes[0].starts_with("S1 "), "{notes:?}");
}

#[test]
fn copies_that_differ_are_noted_until_they_are_compared_again() {
    let (mut bench, storages) = Bench::running(2);
    // That of NEO/py is told nothing.
    let other = bench.node(NodeType::Admin, None, Some(address(302)));
    let admin = admin(&mut bench);
    let nodes = vec![storage(2), storage(1)];
    bench.tell(storages[0], 98, NotifyPartitionCorrupted { partition: Partition(1), nodes });
    let notes = told(&mut bench, admin);
    assert!(
        notes[0].contains("copies that differ, of partition 1 in S1, S2: find out"),
        "{notes:?}"
    );
    assert_eq!(bench.names(other), [""; 0]);
    let references = Map(vec![(Partition(0), None)]);
    bench.tell(admin, 9, CheckReplicas { references, min_tid: Tid::ZERO, max_tid: None });
    assert_eq!(bench.master.status().notes, notes);
    let references = Map(vec![(Partition(1), None)]);
    bench.tell(admin, 9, CheckReplicas { references, min_tid: Tid::ZERO, max_tid: None });
    assert_eq!(bench.master.status().notes, [""; 0]);
}

#[test]
fn an_admin_that_comes_later_is_told_what_there_is() {
    let (mut bench, storages) = Bench::running(2);
    let nodes = vec![storage(2), storage(1)];
    bench.tell(storages[0], 98, NotifyPartitionCorrupted { partition: Partition(1), nodes });
    let extra = Extra::from_iter([("notes", Value::Bool(true))]);
    let admin = bench.node_with(NodeType::Admin, None, Some(address(301)), extra);
    assert_eq!(told(&mut bench, admin).len(), 1);
}

/// A cluster that has committed on its second storage alone has lost this one, and the first one
/// is back with the table before. Gives that storage, the admin, and the last transaction.
fn outdated() -> (Bench, ConnectionId, ConnectionId, Tid) {
    let (mut bench, storages) = Bench::running(2);
    let admin = admin(&mut bench);
    let client = bench.client();
    bench.lose(storages[0]);
    let last = bench.take_with(storages[1], "NotifyPartitionChanges", |message| match message {
        Message::NotifyPartitionChanges(changes) => changes.table,
        _ => unreachable!(),
    });
    bench.acknowledge(storages[1]);
    let ttid = bench.begin(client);
    bench.finish(client, ttid);
    bench.answer(storages[1], "AskLockInformation", AnswerInformationLocked { ttid });
    let last_tid = bench.master.status().last_tid;
    bench.lose(storages[1]);
    let back = bench.storage(1);
    let table = TableId(last.0 - 1);
    let answer = AnswerRecovery { table: Some(table), backup_tid: None, truncate_tid: None };
    bench.answer(back, "AskRecovery", answer);
    let cell = |number| Cell { node: storage(number), state: CellState::UpToDate };
    let answer = AnswerPartitionTable { table, replicas: 1, rows: vec![vec![cell(1), cell(2)]; 2] };
    bench.answer(back, "AskPartitionTable", answer);
    (bench, back, admin, last_tid)
}

#[test]
fn a_table_from_before_the_last_commits_is_noted() {
    let (mut bench, back, admin, last_tid) = outdated();
    let notes = bench.master.status().notes;
    assert!(
        notes[0].starts_with("only table 10007 is found, and the cluster ran with table 10008")
    );
    assert!(notes[0].contains(&format!("up to transaction {last_tid}")), "{notes:?}");
    bench.take(admin, "NotifyPartitionChanges");
    assert_eq!(told(&mut bench, admin), notes);
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
    bench.lose(back);
    // The storage with the last table is back.
    let second = bench.storage(2);
    let table = TableId(10_008);
    let answer = AnswerRecovery { table: Some(table), backup_tid: None, truncate_tid: None };
    bench.answer(second, "AskRecovery", answer);
    let cell = |number, state| Cell { node: storage(number), state };
    let row = vec![cell(1, CellState::OutOfDate), cell(2, CellState::UpToDate)];
    let answer = AnswerPartitionTable { table, replicas: 1, rows: vec![row; 2] };
    bench.answer(second, "AskPartitionTable", answer);
    assert_eq!(bench.master.status().notes, [""; 0]);
    assert_eq!(bench.master.status().state, Some(ClusterState::Verifying));
}

#[test]
fn admins_are_told_the_table_that_a_storage_has() {
    let extra = Extra::from_iter([("notes", Value::Bool(true))]);
    let mut bench = Bench::new(settings(101));
    let admin = bench.node_with(NodeType::Admin, None, Some(address(301)), extra.clone());
    assert_eq!(told_with_table(&mut bench, admin), (Vec::new(), None));
    let (mut bench, storages) = Bench::running(2);
    let admin = bench.node_with(NodeType::Admin, None, Some(address(301)), extra.clone());
    let table = 10_007;
    assert_eq!(told_with_table(&mut bench, admin), (Vec::new(), Some(table)));
    bench.lose(storages[0]);
    let late = bench.node_with(NodeType::Admin, None, Some(address(302)), extra);
    assert_eq!(told_with_table(&mut bench, late), (Vec::new(), Some(table)));
    assert!(bench.names(admin).contains(&"NotifyPartitionChanges"));
    bench.forget_sent_but(storages[1]);
    bench.acknowledge(storages[1]);
    assert_eq!(told_with_table(&mut bench, admin), (Vec::new(), Some(table + 1)));
}

/// A cluster that was started without the last commits, whose second storage is back, and says
/// this of itself. Gives that storage, the admin, and the last transaction.
fn given_up(extra: Extra<'_>) -> (Bench, ConnectionId, ConnectionId, Tid) {
    let (mut bench, back, admin, last_tid) = outdated();
    bench.tell(admin, 9, SetClusterState { state: ClusterState::Verifying });
    let transactions = Map::default();
    bench.answer(back, "AskLockedTransactions", AnswerLockedTransactions { transactions });
    bench.serve(&[back]);
    let notes = bench.master.status().notes;
    let lost = format!("those after {} up to {last_tid}", Tid(1000));
    assert!(notes.len() == 1 && notes[0].contains(&lost), "{notes:?}");
    check(&mut bench, admin, &[0, 1]);
    assert_eq!(bench.master.status().notes, notes, "the second storage is not there");
    let second = bench.node_with(NodeType::Storage, Some(storage(2)), Some(address(202)), extra);
    bench.tell(second, 99, NotifyReady {});
    let partitions = [0, 1].map(Partition);
    bench.tell(second, 97, AskUnfinishedTransactions { partitions: partitions.to_vec() });
    for partition in partitions {
        bench.tell(second, 98, NotifyReplicationDone { partition, tid: Tid(1000) });
    }
    (bench, second, admin, last_tid)
}

/// An operator has partitions compared.
fn check(bench: &mut Bench, admin: ConnectionId, partitions: &[u32]) {
    let references = Map(partitions.iter().map(|one| (Partition(*one), None)).collect());
    bench.tell(admin, 10, CheckReplicas { references, min_tid: Tid::ZERO, max_tid: None });
}

#[test]
fn a_start_that_gives_commits_up_is_noted_until_all_partitions_are_compared() {
    // Storages of NEO/py do not tell that copies agree.
    let (mut bench, _, admin, _) = given_up(Extra::default());
    check(&mut bench, admin, &[0]);
    assert_eq!(bench.master.status().notes.len(), 1);
    let references = Map(vec![(Partition(1), None)]);
    let max_tid = Some(Tid(1000));
    bench.tell(admin, 10, CheckReplicas { references, min_tid: Tid::ZERO, max_tid });
    assert_eq!(bench.master.status().notes.len(), 1, "others were given up after that");
    check(&mut bench, admin, &[1]);
    assert_eq!(bench.master.status().notes, [""; 0]);
}

#[test]
fn a_start_that_gives_commits_up_is_noted_until_copies_are_the_same() {
    let extra = Extra::from_iter([(TELLS_CHECKS, Value::Bool(true))]);
    let (mut bench, second, admin, last_tid) = given_up(extra);
    bench.forget_sent();
    check(&mut bench, admin, &[0, 1]);
    let orders = ["NotifyMonitorInformation", "CheckPartition", "CheckPartition"];
    assert_eq!(bench.names(second), orders);
    bench.take_with(second, "CheckPartition", |message| match message {
        Message::CheckPartition(order) => assert_eq!(order.max_tid, last_tid),
        _ => unreachable!(),
    });
    assert_eq!(bench.master.status().notes.len(), 1);
    let same = |partition, copies| {
        let (min_tid, max_tid) = (Tid::ZERO, last_tid);
        Checked { partition: Partition(partition), min_tid, max_tid, copies }.message()
    };
    bench.tell(second, 97, same(0, 2));
    bench.tell(second, 97, same(1, 1));
    assert_eq!(bench.master.status().notes.len(), 1, "one copy was not compared");
    let nodes = vec![storage(1), storage(2)];
    bench.tell(second, 97, NotifyPartitionCorrupted { partition: Partition(0), nodes });
    bench.tell(second, 97, same(1, 2));
    assert_eq!(bench.master.status().notes.len(), 2);
    check(&mut bench, admin, &[0]);
    bench.tell(second, 97, same(0, 2));
    assert_eq!(bench.master.status().notes, [""; 0]);
}

#[test]
fn what_another_primary_master_may_have_cut_is_not_missed() {
    let (mut bench, back, _, last_tid) = outdated();
    bench.lose(back);
    // A master that was primary for longer is met again, and lost.
    let rival = bench.master.accepted("a master".to_owned());
    let request = RequestIdentification {
        node_type: NodeType::Master,
        id: None,
        address: Some(address(102)),
        cluster: CLUSTER,
        id_timestamp: Some(1.0),
        extra: Extra::default(),
    };
    bench.tell(rival, 0, request);
    assert!(!bench.master.status().is_primary);
    while !bench.master.status().is_primary {
        let dialled = bench.dialled.pop().unwrap();
        bench.lose(dialled);
    }
    let storages = bench.verifying(2);
    for storage in &storages {
        let transactions = Map::default();
        bench.answer(*storage, "AskLockedTransactions", AnswerLockedTransactions { transactions });
    }
    assert_eq!(bench.master.status().notes, [""; 0]);
    bench.serve(&storages);
    assert!(bench.master.status().last_tid < last_tid);
    assert_eq!(bench.master.status().notes, [""; 0]);
}

#[test]
fn what_a_truncation_cuts_is_not_missed() {
    let (mut bench, storages) = Bench::running(2);
    let client = bench.client();
    let ttid = bench.begin(client);
    bench.finish(client, ttid);
    for storage in &storages {
        bench.answer(*storage, "AskLockInformation", AnswerInformationLocked { ttid });
    }
    let admin = admin(&mut bench);
    // There is no transaction of this tid: it may be the one of a moment.
    let tid = Tid(1005);
    bench.tell(admin, 1, Truncate { tid });
    let table = TableId(7);
    let answer = AnswerRecovery { table: Some(table), backup_tid: None, truncate_tid: Some(tid) };
    bench.answer(storages[0], "AskRecovery", answer.clone());
    let cell = |number| Cell { node: storage(number), state: CellState::UpToDate };
    let rows = vec![vec![cell(1), cell(2)]; 2];
    let loaded = AnswerPartitionTable { table, replicas: 1, rows };
    bench.answer(storages[0], "AskPartitionTable", loaded);
    bench.answer(storages[1], "AskRecovery", answer);
    for storage in &storages {
        let transactions = Map::default();
        bench.answer(*storage, "AskLockedTransactions", AnswerLockedTransactions { transactions });
    }
    bench.serve(&storages);
    assert_eq!(bench.master.status().state, Some(ClusterState::Running));
    assert_eq!(bench.master.status().last_tid, Tid(1000));
    assert_eq!(bench.master.status().notes, [""; 0]);
}

#[test]
fn each_partition_is_named_with_its_copies() {
    let (mut bench, storages) = Bench::running(2);
    for (partition, nodes) in [(0, vec![storage(1)]), (1, vec![storage(2), storage(1)])] {
        let partition = Partition(partition);
        bench.tell(storages[0], 98, NotifyPartitionCorrupted { partition, nodes });
    }
    let notes = bench.master.status().notes;
    assert!(notes[0].contains("of partition 0 in S1; 1 in S1, S2: find out"), "{notes:?}");
}

#[test]
fn a_storage_that_hung_and_was_killed_is_looked_at_again_when_it_is_back() {
    let (mut bench, storages) = Bench::running(2);
    let admin = admin(&mut bench);
    for _ in 0..3 {
        bench.wake();
        bench.acknowledge(storages[0]);
    }
    assert_eq!(bench.master.status().notes.len(), 1);
    bench.tell(admin, 9, SetNodeState { id: storage(2), state: NodeState::Down });
    bench.lose(storages[1]);
    assert_eq!(bench.master.status().notes, [""; 0]);
}
