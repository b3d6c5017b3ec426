//! Two replicas: one compares its partition with the other's.

use zodium_neo::CellState::UpToDate;
use zodium_neo::messages::*;
use zodium_neo::{Address, Checked, Partition, ask_checks};
use zodium_neo_storage::{NewRecord, TransactionRecord, Writes};
use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::replication::carry;
use crate::support::{Bench, address};

const MAX_TID: Tid = Tid(1 << 40);

/// A replica with some transactions.
fn replica(number: u32, count: u64) -> Bench {
    let mut replica = Bench::operating(number, &[vec![(1, UpToDate), (2, UpToDate)]]);
    let one = replica.client(1);
    for number in 1..=count {
        drop(replica.store(one, number * 10, number, 0, b"some data"));
        replica.commit(one, number * 10, number * 10 + 1, &[number]);
    }
    replica.names();
    replica
}

fn order(reference: Option<Address>, max_tid: Tid) -> CheckPartition<'static> {
    let source = CheckSource { upstream: "", address: reference };
    CheckPartition { partition: Partition(0), source, min_tid: Tid(0), max_tid }
}

/// What the first replica tells the master of the second one, and of itself.
fn check(one: &mut Bench, other: &mut Bench, reference: Option<Address>) -> Vec<String> {
    one.master_tells(order(reference, MAX_TID));
    carry(other, one)
}

#[test]
fn replicas_that_are_the_same_are_not_reported() {
    let (mut one, mut other) = (replica(1, 30), replica(2, 30));
    for reference in [None, Some(address(1)), Some(address(2))] {
        assert!(check(&mut one, &mut other, reference).is_empty());
    }
    assert_eq!(one.node.status().counts.checked_partitions, 3);
    assert_eq!(one.node.status().checking, None);
}

#[test]
fn a_master_that_asks_for_it_is_told_which_copies_are_the_same() {
    let (mut one, mut other) = (replica(1, 30), replica(2, 30));
    one.master_tells(ask_checks());
    let said = check(&mut one, &mut other, None);
    let (partition, min_tid, max_tid) = (Partition(0), Tid(0), MAX_TID);
    let same = Checked { partition, min_tid, max_tid, copies: 2 };
    assert_eq!(said, [format!("NotifyMonitorInformation({:?})", same.message())]);
    other.delete_record(20);
    let said = check(&mut one, &mut other, None);
    assert!(said.len() == 1 && said[0].starts_with("NotifyPartitionCorrupted"), "{said:?}");
}

#[test]
fn long_partitions_are_compared_range_by_range() {
    let (mut one, mut other) = (replica(1, 0), replica(2, 0));
    for bench in [&mut one, &mut other] {
        bench.add_records(25_000);
    }
    assert!(check(&mut one, &mut other, None).is_empty());
    other.delete_record(24_999);
    assert_eq!(check(&mut one, &mut other, None).len(), 1);
}

#[test]
fn the_replica_that_differs_from_the_reference_is_reported() {
    for (reference, reported) in [(1, "S2"), (2, "S1")] {
        let (mut one, mut other) = (replica(1, 30), replica(2, 30));
        other.delete_record(20);
        let said = check(&mut one, &mut other, Some(address(reference)));
        let nodes = format!("nodes: [NodeId({reported})]");
        assert!(said.len() == 1 && said[0].contains(&nodes), "{said:?}");
    }
}

#[test]
fn all_replicas_are_reported_without_a_reference() {
    let (mut one, mut other) = (replica(1, 30), replica(2, 29));
    let said = check(&mut one, &mut other, None);
    assert!(said.len() == 1 && said[0].contains("[NodeId(S1), NodeId(S2)]"), "{said:?}");
    assert_eq!(one.node.status().counts.differing_cells, 2);
}

#[test]
fn rows_of_locked_transactions_are_waited_for_on_both_sides() {
    let (mut one, mut other) = (replica(1, 30), replica(2, 30));
    let clients = [one.client(2), other.client(2)];
    for (bench, client) in [&mut one, &mut other].into_iter().zip(clients) {
        drop(bench.store(client, 500, 77, 0, b"more"));
        bench.vote_and_lock(client, 500, 501, &[77]);
    }
    one.master_tells(order(None, MAX_TID));
    assert!(carry(&mut other, &mut one).is_empty());
    assert_eq!(one.node.status().checking, None, "the check waits");
    one.master_tells(NotifyUnlockInformation { ttid: Tid(500) });
    assert!(carry(&mut other, &mut one).is_empty());
    // The other one delays its answer.
    assert_eq!(one.node.status().counts.checked_partitions, 0);
    assert_eq!(other.node.status().delayed_reads, 1);
    other.master_tells(NotifyUnlockInformation { ttid: Tid(500) });
    assert_eq!(other.names(), ["AnswerCheckTIDRange"]);
}

#[test]
fn a_replica_that_goes_ends_the_check_and_the_next_one_begins() {
    let mut one = replica(1, 3);
    one.master_tells(order(None, MAX_TID));
    one.master_tells(order(None, MAX_TID));
    let (connection, _) = one.dialled.pop().unwrap();
    assert_eq!(one.node.status().checking, Some(Partition(0)));
    one.node.closed(connection);
    one.work();
    // The second check dials again.
    let (connection, _) = one.dialled.pop().unwrap();
    one.node.closed(connection);
    one.work();
    assert_eq!(one.node.status().checking, None);
    assert!(one.names().is_empty());
}

#[test]
fn a_reference_that_is_not_there_ends_the_check() {
    let mut one = replica(1, 3);
    one.master_tells(order(Some(address(9)), MAX_TID));
    assert_eq!(one.node.status().checking, None);
    assert!(one.names().is_empty());
}

impl Bench {
    /// Writes so many transactions with a record each.
    fn add_records(&mut self, count: u64) {
        let transaction = |number| TransactionRecord {
            tid: Tid(number),
            ttid: Tid(number),
            oids: vec![Oid(number)],
            metadata: TransactionMetadata::default(),
            is_packed: false,
            pack: None,
        };
        let record = |number| NewRecord { oid: Oid(number), data: None, data_serial: None };
        let add = |database: &mut dyn Writes| {
            (1..=count).try_for_each(|number| {
                database.add_transaction(&transaction(number))?;
                database.add_record(Tid(number), record(number))
            })
        };
        self.database.write(false, add).unwrap();
    }

    /// Deletes the record of an object, behind the node's back.
    fn delete_record(&mut self, oid: u64) {
        let tid = if oid > 10_000 { Tid(oid) } else { Tid(oid * 10 + 1) };
        self.database.write(false, |database| database.delete_record(Oid(oid), tid)).unwrap();
    }
}
