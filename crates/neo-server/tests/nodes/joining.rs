//! What a node keeps of the master that accepts it: its id.

use zodium_neo::CellState::UpToDate;
use zodium_neo::messages::*;

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
