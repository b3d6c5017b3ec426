//! What a node keeps of the master that accepts it: its id, and the partition table.

use std::time::Duration;

use zodium_neo::CellState::{OutOfDate, UpToDate};
use zodium_neo::messages::*;
use zodium_neo::{CellState, NodeId, NodeType, TableId};
use zodium_types::Tid;

use crate::support::*;

/// The connection to the master ends, and the node dials it again; what it says to the master.
fn introduced_again(bench: &mut Bench) -> String {
    bench.take();
    bench.node.closed(bench.master);
    bench.work();
    bench.master = bench.dialled.pop().unwrap().0;
    bench.node.connected(bench.master);
    bench.work();
    bench.take().pop().unwrap().1
}

fn accept(bench: &mut Bench, number: u32) {
    let (id, your_id) = (NodeId::of(NodeType::Master, 1), Some(storage(number)));
    let accepted = AcceptIdentification { node_type: NodeType::Master, id, your_id };
    bench.tell(bench.master, 0, accepted);
}

fn table_of(id: u64, rows: &[Vec<(u32, CellState)>]) -> SendPartitionTable {
    SendPartitionTable { table: Some(TableId(id)), ..table(rows) }
}

#[test]
fn an_id_without_a_table_is_not_asked_for_again() {
    let mut bench = Bench::accepted(3);
    let request = introduced_again(&mut bench);
    assert!(request.contains("id: None"), "{request}");
    assert_eq!(bench.writes, 0);
    let mut bench = Bench::accepted(3);
    bench.master_tells(table(&[vec![(1, UpToDate)]]));
    let request = introduced_again(&mut bench);
    assert!(request.contains("S3"), "{request}");
    // The id and the table are saved.
    assert_eq!(bench.writes, 2);
}

#[test]
fn the_table_of_a_cluster_that_was_created_anew_is_refused() {
    let (old, new) = (vec![vec![(1, UpToDate), (2, UpToDate)]], vec![vec![(1, UpToDate)]]);
    // The numbers of the tables, and whether the second one is taken.
    for (saved, told, is_taken) in [(5, 4, false), (5, 5, false), (5, 6, true)] {
        let mut bench = Bench::accepted(2);
        bench.master_tells(table_of(saved, &old));
        bench.take();
        bench.master_tells(table_of(told, &new));
        assert_eq!(bench.closed.contains(&bench.master), !is_taken, "{saved} {told}");
        if !is_taken {
            let said = bench.take().remove(0).1;
            assert!(said.contains("does not follow table 5"), "{said}");
            assert_eq!(bench.pause, Duration::from_secs(1));
        }
        introduced_again(&mut bench);
        accept(&mut bench, 2);
        bench.master_tells(AskRecovery {});
        let kept = if is_taken { told } else { saved };
        let said = bench.take().pop().unwrap().1;
        assert!(said.contains(&format!("table: Some(TableId({kept}))")), "{said}");
    }
}

#[test]
fn a_node_without_cells_forgets_a_backup_and_a_truncation() {
    let mut bench = Bench::accepted(2);
    let pending = |bench: &Bench| bench.database.write(false, |database| database.pending());
    let (backup_tid, truncate_tid) = (Some(Tid(30)), Some(Tid(20)));
    let set = bench.database.write(false, |database| {
        database.set_backup_tid(backup_tid)?;
        database.set_truncate_tid(truncate_tid)
    });
    set.unwrap();
    bench.master_tells(table_of(1, &[vec![(1, UpToDate), (2, OutOfDate)]]));
    assert_eq!(pending(&bench).unwrap(), (backup_tid, truncate_tid));
    bench.master_tells(table_of(2, &[vec![(1, UpToDate)]]));
    assert_eq!(pending(&bench).unwrap(), (None, None));
}
