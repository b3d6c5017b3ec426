//! A cell that is out of date: what it notes, what it packs, and what it keeps of stores that were
//! not checked. The test is its source, step by step; `replication` has whole replications.

use zodium_neo::CellState::{Feeding, OutOfDate, UpToDate};
use zodium_neo::messages::*;
use zodium_neo::{
    CellState, DATA_BYTES_MAX, ErrorCode, Map, Message, NodeState, NodeType, Partition, TableId,
};
use zodium_neo_storage::{CellProgress, ConnectionId, Data, Loaded, NewRecord, Saved, Writes};
use zodium_types::{Oid, Tid};

use crate::support::{Bench, checksum, each_packet, information, storage};

const HERE: Partition = Partition(0);

/// A node whose cell has no data yet, and its source, which was asked for transactions.
fn fetching() -> (Bench, ConnectionId) {
    let mut bench = Bench::operating(2, &[vec![(1, UpToDate), (2, OutOfDate)]]);
    bench.node_answers_unfinished(Tid(50), &[]);
    let source = bench.source();
    (bench, source)
}

fn progress(bench: &Bench, number: u32) -> CellProgress {
    let cells = bench.database.write(false, |database| database.cells(storage(number)));
    cells.unwrap()[0]
}

fn becomes(bench: &mut Bench, number: u32, state: CellState) {
    let changes = vec![CellChange { partition: HERE, node: storage(number), state }];
    bench.master_tells(NotifyPartitionChanges { table: TableId(2), replicas: 0, changes });
}

/// The source answers that it has no more transactions.
fn no_transactions(bench: &mut Bench, source: ConnectionId, completed_pack: Option<Tid>) {
    let id = bench.asked("AskFetchTransactions");
    let (next_tid, deleted) = (None, Vec::new());
    bench.tell(source, id, AnswerFetchTransactions { next_tid, deleted, completed_pack });
}

#[test]
fn a_cell_that_is_out_of_date_is_not_read() {
    let (mut bench, _) = fetching();
    bench.names();
    let one = bench.client(1);
    assert!(bench.load(one, 5).contains("NonReadableCell"));
}

#[test]
fn metadata_that_the_database_cannot_hold_end_the_connection_to_the_source() {
    for limits_metadata in [false, true] {
        let bench = Bench::accepted_with(2, 0, |saved| Saved { limits_metadata, ..saved });
        let mut bench = bench.operate(&[vec![(1, UpToDate), (2, OutOfDate)]]);
        // Also when it operates again.
        bench.master_tells(StopOperation {});
        bench.master_tells(StartOperation { backup: false });
        let id = bench.asked("AskUnfinishedTransactions");
        let answer = AnswerUnfinishedTransactions { max_tid: Tid(50), ttids: Vec::new() };
        bench.tell(bench.master, id, answer);
        let source = bench.source();
        let id = bench.asked("AskFetchTransactions");
        let transaction = AddTransaction {
            tid: Tid(40),
            user: &vec![b'x'; 65_536],
            description: b"",
            extension: b"",
            packed: false,
            ttid: Tid(40),
            oids: vec![Oid(5)],
            pack: None,
        };
        bench.tell(source, id, transaction);
        assert_eq!(bench.closed.contains(&source), limits_metadata);
        assert_eq!(bench.exit, None);
    }
}

#[test]
fn a_chunk_that_ends_within_a_transaction_does_not_count_for_it() {
    let (mut bench, source) = fetching();
    no_transactions(&mut bench, source, None);
    let id = bench.asked("AskFetchObjects");
    let (next_tid, next_oid) = (Some(Tid(40)), Some(Oid(7)));
    let deleted = Map::default();
    bench.tell(source, id, AnswerFetchObjects { next_tid, next_oid, deleted });
    assert_eq!(progress(&bench, 2).replicated, Some(Tid(39)), "objects of 40 are missing");
    bench.asked("AskFetchObjects");
}

#[test]
fn what_the_source_has_not_packed_is_to_be_packed_here() {
    for (own, of_source, expected) in [(60, 30, 30), (30, 60, 30), (30, 30, 30)] {
        let (mut bench, source) = fetching();
        let set = |number| {
            bench
                .database
                .write(false, |database| database.set_packed(storage(2), HERE, Tid(number)))
        };
        set(own).unwrap();
        no_transactions(&mut bench, source, Some(Tid(of_source)));
        assert_eq!(progress(&bench, 2).packed, Tid(expected), "{own} {of_source}");
    }
}

#[test]
fn a_source_says_how_far_its_cell_is_packed_now() {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate), (2, OutOfDate)]]);
    let set = |bench: &Bench, number| {
        let set = |database: &mut dyn Writes| database.set_packed(storage(1), HERE, Tid(number));
        bench.database.write(false, set).unwrap();
    };
    set(&bench, 60);
    bench.master_tells(StopOperation {});
    bench.master_tells(StartOperation { backup: false });
    // As if the cell had been out of date since, and its own source had not packed so far.
    set(&bench, 30);
    let target = bench.storage(2);
    let (partition, length, tids) = (HERE, 1000, Vec::new());
    let (min_tid, max_tid, ask_pack_info) = (Tid(0), Tid(50), true);
    let question =
        AskFetchTransactions { partition, length, min_tid, max_tid, tids, ask_pack_info };
    bench.tell(target, 1, question);
    let mut told = None;
    for (_, bytes) in bench.take_sent() {
        each_packet(&bytes, |packet| {
            if let Message::AnswerFetchTransactions(answer) = packet.message {
                told = answer.completed_pack;
            }
        });
    }
    assert_eq!(told, Some(Tid(30)));
}

#[test]
fn a_cell_is_packed_when_it_is_up_to_date_and_not_before() {
    for state in [OutOfDate, Feeding] {
        let mut bench = Bench::operating(1, &[vec![(1, state), (2, UpToDate)]]);
        bench.master_tells(NotifyPackSigned { approved: vec![Tid(71)], rejected: Vec::new() });
        assert!(!bench.names().contains(&"AskPackOrders".to_owned()), "{state:?}");
        becomes(&mut bench, 1, UpToDate);
        assert_eq!(bench.names(), ["AskPackOrders"], "{state:?}");
    }
}

#[test]
fn an_order_of_a_backup_that_is_told_early_is_carried_out_when_all_is_there() {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate)]]);
    bench.master_tells(StartOperation { backup: true });
    bench.master_tells(NotifyPackSigned { approved: vec![Tid(71)], rejected: Vec::new() });
    for tid in [70, 75] {
        assert!(!bench.names().contains(&"AskPackOrders".to_owned()), "before {tid}");
        let sources = Map(vec![(HERE, None)]);
        bench.master_tells(Replicate { tid: Tid(tid), upstream: "upstream", sources });
    }
    assert_eq!(bench.names(), ["AskPackOrders"]);
}

/// The connection on which the node asks for transactions.
fn asked_source(bench: &mut Bench) -> ConnectionId {
    let said = bench.take();
    let asks = |(_, text): &&(ConnectionId, String)| text.starts_with("AskFetchTransactions");
    said.iter().find(asks).map(|(connection, _)| *connection).unwrap()
}

#[test]
fn a_source_that_is_away_for_the_master_is_replaced_though_it_hangs() {
    for (state, has_dialled) in [
        (NodeState::Down, false),
        (NodeState::Down, true),
        (NodeState::Unknown, false),
        (NodeState::Unknown, true),
    ] {
        let mut bench = Bench::operating(2, &[vec![(1, UpToDate), (2, OutOfDate), (3, UpToDate)]]);
        let there =
            if has_dialled { [1, 3].map(|one| (one, bench.storage(one))).to_vec() } else { vec![] };
        bench.node_answers_unfinished(Tid(50), &[]);
        let (number, source) = match bench.dialled.pop() {
            Some((source, at)) => (u32::from(at.port) - 1000, source),
            None => {
                let source = asked_source(&mut bench);
                *there.iter().find(|(_, connection)| *connection == source).unwrap()
            }
        };
        let mut gone = information(NodeType::Storage, number);
        gone.state = state;
        bench.master_tells(NotifyNodeInformation { timestamp: 11.0, nodes: vec![gone] });
        assert_eq!(bench.closed, [source], "{state:?}");
        let other = bench.dialled.pop().map(|(other, _)| other);
        assert_ne!(other.unwrap_or_else(|| asked_source(&mut bench)), source, "{state:?}");
    }
}

#[test]
fn a_store_that_other_cells_refuse_is_not_kept_by_one_that_was_out_of_date() {
    let (mut bench, source) = fetching();
    let id = bench.asked("AskFetchTransactions");
    let (one, other) = (bench.client(1), bench.client(2));
    // It is based on nothing, and unchecked: object 5 has a record that is not here yet.
    let unchecked = bench.store(one, 100, 5, 0, b"lost update");
    assert!(unchecked[0].contains("Some(Tid(0))"), "{unchecked:?}");
    let (next_tid, deleted, completed_pack) = (None, Vec::new(), None);
    bench.tell(source, id, AnswerFetchTransactions { next_tid, deleted, completed_pack });
    let id = bench.asked("AskFetchObjects");
    let record = AddObject {
        oid: Oid(5),
        serial: Tid(40),
        compression: 0,
        checksum: checksum(b"data"),
        data: b"data",
        data_serial: None,
    };
    bench.tell(source, id, record);
    let (next_oid, deleted) = (None, Map::default());
    bench.tell(source, id, AnswerFetchObjects { next_tid: None, next_oid, deleted });
    assert_eq!(bench.names(), ["NotifyReplicationDone"]);
    becomes(&mut bench, 2, UpToDate);
    bench.names();
    // The lock is free, and nothing of the refused store is voted.
    assert!(bench.store(other, 110, 5, 40, b"next")[0].contains("None"));
    bench.tell(one, 2, AskVoteTransaction { ttid: Tid(100) });
    let unfinished = bench.database.write(false, |database| database.unfinished());
    assert!(unfinished.unwrap().is_empty());
}

#[test]
fn a_source_whose_cell_is_taken_away_refuses() {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate), (2, OutOfDate)]]);
    let target = bench.storage(2);
    let (partition, length) = (HERE, 1000);
    let (min_tid, max_tid, min_oid) = (Tid(0), Tid(50), Oid(0));
    let (tids, records) = (Vec::new(), Map::default());
    bench.hold();
    let transactions =
        AskFetchTransactions { partition, length, min_tid, max_tid, tids, ask_pack_info: false };
    bench.tell(target, 1, transactions);
    let objects = AskFetchObjects { partition, length, min_tid, max_tid, min_oid, records };
    bench.tell(target, 2, objects);
    bench.tell(target, 3, AskCheckTIDRange { partition, length, min_tid, max_tid });
    let sum = AskCheckSerialRange { partition, length, min_tid, max_tid, min_oid };
    bench.tell(target, 4, sum);
    becomes(&mut bench, 1, CellState::Discarded);
    bench.release();
    // Nothing is there any more: the target would take that for the state of the partition.
    assert_eq!(bench.names(), ["Error"; 4]);
}

#[test]
fn a_partition_that_sources_refuse_is_asked_for_less_and_less_often() {
    let (mut bench, mut source) = fetching();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let id = bench.asked("AskFetchTransactions");
        bench.tell(source, id, Error { code: ErrorCode::ReplicationError, message: "no" });
        pauses.push(bench.pause.as_millis());
        source = bench.source();
    }
    assert_eq!(pauses, [400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    no_transactions(&mut bench, source, None);
    let id = bench.asked("AskFetchObjects");
    let (next_tid, next_oid, deleted) = (None, None, Map::default());
    bench.tell(source, id, AnswerFetchObjects { next_tid, next_oid, deleted });
    assert_eq!(bench.names(), ["NotifyReplicationDone"]);
}

#[test]
fn refusals_that_have_passed_do_not_count() {
    let (mut bench, mut source) = fetching();
    for (code, pause) in [
        (ErrorCode::NotReady, 200),
        (ErrorCode::ReplicationError, 400),
        (ErrorCode::ReplicationError, 800),
    ] {
        let id = bench.asked("AskFetchTransactions");
        bench.tell(source, id, Error { code, message: "no" });
        assert_eq!(bench.pause.as_millis(), pause);
        source = bench.source();
    }
    no_transactions(&mut bench, source, None);
    let id = bench.asked("AskFetchObjects");
    let (next_tid, next_oid, deleted) = (Some(Tid(30)), Some(Oid(0)), Map::default());
    bench.tell(source, id, AnswerFetchObjects { next_tid, next_oid, deleted });
    let id = bench.asked("AskFetchObjects");
    let (code, message) = (ErrorCode::ReplicationError, "no");
    bench.tell(source, id, Error { code, message });
    assert_eq!(bench.pause.as_millis(), 400);
}

#[test]
fn a_record_that_no_message_carries_is_refused_and_the_connections_go_on() {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate), (2, OutOfDate)]]);
    let (one, target) = (bench.client(1), bench.storage(2));
    let bytes = vec![0; DATA_BYTES_MAX + 200];
    let data = Data { compression: 0, checksum: checksum(&bytes), bytes };
    let record = NewRecord { oid: Oid(5), data: Some(data), data_serial: None };
    bench.database.write(false, |database| database.add_record(Tid(40), record)).unwrap();
    assert!(bench.load(one, 5).contains("BackendNotImplemented"));
    let (partition, length, records) = (HERE, 1000, Map::default());
    let (min_tid, max_tid, min_oid) = (Tid(0), Tid(50), Oid(0));
    let objects = AskFetchObjects { partition, length, min_tid, max_tid, min_oid, records };
    bench.tell(target, 1, objects);
    let said = bench.take();
    let refusal = "object 0000000000000005, revision 0000000000000028: AddObject";
    assert!(said.len() == 1 && said[0].1.contains("ReplicationError"), "{said:?}");
    assert!(said[0].1.contains(refusal), "{said:?}");
    assert_eq!(bench.closed, []);
}

#[test]
fn a_source_waits_for_transactions_that_are_locked() {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate), (2, OutOfDate)]]);
    let (one, target) = (bench.client(1), bench.storage(2));
    bench.store(one, 40, 5, 0, b"data");
    bench.vote_and_lock(one, 40, 41, &[5]);
    let (partition, length, tids) = (HERE, 1000, Vec::new());
    for (max_tid, waits) in [(Tid(40), false), (Tid(41), true)] {
        let question = AskFetchTransactions {
            partition,
            length,
            min_tid: Tid(0),
            max_tid,
            tids: Vec::clone(&tids),
            ask_pack_info: false,
        };
        bench.tell(target, 1, question);
        assert_eq!(bench.names().is_empty(), waits, "{max_tid}");
    }
    bench.master_tells(NotifyUnlockInformation { ttid: Tid(40) });
    assert_eq!(bench.names(), ["AddTransaction", "AnswerFetchTransactions"]);
}

#[test]
fn a_cell_that_gets_out_of_date_keeps_how_far_it_is_packed() {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate), (2, UpToDate)]]);
    bench.master_tells(NotifyPackSigned { approved: vec![Tid(71)], rejected: Vec::new() });
    becomes(&mut bench, 1, OutOfDate);
    assert_eq!(progress(&bench, 1).packed, Tid::ZERO);
}

/// A node whose cell has all up to 39, and object 5 of 20; it goes on with its source.
fn resuming(completed_pack: Tid, approved: Option<Tid>) -> (Bench, ConnectionId, u32, Tid) {
    let mut bench = Bench::operating(2, &[vec![(1, UpToDate), (2, OutOfDate)]]);
    let fill = |database: &mut dyn Writes| {
        let data = Data { compression: 0, checksum: checksum(b"data"), bytes: b"data".to_vec() };
        let record = NewRecord { oid: Oid(5), data: Some(data), data_serial: None };
        database.add_record(Tid(20), record)?;
        database.set_replicated(storage(2), HERE, Tid(39))
    };
    bench.database.write(false, fill).unwrap();
    bench.master_tells(StopOperation {});
    bench.names();
    if let Some(order) = approved {
        bench.master_tells(NotifyPackSigned { approved: vec![order], rejected: Vec::new() });
    }
    bench.master_tells(StartOperation { backup: false });
    let question = bench.asked("AskUnfinishedTransactions");
    let answer = AnswerUnfinishedTransactions { max_tid: Tid(50), ttids: Vec::new() };
    bench.tell(bench.master, question, answer);
    let source = bench.source();
    no_transactions(&mut bench, source, Some(completed_pack));
    let (mut id, mut from) = (0, Tid::MAX);
    for (_, bytes) in bench.take_sent() {
        each_packet(&bytes, |packet| {
            if let Message::AskFetchObjects(question) = packet.message {
                (id, from) = (packet.id, question.min_tid);
                let told = question
                    .records
                    .0
                    .iter()
                    .any(|(tid, oids)| (*tid, &oids[..]) == (Tid(20), &[Oid(5)][..]));
                assert_eq!(told, from == Tid::ZERO);
            }
        });
    }
    (bench, source, id, from)
}

#[test]
fn a_deletion_that_the_source_has_packed_away_is_not_missed() {
    // Object 5 was deleted by 41, which a pack has removed at the source. It says so, or an order
    // is approved, which it may be carrying out.
    for (completed, approved) in [(60, None), (60, Some(Tid(60))), (0, Some(Tid(60)))] {
        let (mut bench, source, id, from) = resuming(Tid(completed), approved);
        assert_eq!(from, Tid::ZERO);
        let deleted = Map::from_iter([(Tid(20), vec![Oid(5)])]);
        let (next_tid, next_oid) = (None, None);
        bench.tell(source, id, AnswerFetchObjects { next_tid, next_oid, deleted });
        assert_eq!(bench.names(), ["NotifyReplicationDone"]);
        let found = bench.database.read(|database| database.load(Oid(5), None, None));
        assert_eq!(found.unwrap().unwrap(), Loaded::Never);
    }
}

#[test]
fn records_from_before_are_not_compared_without_need() {
    let (_, _, _, from) = resuming(Tid(0), None);
    assert_eq!(from, Tid(40));
}

#[test]
fn a_partition_is_not_packed_while_another_storage_fetches_it() {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate), (2, OutOfDate)]]);
    bench.master_tells(NotifyPackSigned { approved: vec![Tid(71)], rejected: Vec::new() });
    assert!(bench.names().is_empty());
    becomes(&mut bench, 2, UpToDate);
    assert_eq!(bench.names(), ["AskPackOrders"]);
    // A storage that is down may be for long: it compares all records when it comes back.
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate), (2, OutOfDate)]]);
    bench.master_tells(NotifyPackSigned { approved: vec![Tid(71)], rejected: Vec::new() });
    let mut gone = information(NodeType::Storage, 2);
    gone.state = NodeState::Down;
    bench.master_tells(NotifyNodeInformation { timestamp: 11.0, nodes: vec![gone] });
    assert_eq!(bench.names(), ["AskPackOrders"]);
}

#[test]
fn a_store_again_of_an_object_that_was_not_checked_is_compared() {
    let (mut bench, source) = fetching();
    no_transactions(&mut bench, source, None);
    let id = bench.asked("AskFetchObjects");
    let one = bench.client(1);
    assert!(bench.store(one, 100, 5, 0, b"first")[0].contains("Some(Tid(0))"));
    let (oid, serial, compression, data) = (Oid(5), Tid(40), 0, &b"data"[..]);
    let checksum = checksum(data);
    bench.tell(
        source,
        id,
        AddObject { oid, serial, compression, checksum, data, data_serial: None },
    );
    bench.hold_reads();
    let (next_tid, next_oid, deleted) = (None, None, Map::default());
    bench.tell(source, id, AnswerFetchObjects { next_tid, next_oid, deleted });
    assert_eq!(bench.names(), ["NotifyReplicationDone"]);
    // Another cell has told of 20. The transaction has the lock here, and 40 is not known to it.
    assert!(bench.store(one, 100, 5, 20, b"second").is_empty());
    bench.release();
    let said: Vec<_> = bench.take().into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["AnswerStoreObject(AnswerStoreObject { conflict: Some(Tid(28)) })"]);
    assert!(bench.store(one, 100, 5, 40, b"third")[0].contains("None"));
    bench.commit(one, 100, 102, &[5]);
    becomes(&mut bench, 2, UpToDate);
    bench.names();
    assert!(bench.load(one, 5).contains("serial: Tid(66)"));
}
