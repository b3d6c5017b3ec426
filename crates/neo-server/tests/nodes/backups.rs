//! What a node of a backup cluster says of transactions that are not whole yet.

use zodium_neo::CellState::{OutOfDate, UpToDate};
use zodium_neo::messages::*;
use zodium_neo::{Partition, TableId};
use zodium_neo_storage::ConnectionId;
use zodium_types::Tid;

use crate::support::{Bench, storage};

const HERE: Partition = Partition(0);

/// A node with three transactions, whose database says that it is whole up to the first.
fn stored() -> (Bench, ConnectionId) {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate), (2, UpToDate)]]);
    let one = bench.client(1);
    for (number, oid) in [(0, 4), (1, 6), (2, 8)] {
        bench.store(one, 100 + 10 * number, oid, 0, b"data");
        bench.commit(one, 100 + 10 * number, 102 + 10 * number, &[oid]);
    }
    let set = bench.database.write(false, |database| database.set_backup_tid(Some(Tid(102))));
    set.unwrap();
    (bench, one)
}

#[test]
fn a_list_of_transactions_goes_on_behind_those_that_are_not_whole() {
    let (mut bench, one) = stored();
    bench.master_tells(StartOperation { backup: true });
    bench.names();
    bench.tell(one, 3, AskTIDs { first: 0, end: 2, partition: HERE });
    let said = bench.take();
    assert!(said[0].1.contains("tids: [Tid(66)]"), "{said:?}");
}

#[test]
fn a_cell_that_a_killed_node_had_is_fetched_from_where_it_was_whole() {
    let (mut bench, _) = stored();
    // The master tells the table before it tells that the cluster is a backup.
    let change = CellChange { partition: HERE, node: storage(1), state: OutOfDate };
    let (table, changes) = (TableId(2), vec![change]);
    bench.master_tells(NotifyPartitionChanges { table, replicas: 1, changes });
    let cells = bench.database.write(false, |database| database.cells(storage(1)));
    assert_eq!(cells.unwrap()[0].replicated, Some(Tid(102)));
}
