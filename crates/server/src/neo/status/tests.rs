//! Pictures of clusters, and what is made of them.

use zodium_neo::messages::{Cell, NodeInformation};
use zodium_neo::{Address, CellState, ClusterState, NodeId, NodeState, NodeType, TableId};
use zodium_types::Tid;

use super::diagnosis::diagnose;
use super::drawing::draw;
use super::picture::Picture;
use crate::neo::asking::{Report, Rows};
use crate::neo::ctl::cell_letter;

const NOW: f64 = 1_763_890_000.0;

fn node(kind: NodeType, number: u32, state: NodeState, seconds_ago: f64) -> NodeInformation {
    let port = 10_000 + 10 * u16::from(kind.number()) + number as u16;
    let address = Address { host: "127.0.0.1".to_owned(), port };
    NodeInformation {
        node_type: kind,
        address: Some(address).filter(|_| kind != NodeType::Client),
        id: NodeId::of(kind, number),
        state,
        id_timestamp: Some(NOW - seconds_ago),
    }
}

/// A cluster of a master and storages; a storage is a line of letters, as they are printed.
fn picture(state: ClusterState, replicas: u32, storages: &[(NodeState, &str)]) -> Picture {
    let mut nodes = vec![node(NodeType::Master, 1, NodeState::Running, 7_800.0)];
    let count = storages.iter().map(|(_, letters)| letters.len()).max().unwrap_or(0);
    let mut rows = vec![Vec::new(); count];
    for (number, (node_state, letters)) in (1..).zip(storages) {
        nodes.push(node(NodeType::Storage, number, *node_state, 60.0));
        for (row, letter) in rows.iter_mut().zip(letters.bytes()) {
            let state = CellState::ALL.iter().find(|state| cell_letter(**state) == letter);
            let node = NodeId::of(NodeType::Storage, number).unwrap();
            row.extend(state.map(|state| Cell { node, state: *state }));
        }
    }
    let table = Some(TableId(4)).filter(|_| count > 0);
    Picture {
        state: Some(state),
        primary: NodeId::of(NodeType::Master, 1).unwrap(),
        nodes,
        table: Rows { table, replicas, rows },
        last_tid: Some(Tid::from_unix_nanos((NOW as u64 - 3) * 1_000_000_000)),
        backup_tid: None,
        notes: Vec::new(),
        backups: Vec::new(),
        unwell_backups: Vec::new(),
    }
}

fn advice(state: ClusterState, replicas: u32, storages: &[(NodeState, &str)]) -> Vec<String> {
    diagnose(&picture(state, replicas, storages))
}

use ClusterState::{Recovering, Running};
use NodeState::{Down, Pending};

const UP: NodeState = NodeState::Running;

#[test]
fn a_cluster_is_drawn_within_80_columns() {
    let mut picture = picture(Running, 1, &[(UP, "UUUUUUUUUUUU"), (Down, "OOOOOOOOOOO.")]);
    picture.backups = vec!["copy".to_owned(), "    BACKINGUP; UP_TO_DATE=2".to_owned()];
    let expected = "\
cluster     RUNNING
primary     M1 at 127.0.0.1:10001
partitions  12 with 1 replica, table 4
last tid    0406c3aea9ffffff (2025-11-23 09:26:37, 3 s ago)

nodes
  M1  RUNNING  127.0.0.1:10001  connected for 2 h 10 min
  S1  RUNNING  127.0.0.1:10011  connected for 1 min 0 s
  S2  DOWN     127.0.0.1:10012  connected last 1 min 0 s ago

partition table: U up to date, O out of date, F feeding, C corrupted, . none
      0          10
  S1  UUUUUUUUUU UU
 !S2  OOOOOOOOOO O.

backups
 - copy
 - BACKINGUP; UP_TO_DATE=2

to do
 - S2 is down, which has cells of 11 partitions: start it. If it is lost, start
   another storage, add it, and `zodium neo ctl tweak S2` makes other copies,
   and when these are up to date, `zodium neo ctl drop S2` removes it
 - there are to be 2 copies of each partition, and of partition 11 there are
   fewer: start another storage, add it, and `zodium neo ctl tweak`
";
    let drawn = draw(&picture, &diagnose(&picture), NOW);
    let without_tid = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("last tid")).map(str::to_owned).collect()
    };
    assert_eq!(without_tid(&drawn), without_tid(expected));
    assert!(drawn.contains(" ago)\n"));
    // Of a master whose clock is ahead.
    let drawn = draw(&picture, &[], NOW - 3_700.0);
    assert!(drawn.contains(", in 1 h 1 min)\n"), "{drawn}");
}

#[test]
fn a_letter_of_a_large_table_is_the_worst_of_several_partitions() {
    let mut letters = "U".repeat(1000);
    letters.replace_range(600..601, "C");
    letters.replace_range(999..1000, "F");
    let picture = picture(Running, 0, &[(UP, &letters)]);
    let drawn = draw(&picture, &[], NOW);
    assert!(drawn.contains("A letter stands for 3 partitions, and is the worst of them."));
    assert!(drawn.lines().all(|line| line.len() <= 80), "{drawn}");
    let table: String = drawn.lines().filter(|line| line.starts_with("  S1  U")).collect();
    let cells: String = table.replace("  S1", "").replace(' ', "");
    assert_eq!(cells.len(), 334);
    assert_eq!((cells.find('C'), cells.find('F')), (Some(200), Some(333)));
    assert!(drawn.ends_with("All is well.\n"));
}

#[test]
fn many_clients_are_counted() {
    let mut picture = picture(Running, 0, &[(UP, "U")]);
    picture.nodes.extend((1..8).map(|number| node(NodeType::Client, number, UP, 1.0)));
    let drawn = draw(&picture, &[], NOW);
    assert!(drawn.contains("\n  7 clients\n") && !drawn.contains("C1"), "{drawn}");
}

#[test]
fn a_whole_cluster_needs_nothing() {
    assert_eq!(advice(Running, 1, &[(UP, "UU"), (UP, "UU")]), Vec::<String>::new());
    assert_eq!(advice(ClusterState::BackingUp, 0, &[(UP, "UU")]), Vec::<String>::new());
}

#[test]
fn what_is_not_well_has_advice() {
    for (state, replicas, storages, expected) in [
        (Recovering, 0, &[(Pending, ""), (Pending, "")][..], "2 storages are pending"),
        (
            Recovering,
            0,
            &[(Down, "")],
            "no storage with the partition table is there yet; start S1",
        ),
        (Recovering, 0, &[(Pending, "U."), (Down, ".U")], "has partition 1 up to date; start S2"),
        (
            Recovering,
            1,
            &[(Pending, "UU"), (Down, "UU")],
            "start S2. Only if they are lost for ever",
        ),
        (Recovering, 1, &[(Pending, "UU"), (Down, "OO")], "S2 is down, which has cells of 2"),
        (Recovering, 1, &[(Pending, "UU"), (Pending, "OO")], "wait, or look into the log"),
        (Running, 1, &[(UP, "UU"), (UP, ".."), (Down, "OO")], "lost, `zodium neo ctl tweak S3`"),
        (Running, 1, &[(UP, "UU"), (Down, "OO"), (Pending, "")], "lost, `zodium neo ctl add S3`"),
        (Running, 1, &[(UP, "UU"), (Down, "OO"), (UP, "OO")], "lost, `zodium neo ctl drop S2`"),
        (ClusterState::Stopping, 0, &[(UP, "U")], "start its nodes again"),
        (Running, 0, &[(UP, "UU"), (Pending, "..")], "S2 is pending: `zodium neo ctl add S2`"),
        (Running, 0, &[(UP, "UU"), (UP, "..")], "S2 has no cells"),
        (Running, 1, &[(UP, "UUU"), (UP, "OOU")], "S2 is replicating 2 partitions (0-1): wait"),
        (Running, 1, &[(UP, "UU"), (UP, "CU")], "S2 has corrupted cells of partition 0"),
        (Running, 1, &[(UP, "UU"), (UP, "U.")], "of partition 1 there are fewer"),
    ] {
        let advice = advice(state, replicas, storages);
        assert!(advice.iter().any(|line| line.contains(expected)), "{expected}: {advice:?}");
    }
    let mut picture = picture(Running, 0, &[(UP, "U")]);
    picture.nodes.push(node(NodeType::Master, 2, Down, 5.0));
    assert!(diagnose(&picture)[0].contains("the master at 127.0.0.1:10002 is down"));
}

#[test]
fn a_recovery_asks_for_no_table_that_cannot_be_changed_then() {
    let advice = advice(Recovering, 1, &[(Pending, "UU"), (Down, "UU"), (Down, "OO")]);
    assert!(!advice.is_empty() && advice.iter().all(|line| !line.contains("tweak")), "{advice:?}");
}

#[test]
fn what_the_report_warns_of_is_not_well() {
    let report = |warnings: &[Option<&str>], problems: &[Option<&str>], summary: &str| {
        let owned = |names: &[Option<&str>]| {
            names.iter().map(|name| name.map(str::to_owned)).collect::<Vec<_>>()
        };
        let mut picture = picture(Running, 0, &[(UP, "U")]);
        picture.take_report(Report {
            warnings: owned(warnings),
            problems: owned(problems),
            summary: summary.to_owned(),
        });
        (diagnose(&picture), picture.backups)
    };
    let (advice, backups) =
        report(&[], &[], "RUNNING; UP_TO_DATE=1\n\ncopy\n    BACKINGUP; lag=0.0");
    assert_eq!(
        (advice.len(), backups),
        (0, vec!["copy".to_owned(), "    BACKINGUP; lag=0.0".to_owned()])
    );
    let (advice, _) = report(&[], &[Some("copy")], "RUNNING\n\ncopy\n    RECOVERING; DOWN=1");
    assert!(advice[0].starts_with("the backup cluster copy is not well (RECOVERING; DOWN=1)"));
    let (advice, _) = report(&[Some("copy")], &[], "RUNNING\n\ncopy\n    None");
    assert!(advice[0].starts_with("nothing is known of the backup cluster copy"));
    let (advice, backups) =
        report(&[None], &[], "RUNNING; UP_TO_DATE=1\n    S1 hangs\n    S2 differs");
    assert_eq!(advice, ["S1 hangs", "S2 differs"]);
    assert!(backups.is_empty());
}

#[test]
fn json_has_the_table_and_the_advice() {
    let picture = picture(Running, 1, &[(UP, "UO"), (UP, "OU")]);
    let json = picture.to_json(&diagnose(&picture));
    assert_eq!(json["is_well"], false);
    assert_eq!(json["partitions"][1]["cells"][0]["state"], "OUT_OF_DATE");
    assert_eq!(json["replicating"][0], serde_json::json!({ "node": "S1", "partitions": [1] }));
    assert_eq!(json["nodes"][0]["id"], "M1");
}
