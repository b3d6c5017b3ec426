//! Answers that tell the master that what it said before is on disk.

use zodium_neo::CellState::{OutOfDate, UpToDate};
use zodium_neo::messages::*;
use zodium_neo::{Partition, TableId};

use crate::support::{Bench, storage};

/// A node that has been told of a change of the table, which is not on disk yet.
fn changed() -> Bench {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate), (2, UpToDate)]]);
    bench.names();
    bench.hold();
    let cell = CellChange { partition: Partition(0), node: storage(2), state: OutOfDate };
    let (table, changes) = (TableId(2), vec![cell]);
    bench.master_tells(NotifyPartitionChanges { table, replicas: 0, changes });
    bench
}

#[test]
fn a_ping_is_answered_when_the_table_told_before_is_on_disk() {
    let mut bench = changed();
    bench.master_tells(Ping {});
    assert_eq!(bench.names(), [""; 0], "a crash would lose the table");
    bench.release();
    assert_eq!(bench.names(), ["Pong"]);
    bench.master_tells(Ping {});
    assert_eq!(bench.names(), ["Pong"]);
}

#[test]
fn a_ping_is_answered_although_operation_ends_meanwhile() {
    let mut bench = changed();
    bench.master_tells(Ping {});
    bench.master_tells(StopOperation {});
    bench.release();
    assert_eq!(bench.names(), ["Pong"]);
}

#[test]
fn a_table_is_told_when_it_is_on_disk() {
    let mut bench = changed();
    bench.master_tells(AskPartitionTable {});
    assert_eq!(bench.names(), [""; 0]);
    bench.release();
    assert_eq!(bench.names(), ["AnswerPartitionTable"]);
}
