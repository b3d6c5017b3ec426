//! Large transactions: their data move to a spool until the vote.

use zodium_neo::CellState::UpToDate;
use zodium_neo::messages::*;
use zodium_neo_storage::{ConnectionId, Loaded, TRANSACTION_BYTES_MAX};
use zodium_types::{Oid, Tid};

use crate::support::{Bench, each_packet};

const OBJECT_BYTES: usize = 512 << 10;
/// Objects that are more than fit into memory.
const MANY: u64 = (TRANSACTION_BYTES_MAX / OBJECT_BYTES) as u64 + 1;
const ONE_STORED: [&str; 1] = ["AnswerStoreObject(AnswerStoreObject { conflict: None })"];

fn one_node() -> Bench {
    Bench::operating(1, &[vec![(1, UpToDate)]])
}

/// Data like no others.
fn data(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(OBJECT_BYTES / 8)
}

fn store_many(bench: &mut Bench, one: ConnectionId, ttid: u64) {
    for oid in 1..=MANY {
        assert_eq!(bench.store(one, ttid, oid, 0, &data(oid)), ONE_STORED);
    }
}

fn loaded(bench: &Bench, oid: u64) -> Option<Vec<u8>> {
    let found = bench.database.read(|database| database.load(Oid(oid), None, None));
    match found.unwrap().unwrap() {
        Loaded::Found(record) => record.data.map(|data| data.bytes),
        Loaded::NotThen | Loaded::Never => None,
    }
}

#[test]
fn data_of_a_large_transaction_are_not_in_memory_and_are_committed() {
    let mut bench = one_node();
    let one = bench.client(1);
    let count = 5 * MANY;
    for oid in 1..=count {
        assert_eq!(bench.store(one, 100, oid, 0, &data(oid)), ONE_STORED);
        let bytes = bench.node.status().unvoted_bytes as usize;
        assert!(bytes <= TRANSACTION_BYTES_MAX, "{bytes} bytes after object {oid}");
        assert_eq!(bench.spools(), usize::from(oid >= MANY));
    }
    // What is stored again counts, wherever the data from before are.
    for oid in [1, count] {
        assert_eq!(bench.store(one, 100, oid, 0, &data(1_000 + oid)), ONE_STORED);
    }
    bench.commit(one, 100, 102, &(1..=count).collect::<Vec<_>>());
    assert_eq!((bench.spools(), bench.node.status().unvoted_bytes), (0, 0));
    for oid in 1..=count {
        let number = if [1, count].contains(&oid) { 1_000 + oid } else { oid };
        assert!(loaded(&bench, oid) == Some(data(number)), "object {oid}");
    }
}

/// A node with a transaction whose data are being moved, and a store that waits for that.
fn moving() -> (Bench, ConnectionId) {
    let mut bench = one_node();
    let one = bench.client(1);
    for oid in 1..MANY {
        bench.store(one, 100, oid, 0, &data(oid));
    }
    bench.hold();
    // Object 1 is locked already, so the database need not be asked.
    assert_eq!(bench.store(one, 100, 1, 0, &data(77)), ONE_STORED);
    assert!(bench.node.status().unvoted_bytes as usize > TRANSACTION_BYTES_MAX);
    assert!(bench.store(one, 100, 2, 0, &data(78)).is_empty());
    (bench, one)
}

#[test]
fn a_store_waits_while_data_of_its_transaction_move() {
    let (mut bench, one) = moving();
    bench.release();
    assert_eq!(bench.names(), ["AnswerStoreObject"]);
    assert_eq!(bench.node.status().unvoted_bytes as usize, OBJECT_BYTES);
    bench.commit(one, 100, 102, &(1..MANY).collect::<Vec<_>>());
    let expected = [(1, 77), (2, 78), (3, 3)];
    assert!(expected.into_iter().all(|(oid, number)| loaded(&bench, oid) == Some(data(number))));
}

#[test]
fn a_store_that_waits_for_a_move_is_answered_when_its_transaction_is_given_up() {
    let (mut bench, one) = moving();
    bench.tell(one, 4, AbortTransaction { ttid: Tid(100), nodes: Vec::new() });
    assert_eq!(bench.names(), ["AnswerStoreObject"]);
    // The next transaction may have the same ttid. What was moved is not its own.
    bench.store(one, 100, 1, 0, b"later");
    bench.release();
    assert_eq!(bench.names(), ["AnswerStoreObject"]);
    assert_eq!((bench.spools(), bench.node.status().unvoted_bytes), (0, 5));
}

#[test]
fn a_vote_that_would_leave_a_waiting_store_out_is_refused() {
    let (mut bench, one) = moving();
    bench.tell(one, 2, AskVoteTransaction { ttid: Tid(100) });
    assert!(bench.take()[0].1.contains("cannot be voted now"));
    bench.release();
    assert_eq!((bench.spools(), bench.node.status().unvoted_bytes), (0, 0));
}

#[test]
fn a_vote_does_not_wait_for_a_move() {
    let mut bench = one_node();
    let one = bench.client(1);
    for oid in 1..MANY {
        bench.store(one, 100, oid, 0, &data(oid));
    }
    bench.hold();
    assert_eq!(bench.store(one, 100, 1, 0, &data(77)), ONE_STORED);
    bench.tell(one, 2, AskVoteTransaction { ttid: Tid(100) });
    bench.release();
    assert_eq!(bench.names(), ["AnswerVoteTransaction"]);
    let (ttid, tid) = (Tid(100), Tid(102));
    bench.master_tells(AskLockInformation { ttid, tid, pack_approved: false });
    bench.master_tells(NotifyUnlockInformation { ttid });
    assert!(loaded(&bench, 1) == Some(data(77)) && loaded(&bench, 2) == Some(data(2)));
    assert_eq!(bench.spools(), 0);
}

#[test]
fn an_abort_and_the_end_of_the_node_leave_no_spool_and_no_row() {
    let mut bench = one_node();
    let one = bench.client(1);
    store_many(&mut bench, one, 100);
    assert_eq!((bench.spools(), bench.files().len()), (1, 3), "{:?}", bench.files());
    bench.tell(one, 4, AbortTransaction { ttid: Tid(100), nodes: Vec::new() });
    assert_eq!(bench.spools(), 0);
    store_many(&mut bench, one, 110);
    // A spool has no name: nothing of it is left when the process ends.
    assert_eq!((bench.spools(), bench.files().len()), (1, 3), "{:?}", bench.files());
    let unfinished = bench.database.write(false, |database| database.unfinished());
    assert!(unfinished.unwrap().is_empty());
    let orphans = bench.database.write(false, |database| database.prune_orphans(true));
    assert_eq!(orphans.unwrap(), 0);
    bench.node.closed(bench.master);
    bench.work();
    assert_eq!(bench.spools(), 0);
}

#[test]
fn a_conflict_after_a_relock_has_the_data_from_the_spool() {
    let mut bench = one_node();
    let (old, young) = (bench.client(1), bench.client(2));
    store_many(&mut bench, young, 200);
    assert_eq!(bench.spools(), 1);
    bench.store(old, 100, 1, 0, b"old");
    bench.tell(young, 9, AskRelockObject { ttid: Tid(200), oid: Oid(1) });
    bench.names();
    bench.tell(old, 2, AskVoteTransaction { ttid: Tid(100) });
    let (ttid, tid) = (Tid(100), Tid(202));
    bench.master_tells(AskLockInformation { ttid, tid, pack_approved: false });
    bench.names();
    bench.master_tells(NotifyUnlockInformation { ttid });
    let mut told = Vec::new();
    for (_, bytes) in bench.take_sent() {
        each_packet(&bytes, |packet| {
            if let zodium_neo::Message::AnswerRelockObject(answer) = packet.message {
                let conflict = answer.conflict.unwrap();
                told.push((conflict.conflict, conflict.stored.unwrap().data == data(1)));
            }
        });
    }
    assert_eq!(told, [(tid, true)]);
}

#[test]
fn a_spool_that_fails_ends_the_transaction_and_not_the_node() {
    let mut bench = one_node();
    let (one, other) = (bench.client(1), bench.client(2));
    bench.store(one, 100, 1, 0, &data(1));
    // The database is open by now, and goes on.
    bench.remove_folder();
    for oid in 2..=MANY {
        bench.store(one, 100, oid, 0, &data(oid));
    }
    assert_eq!(bench.closed, [one]);
    assert_eq!(bench.node.status().transactions.open, 0);
    assert_eq!(bench.store(other, 200, 1, 0, b"other"), ONE_STORED);
}
