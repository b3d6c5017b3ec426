//! Transactions whose end this node hears of early, late, or not at all.

use zodium_neo::CellState::{Discarded, OutOfDate, UpToDate};
use zodium_neo::messages::*;
use zodium_neo::{Checksum, Partition, TableId};
use zodium_neo_storage::ConnectionId;
use zodium_types::{Oid, Tid};

use crate::support::{Bench, storage, table};

const HERE: Partition = Partition(1);

fn two_cells() -> Bench {
    Bench::operating(1, &[vec![(1, UpToDate)], vec![(1, UpToDate)]])
}

fn vote(bench: &mut Bench, one: ConnectionId, ttid: u64) {
    let (user, description, extension): (&[u8], &[u8], &[u8]) = (b"user", b"", b"");
    let (ttid, oids, pack) = (Tid(ttid), vec![Oid(5)], None);
    bench.tell(one, 2, AskStoreTransaction { ttid, user, description, extension, oids, pack });
    assert_eq!(bench.names(), ["AnswerStoreTransaction"]);
}

fn unfinished(bench: &Bench) -> usize {
    bench.database.write(false, |database| database.unfinished()).unwrap().len()
}

/// A client stores object 5 and votes, and its connection ends. Whether the object is free then.
fn is_free_after(bench: &mut Bench) -> bool {
    let one = bench.client(1);
    bench.store(one, 101, 5, 0, b"data");
    vote(bench, one, 101);
    bench.node.closed(one);
    bench.work();
    let two = bench.client(2);
    !bench.store(two, 110, 5, 0, b"other").is_empty()
}

#[test]
fn what_is_voted_after_its_end_goes_with_the_connection() {
    let ttid = Tid(101);
    assert!(!is_free_after(&mut two_cells()), "the client may finish it");
    let mut aborted = two_cells();
    aborted.master_tells(AbortTransaction { ttid, nodes: Vec::new() });
    assert!(is_free_after(&mut aborted));
    let mut finished = two_cells();
    finished.master_tells(NotifyTransactionFinished { ttid, max_tid: Tid(102) });
    assert!(is_free_after(&mut finished));
}

#[test]
fn what_ended_elsewhere_is_dropped_when_the_master_tells_what_is_in_progress() {
    for ttids in [vec![], vec![Tid(101)]] {
        let mut bench = Bench::operating(1, &[vec![(2, UpToDate)], vec![(1, UpToDate)]]);
        let one = bench.client(1);
        bench.store(one, 101, 5, 0, b"data");
        let change = |number, node, state| {
            let changes = vec![CellChange { partition: HERE, node: storage(node), state }];
            NotifyPartitionChanges { table: TableId(number), replicas: 0, changes }
        };
        bench.master_tells(change(2, 2, UpToDate));
        bench.master_tells(change(3, 1, Discarded));
        bench.master_tells(change(4, 1, OutOfDate));
        let id = bench.asked("AskUnfinishedTransactions");
        vote(&mut bench, one, 101);
        assert_eq!(unfinished(&bench), 1);
        let left = ttids.len();
        bench.tell(bench.master, id, AnswerUnfinishedTransactions { max_tid: Tid(100), ttids });
        assert_eq!(unfinished(&bench), left);
    }
}

#[test]
fn what_ended_before_the_master_told_what_is_in_progress_is_dropped() {
    let rows = [vec![(2, UpToDate)], vec![(1, UpToDate), (2, OutOfDate)]];
    for (max_tid, ttids, left) in [(103, vec![], 0), (103, vec![Tid(101)], 1), (99, vec![], 1)] {
        let mut bench = Bench::operating(2, &rows);
        let one = bench.client(1);
        bench.store(one, 101, 5, 0, b"data");
        vote(&mut bench, one, 101);
        let max_tid = Tid(max_tid);
        // The request was taken from what the node sent when it began to operate.
        bench.tell(bench.master, 2, AnswerUnfinishedTransactions { max_tid, ttids });
        assert_eq!(unfinished(&bench), left, "{max_tid}");
    }
}

#[test]
fn a_truncation_that_a_node_was_away_for_is_made_up_for() {
    let mut bench = two_cells();
    let one = bench.client(1);
    for (ttid, serial) in [(101, 0), (111, 103)] {
        bench.store(one, ttid, 5, serial, b"data");
        bench.commit(one, ttid, ttid + 2, &[5]);
    }
    bench.master_tells(StopOperation {});
    bench.master_tells(Truncate { tid: Tid(105) });
    // The others have been truncated, and run already.
    bench.master_tells(table(&vec![vec![(1, OutOfDate), (2, UpToDate)]; 2]));
    bench.master_tells(StartOperation { backup: false });
    bench.names();
    let (pending, cells) = bench
        .database
        .write(false, |database| Ok((database.pending()?, database.cells(storage(1))?)))
        .unwrap();
    assert_eq!(pending, (None, None));
    assert!(cells.iter().all(|cell| cell.replicated <= Some(Tid(105))), "{cells:?}");
    let records = bench.database.read(|reads| reads.records(HERE, (Tid(0), Tid::MAX), Oid(0), 9));
    assert_eq!(records.unwrap().unwrap(), [(Tid(103), Oid(5))]);
}

#[test]
fn an_object_that_was_committed_lately_is_compared_without_the_database() {
    let mut bench = two_cells();
    let one = bench.client(1);
    bench.store(one, 101, 5, 0, b"data");
    bench.commit(one, 101, 103, &[5]);
    bench.hold_reads();
    let said = bench.store(one, 111, 5, 0, b"outdated");
    assert!(said[0].contains("conflict: Some(Tid(67))"), "{said:?}");
    let (checksum, data, data_serial) = (Checksum::ZERO, &b""[..], None);
    let (serial, compression, ttid) = (Tid(103), 0, Some(Tid(111)));
    let oid = Oid(5);
    let deletion = AskStoreObject { oid, serial, compression, checksum, data, data_serial, ttid };
    bench.tell(one, 1, deletion);
    assert!(bench.take()[0].1.contains("conflict: None"));
    bench.commit(one, 111, 113, &[5]);
    // A pack may have removed the deletion.
    assert!(bench.store(one, 121, 5, 113, b"again").is_empty());
}

#[test]
fn what_a_replication_brings_is_compared() {
    let mut bench =
        Bench::operating(2, &[vec![(2, UpToDate)], vec![(1, UpToDate), (2, OutOfDate)]]);
    let one = bench.client(1);
    bench.store(one, 100, 5, 0, b"data");
    bench.vote_and_lock(one, 100, 102, &[5]);
    bench.master_tells(NotifyUnlockInformation { ttid: Tid(100) });
    bench.tell(bench.master, 2, AnswerUnfinishedTransactions { max_tid: Tid(110), ttids: vec![] });
    let source = bench.source();
    let id = bench.asked("AskFetchTransactions");
    let (next_tid, deleted, completed_pack) = (None, Vec::new(), Some(Tid(0)));
    bench.tell(source, id, AnswerFetchTransactions { next_tid, deleted, completed_pack });
    let id = bench.asked("AskFetchObjects");
    let (oid, serial, data) = (Oid(5), Tid(110), &b"later"[..]);
    let (compression, checksum, data_serial) = (0, crate::support::checksum(data), None);
    let record = AddObject { oid, serial, compression, checksum, data, data_serial };
    bench.tell(source, id, record);
    let (next_oid, deleted) = (None, Default::default());
    bench.tell(source, id, AnswerFetchObjects { next_tid, next_oid, deleted });
    assert!(bench.names().contains(&"NotifyReplicationDone".to_owned()));
    let said = bench.store(one, 120, 5, 110, b"next");
    assert!(said[0].contains("conflict: None"), "{said:?}");
}
