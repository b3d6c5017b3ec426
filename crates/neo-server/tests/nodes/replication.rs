//! Two nodes: one fetches from the other what it lacks.

use std::collections::BTreeMap;

use zodium_neo::CellState::{OutOfDate, UpToDate};
use zodium_neo::messages::*;
use zodium_neo::{CellState, Map, Message, NodeType, Partition, TableId};
use zodium_neo_storage::{ConnectionId, NewRecord, Reads, TransactionRecord, Writes};
use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::support::{Bench, each_packet, storage};

/// Connects the target with the source that it has dialled, and carries what they say until both
/// are silent. What goes to masters stays.
pub(crate) fn carry(source: &mut Bench, target: &mut Bench) -> Vec<String> {
    let mut links = BTreeMap::<ConnectionId, ConnectionId>::new();
    let mut to_masters = Vec::new();
    loop {
        for (connection, _) in std::mem::take(&mut target.dialled) {
            links.insert(connection, source.node.accepted("target".to_owned()));
            target.node.connected(connection);
            target.work();
        }
        let sent = target.take_sent();
        let back = source.take_sent();
        if sent.is_empty() && back.is_empty() {
            return to_masters;
        }
        for (connection, bytes) in sent {
            each_packet(&bytes, |packet| match links.get(&connection) {
                Some(there) => {
                    source.node.received(*there, packet);
                    source.work();
                }
                None => to_masters.push(format!("{:?}", packet.message)),
            });
        }
        for (connection, bytes) in back {
            let here = links.iter().find(|(_, there)| **there == connection).map(|(here, _)| *here);
            let Some(here) = here else { continue };
            each_packet(&bytes, |packet| {
                target.node.received(here, packet);
                target.work();
            });
        }
    }
}

fn rows(of_second: CellState) -> Vec<Vec<(u32, CellState)>> {
    vec![vec![(1, UpToDate), (2, of_second)]]
}

/// A node with some transactions.
fn source(count: u64) -> Bench {
    let mut source = Bench::operating(1, &rows(OutOfDate));
    let one = source.client(1);
    for number in 1..=count {
        let oids = [number, number + 10_000];
        oids.iter().for_each(|oid| drop(source.store(one, number * 10, *oid, 0, b"some data")));
        source.commit(one, number * 10, number * 10 + 1, &oids);
    }
    source.names();
    source
}

fn target() -> Bench {
    Bench::operating(2, &rows(OutOfDate))
}

fn becomes_readable(target: &mut Bench) {
    let changes = vec![CellChange { partition: Partition(0), node: storage(2), state: UpToDate }];
    target.master_tells(NotifyPartitionChanges { table: TableId(2), replicas: 0, changes });
}

#[test]
fn a_cell_fetches_everything_in_chunks() {
    let (mut source, mut target) = (source(1_200), target());
    let max_tid = Tid(12_001);
    target.node_answers_unfinished(max_tid, &[]);
    let said = carry(&mut source, &mut target);
    let expected = "NotifyReplicationDone { partition: Partition(0), tid: Tid(2ee1) }";
    assert_eq!(said, [format!("NotifyReplicationDone({expected})")]);
    becomes_readable(&mut target);
    target.names();
    let one = target.client(1);
    assert!(target.load(one, 11_200).contains("serial: Tid(2ee1)"));
    target.tell(
        one,
        4,
        AskTIDsFrom { min_tid: Tid(0), max_tid, length: 5_000, partition: Partition(0) },
    );
    assert_eq!(target.take()[0].1.matches("Tid(").count(), 1_200);
}

#[test]
fn rows_that_the_source_does_not_have_go_however_many_they_are() {
    let (mut source, mut target) = (source(100), target());
    let metadata = TransactionMetadata::default();
    let left = |writes: &mut dyn Writes| {
        for number in 1..=2_500 {
            // Some are of transactions of the source, and most are not.
            let (tid, ttid) = (Tid(number * 4 + 1), Tid(number * 4));
            let (oids, metadata) = (vec![Oid(20_000)], metadata.clone());
            let row = TransactionRecord { tid, ttid, oids, metadata, is_packed: false, pack: None };
            writes.add_transaction(&row)?;
            let record = NewRecord { oid: Oid(20_000), data: None, data_serial: None };
            writes.add_record(tid, record)?;
        }
        Ok(())
    };
    target.database.write(false, left).unwrap();
    target.node_answers_unfinished(Tid(11_001), &[]);
    assert_eq!(carry(&mut source, &mut target).len(), 1);
    let rows = |bench: &Bench| {
        let (all, partition) = ((Tid(0), Tid(20_000)), Partition(0));
        let rows = |reads: &dyn Reads| {
            let tids = reads.tids(partition, all, 10_000).unwrap();
            (tids, reads.records(partition, all, Oid(0), 10_000).unwrap())
        };
        bench.database.read(rows).unwrap()
    };
    assert!(rows(&source).0.len() == 100 && rows(&source).1.len() == 200);
    assert!(rows(&target) == rows(&source));
}

/// Has a cell fetch from a node with transactions 11, 21 and 31. The cell ends with a transaction
/// that it has records of, and metadata or not. Gives what it says to its master, and its
/// transactions.
fn ending_with(tid: Tid, oid: Oid, has_metadata: bool) -> (Vec<String>, Vec<Tid>) {
    let (mut source, mut target) = (source(3), target());
    let metadata = TransactionMetadata::default();
    let (ttid, oids) = (Tid(tid.0 - 1), vec![oid]);
    let row = TransactionRecord { tid, ttid, oids, metadata, is_packed: false, pack: None };
    let left = |writes: &mut dyn Writes| {
        if has_metadata {
            writes.add_transaction(&row)?;
        }
        writes.add_record(tid, NewRecord { oid, data: None, data_serial: None })?;
        writes.set_replicated(storage(2), Partition(0), tid)
    };
    target.database.write(false, left).unwrap();
    target.master_tells(StopOperation {});
    target.names();
    target.master_tells(StartOperation { backup: false });
    let question = target.asked_for_unfinished();
    let answer = AnswerUnfinishedTransactions { max_tid: Tid(31), ttids: Vec::new() };
    target.tell(target.master, question, answer);
    let said = carry(&mut source, &mut target);
    let tids = target.database.read(|reads| reads.tids(Partition(0), (Tid(0), Tid(99)), 9));
    (said, tids.unwrap().unwrap())
}

#[test]
fn nothing_is_fetched_into_a_database_that_went_another_way() {
    for has_metadata in [true, false] {
        let (said, tids) = ending_with(Tid(25), Oid(2), has_metadata);
        assert!(said.len() == 1 && said[0].contains("Corrupted"), "{said:?}");
        let own = if has_metadata { &[Tid(25)][..] } else { &[] };
        let fetched = if has_metadata { &[] } else { &[Tid(31)][..] };
        assert_eq!(tids, [own, fetched].concat());
        let (said, tids) = ending_with(Tid(21), Oid(2), has_metadata);
        assert!(said.len() == 1 && said[0].contains("Done"), "{said:?}");
        assert!(tids.ends_with(&[Tid(31)]));
    }
}

#[test]
fn stores_are_accepted_without_a_lock_and_delay_readiness() {
    let (mut source, mut target) = (source(3), target());
    let one = target.client(1);
    let other = target.client(2);
    // Two transactions store one object: another cell has refused one of them, or will.
    assert!(target.store(one, 100, 5, 0, b"one")[0].contains("Some(Tid(0))"));
    assert!(target.store(other, 110, 5, 0, b"other")[0].contains("Some(Tid(0))"));
    target.node_answers_unfinished(Tid(31), &[]);
    assert!(carry(&mut source, &mut target).is_empty());
    target.tell(other, 4, AbortTransaction { ttid: Tid(110), nodes: Vec::new() });
    assert_eq!(target.names(), ["NotifyReplicationDone"]);
}

#[test]
fn transactions_in_progress_are_waited_for() {
    let (mut source, mut target) = (source(3), target());
    target.node_answers_unfinished(Tid(21), &[Tid(30)]);
    assert!(carry(&mut source, &mut target).is_empty());
    target.master_tells(NotifyTransactionFinished { ttid: Tid(30), max_tid: Tid(31) });
    assert_eq!(carry(&mut source, &mut target).len(), 1);
    becomes_readable(&mut target);
    target.names();
    let one = target.client(1);
    assert!(target.load(one, 3).contains("serial: Tid(1f)"));
}

#[test]
fn clients_that_commit_get_their_turn_between_slices_of_a_chunk() {
    let (mut source, mut target) = (source(400), target());
    let one = target.client(1);
    drop(target.store(one, 100_000, 9, 0, b"open"));
    target.node_answers_unfinished(Tid(4_001), &[]);
    target.names();
    let before = target.writes;
    assert_eq!(carry(&mut source, &mut target).len(), 1);
    // 800 records: 8 slices, and the other writes of the replication.
    assert!(target.writes - before >= 10, "{}", target.writes - before);
    assert_eq!(target.node.status().counts.fetched_records, 800);
}

#[test]
fn a_source_that_has_dialled_us_and_goes_is_replaced() {
    let mut target = target();
    let there = target.storage(1);
    target.node_answers_unfinished(Tid(21), &[]);
    assert_eq!(target.names(), ["AskFetchTransactions"], "on the connection that is there");
    target.node.closed(there);
    target.work();
    assert_eq!(target.dialled.len(), 1, "the node dials the source itself");
}

#[test]
fn a_chunk_that_is_being_written_does_not_count_for_a_cell_that_begins_anew() {
    let mut target = target();
    target.node_answers_unfinished(Tid(31), &[]);
    let (source, _) = target.dialled.pop().unwrap();
    target.node.connected(source);
    let accepted = AcceptIdentification {
        node_type: NodeType::Storage,
        id: Some(storage(1)),
        your_id: Some(storage(2)),
    };
    target.tell(source, 0, accepted);
    let nothing =
        AnswerFetchTransactions { next_tid: None, deleted: Vec::new(), completed_pack: None };
    target.tell(source, 1, nothing);
    assert_eq!(target.names().last().unwrap(), "AskFetchObjects");
    target.held = Some(Vec::new());
    let deleted = Map::from_iter([]);
    target.tell(source, 2, AnswerFetchObjects { next_tid: None, next_oid: None, deleted });
    let partition = Partition(0);
    for (table, state) in [(2, CellState::Discarded), (3, OutOfDate)] {
        let changes = vec![CellChange { partition, node: storage(2), state }];
        let table = TableId(table);
        target.master_tells(NotifyPartitionChanges { table, replicas: 0, changes });
    }
    // The cell begins anew when the tables are written, and with them the chunk of before.
    target.release();
    let question = target.asked_for_unfinished();
    target.held = Some(Vec::new());
    let answer = AnswerUnfinishedTransactions { max_tid: Tid(31), ttids: Vec::new() };
    target.tell(target.master, question, answer);
    assert_eq!(target.node.status().replicating, Some(partition));
    target.release();
    let cells = target.node.status().cells;
    assert_eq!(cells[0].missing.map(|missing| missing.from), Some(Tid::ZERO));
    assert!(!target.names().contains(&"NotifyReplicationDone".to_owned()));
}

impl Bench {
    /// The id of the last question for unfinished transactions.
    fn asked_for_unfinished(&mut self) -> u32 {
        let mut asked = None;
        for (_, bytes) in self.take_sent() {
            each_packet(&bytes, |packet| {
                if matches!(packet.message, Message::AskUnfinishedTransactions(_)) {
                    asked = Some(packet.id);
                }
            });
        }
        asked.unwrap()
    }

    /// The master answers the question for unfinished transactions, the first request after the
    /// identification and NotifyReady.
    pub(crate) fn node_answers_unfinished(&mut self, max_tid: Tid, ttids: &[Tid]) {
        let answer = AnswerUnfinishedTransactions { max_tid, ttids: ttids.to_vec() };
        self.tell(self.master, 2, answer);
    }
}
