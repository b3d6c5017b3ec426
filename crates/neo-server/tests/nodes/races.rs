//! What happens between a question to the database and its answer.

use zodium_neo::CellState::{Discarded, OutOfDate, UpToDate};
use zodium_neo::messages::*;
use zodium_neo::{Map, Partition, TableId};
use zodium_types::{Oid, Tid};

use crate::support::{Bench, storage};

const HERE: Partition = Partition(1);

fn two_cells() -> Bench {
    Bench::operating(1, &[vec![(1, UpToDate)], vec![(1, UpToDate)]])
}

/// The master takes the cell of object 5 away.
fn take_away(bench: &mut Bench) {
    let change = CellChange { partition: HERE, node: storage(1), state: Discarded };
    let changes = vec![change];
    bench.master_tells(NotifyPartitionChanges { table: TableId(2), replicas: 0, changes });
}

fn texts(bench: &mut Bench) -> String {
    bench.take().into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_store_whose_cell_is_taken_away_meanwhile_is_answered() {
    let mut bench = two_cells();
    let one = bench.client(1);
    bench.hold();
    assert!(bench.store(one, 100, 5, 0, b"data").is_empty());
    take_away(&mut bench);
    bench.release();
    assert_eq!(
        texts(&mut bench),
        "AnswerStoreObject(AnswerStoreObject { conflict: Some(Tid(0)) })"
    );
}

#[test]
fn a_lock_that_was_given_back_to_a_cell_that_goes_is_not_told_as_taken() {
    for asks_late in [false, true] {
        let mut bench = two_cells();
        let (old, young) = (bench.client(1), bench.client(2));
        bench.store(young, 200, 5, 0, b"young");
        bench.store(old, 100, 5, 0, b"old");
        if asks_late {
            take_away(&mut bench);
        }
        bench.tell(young, 9, AskRelockObject { ttid: Tid(200), oid: Oid(5) });
        if !asks_late {
            take_away(&mut bench);
        }
        assert!(!texts(&mut bench).contains("AnswerRelockObject"));
        assert_eq!(bench.closed, [young]);
    }
}

#[test]
fn a_read_that_a_dropped_cell_overtakes_does_not_say_that_there_is_nothing() {
    let mut bench = two_cells();
    let one = bench.client(1);
    bench.store(one, 101, 5, 0, b"data");
    bench.commit(one, 101, 103, &[5]);
    bench.hold();
    let (partition, min_tid, max_tid, length) = (HERE, Tid(0), Tid(1000), 10);
    bench.tell(one, 3, AskObject { oid: Oid(5), at: None, before: None });
    bench.tell(one, 4, AskObjectHistory { oid: Oid(5), first: 0, end: 10 });
    bench.tell(one, 5, AskTransactionInformation { tid: Tid(103) });
    bench.tell(one, 6, AskTIDsFrom { min_tid, max_tid, length, partition });
    bench.tell(one, 7, AskOIDsFrom { partition, length, min_oid: Oid(0), tid: Tid(1000) });
    bench.tell(one, 8, AskFinalTID { ttid: Tid(101) });
    take_away(&mut bench);
    bench.release();
    let said = texts(&mut bench);
    assert_eq!(said.matches("NonReadableCell").count(), 6, "{said}");
}

#[test]
fn a_locked_transaction_stays_when_its_client_aborts_it() {
    let mut bench = two_cells();
    let one = bench.client(1);
    bench.store(one, 101, 5, 0, b"data");
    bench.tell(one, 2, AskVoteTransaction { ttid: Tid(101) });
    let (ttid, tid) = (Tid(101), Tid(103));
    bench.master_tells(AskLockInformation { ttid, tid, pack_approved: false });
    bench.tell(one, 4, AbortTransaction { ttid, nodes: Vec::new() });
    bench.master_tells(NotifyUnlockInformation { ttid });
    bench.names();
    assert!(bench.load(one, 5).contains("serial: Tid(67)"));
    assert!(bench.node.is_unlocked());
}

#[test]
fn an_order_to_pack_that_is_only_voted_or_was_aborted_is_not_told() {
    let mut bench = two_cells();
    let one = bench.client(1);
    let pack = Some(PackRequest { oids: None, tid: Tid(5) });
    let (user, description, extension, oids) = (&b""[..], &b""[..], &b""[..], Vec::new());
    let ttid = Tid(101);
    bench.tell(one, 2, AskStoreTransaction { ttid, user, description, extension, oids, pack });
    for is_aborted in [false, true] {
        if is_aborted {
            bench.tell(one, 3, AbortTransaction { ttid, nodes: Vec::new() });
        }
        bench.master_tells(AskPackOrders { id: Tid(0) });
        assert!(texts(&mut bench).contains("AnswerPackOrders { orders: [] }"), "{is_aborted}");
    }
}

#[test]
fn a_chunk_of_a_replication_that_was_given_up_does_not_end_the_next_one() {
    let mut bench = Bench::operating(2, &[vec![(1, UpToDate), (2, OutOfDate)]]);
    let unfinished = AnswerUnfinishedTransactions { max_tid: Tid(50), ttids: Vec::new() };
    // The request was taken from what the node sent when it began to operate.
    bench.tell(bench.master, 2, unfinished);
    let first = bench.source();
    let id = bench.asked("AskFetchTransactions");
    let (next_tid, deleted, completed_pack) = (None, Vec::new(), None);
    bench.tell(first, id, AnswerFetchTransactions { next_tid, deleted, completed_pack });
    let id = bench.asked("AskFetchObjects");
    bench.hold();
    let (next_oid, deleted) = (None, Map::default());
    bench.tell(first, id, AnswerFetchObjects { next_tid, next_oid, deleted });
    bench.node.closed(first);
    bench.work();
    bench.release();
    assert!(!texts(&mut bench).contains("NotifyReplicationDone"));
    // The next one begins anew.
    bench.source();
    bench.asked("AskFetchTransactions");
}
