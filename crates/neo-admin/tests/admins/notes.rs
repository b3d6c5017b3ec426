//! What an admin notes for operators: what its master notes, a master that does not answer, an
//! older table, backup clusters.

use zodium_neo::messages::*;
use zodium_neo::{
    CellState, ClusterState, Extra, NodeId, NodeState, NodeType, Partition, TableId, Value,
};

use crate::support::{Bench, master, node, storage};

/// The time of the next look at the master has come.
fn look(bench: &mut Bench) {
    bench.admin.woken(u64::MAX);
    bench.work();
}

fn master_notes(bench: &mut Bench, notes: &[&str]) {
    let notes = notes.iter().map(|note| Value::Bytes(note.as_bytes())).collect();
    let information = Extra::from_iter([("notes", Value::Array(notes))]);
    bench.master_tells(NotifyMonitorInformation { information });
}

fn report(bench: &mut Bench) -> String {
    let operator = bench.operator();
    bench.tell(operator, 5, AskMonitorInformation {});
    bench.answer_last_tid(bench.master, 1);
    bench.answer(operator, 5)
}

/// The master restarts: it knows itself and this admin, and has no table.
fn restart_master(bench: &mut Bench) {
    bench.cut(bench.master);
    let (again, _) = bench.dialled.pop().unwrap();
    bench.master = again;
    bench.admin.connected(again);
    bench.work();
    let accepted = AcceptIdentification {
        node_type: NodeType::Master,
        id: Some(master(1)),
        your_id: NodeId::of(NodeType::Admin, 1),
    };
    bench.tell(again, 0, accepted);
    bench.master_tells(NotifyClusterInformation { state: ClusterState::Recovering });
    let nodes = vec![node(NodeType::Master, 1, NodeState::Running)];
    bench.master_tells(NotifyNodeInformation { timestamp: 12.0, nodes });
}

/// The master has loaded the table of the first storage.
fn find_table(bench: &mut Bench, id: u64) {
    let cell = |number| vec![Cell { node: storage(number), state: CellState::UpToDate }];
    let rows = vec![cell(1), cell(1)];
    bench.master_tells(SendPartitionTable { table: Some(TableId(id)), replicas: 0, rows });
}

#[test]
fn what_the_master_notes_is_in_the_report_as_long_as_it_is_so() {
    let mut bench = Bench::running(&[]);
    assert!(report(&mut bench).starts_with(
        "AnswerMonitorInformation(AnswerMonitorInformation { warnings: [], problems: [], summary: \
         \"RUNNING; "
    ));
    master_notes(&mut bench, &["S2 hangs", "S1 differs"]);
    assert_eq!(bench.admin.status().notes, ["S2 hangs", "S1 differs"]);
    let text = report(&mut bench);
    assert!(text.contains("warnings: [None]"), "{text}");
    assert!(text.contains("\\n    S2 hangs\\n    S1 differs\""), "{text}");
    master_notes(&mut bench, &[]);
    assert_eq!(bench.admin.status().notes, [""; 0]);
    master_notes(&mut bench, &["S2 hangs"]);
    bench.cut(bench.master);
    assert_eq!(bench.admin.status().notes, [""; 0]);
}

#[test]
fn a_primary_master_that_does_not_answer_is_noticed() {
    let mut bench = Bench::running(&[]);
    look(&mut bench);
    let ping = bench.take(bench.master, "Ping");
    (0..2).for_each(|_| look(&mut bench));
    assert_eq!(bench.admin.status().master_silent_seconds, None);
    look(&mut bench);
    assert_eq!(bench.admin.status().master_silent_seconds, Some(15));
    assert_eq!(bench.names(), [""; 0], "it is asked once");
    bench.tell(bench.master, ping, Pong {});
    assert_eq!(bench.admin.status().master_silent_seconds, None);
    look(&mut bench);
    bench.take(bench.master, "Ping");
}

#[test]
fn storages_that_a_new_master_does_not_know_are_down_and_an_older_table_is_noted() {
    let mut bench = Bench::running(&[]);
    restart_master(&mut bench);
    let storages = |bench: &Bench| -> Vec<_> {
        let members = bench.admin.status().members.into_iter();
        members.filter(|one| one.kind == NodeType::Storage).map(|one| one.state).collect()
    };
    assert_eq!(storages(&bench), [NodeState::Down; 2]);
    bench.master_tells(SendPartitionTable { table: None, replicas: 0, rows: Vec::new() });
    assert_eq!(bench.admin.status().notes, [""; 0]);
    find_table(&mut bench, 6);
    let notes = bench.admin.status().notes;
    assert!(notes.len() == 1 && notes[0].ends_with("up to date then: S1, S2"), "{notes:?}");
    assert!(notes[0].contains("unless no storage had noted that table"), "{notes:?}");
}

#[test]
fn a_table_that_no_storage_has_noted_is_not_missed() {
    let mut bench = Bench::running(&[]);
    let ran_with = |table| NotifyMonitorInformation {
        information: Extra::from_iter([("notes", Value::Array(Vec::new())), ("table", table)]),
    };
    bench.master_tells(ran_with(Value::Int(7)));
    let state = CellState::OutOfDate;
    let change = CellChange { partition: Partition(0), node: storage(2), state };
    let (table, replicas, changes) = (TableId(8), 0, vec![change]);
    bench.master_tells(NotifyPartitionChanges { table, replicas, changes });
    restart_master(&mut bench);
    bench.master_tells(ran_with(Value::Nil));
    find_table(&mut bench, 7);
    assert_eq!(bench.admin.status().notes, [""; 0]);
    find_table(&mut bench, 6);
    let notes = bench.admin.status().notes;
    assert!(notes[0].contains("the cluster ran with table 7"), "{notes:?}");
}

#[test]
fn backup_clusters_that_are_not_well_are_noted() {
    let mut bench = Bench::running(&["copy"]);
    let notes = |bench: &Bench| bench.admin.status().notes;
    assert_eq!(notes(&bench), ["the admin of the backup cluster copy is not connected"]);
    bench.backup("copy");
    assert_eq!(notes(&bench), ["the backup cluster copy is not well: None"]);
}
