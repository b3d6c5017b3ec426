//! When the rows of a transaction are written: with the vote, or with the lock of a node that
//! decides alone.

use zodium_neo::CellState::{self, Discarded, OutOfDate, UpToDate};
use zodium_neo::messages::*;
use zodium_neo::{Partition, TableId};
use zodium_neo_storage::ConnectionId;
use zodium_types::{Oid, Tid};

use crate::support::{Bench, checksum, storage};

const ALONE: [(u32, CellState); 1] = [(1, UpToDate)];
const ELSEWHERE: [(u32, CellState); 1] = [(2, UpToDate)];
const REPLICATED: [(u32, CellState); 2] = [(1, UpToDate), (2, UpToDate)];
const FILLED: [(u32, CellState); 2] = [(1, UpToDate), (2, OutOfDate)];

/// A node with a client that has stored object 4, of partition 0, in transaction 100, also of
/// partition 0.
fn stored(rows: &[&[(u32, CellState)]]) -> (Bench, ConnectionId) {
    let rows: Vec<_> = rows.iter().map(|row| row.to_vec()).collect();
    let mut bench = Bench::operating(1, &rows);
    let one = bench.client(1);
    bench.store(one, 100, 4, 0, b"data");
    (bench, one)
}

fn vote(bench: &mut Bench, one: ConnectionId, oids: &[u64], pack: Option<PackRequest>) {
    let oids = oids.iter().map(|oid| Oid(*oid)).collect();
    let (user, description, extension): (&[u8], &[u8], &[u8]) = (b"user", b"", b"");
    let ttid = Tid(100);
    bench.tell(one, 2, AskStoreTransaction { ttid, user, description, extension, oids, pack });
}

fn lock(bench: &mut Bench) {
    let (ttid, tid) = (Tid(100), Tid(102));
    bench.master_tells(AskLockInformation { ttid, tid, pack_approved: false });
}

fn unlock(bench: &mut Bench) {
    bench.master_tells(NotifyUnlockInformation { ttid: Tid(100) });
}

/// Changes of the database, and those that are synced, of a vote, a lock and an unlock.
fn writes_of_a_commit(bench: &mut Bench, one: ConnectionId, oids: &[u64]) -> [(u64, u64); 3] {
    let pack = None;
    writes_of(bench, |bench| vote(bench, one, oids, pack))
}

fn writes_of(bench: &mut Bench, vote: impl FnOnce(&mut Bench)) -> [(u64, u64); 3] {
    let mut before = (bench.writes, bench.durable_writes);
    let mut since = |bench: &Bench| {
        let now = (bench.writes, bench.durable_writes);
        let since = (now.0 - before.0, now.1 - before.1);
        before = now;
        since
    };
    vote(bench);
    assert_eq!(bench.names(), ["AnswerStoreTransaction"]);
    let voted = since(bench);
    lock(bench);
    assert_eq!(bench.names(), ["AnswerInformationLocked"]);
    let locked = since(bench);
    unlock(bench);
    [voted, locked, since(bench)]
}

#[test]
fn a_transaction_of_one_node_is_written_once() {
    let (mut bench, one) = stored(&[&ALONE, &ALONE, &ELSEWHERE]);
    bench.store(one, 100, 6, 0, b"");
    assert_eq!(writes_of_a_commit(&mut bench, one, &[4, 6]), [(0, 0), (1, 1), (0, 0)]);
    assert!(bench.load(one, 4).contains("serial: Tid(66)"));
    assert!(bench.load(one, 6).contains("serial: Tid(66)"));
    let counts = bench.node.status().counts;
    assert_eq!((counts.votes, counts.commits, counts.held_commits), (1, 1, 1));
}

#[test]
fn a_node_that_alone_has_the_metadata_writes_once() {
    let once = [(0, 0), (1, 1), (0, 0)];
    for rows in [[&ALONE[..], &ELSEWHERE], [&ALONE, &REPLICATED], [&ALONE, &FILLED]] {
        let (mut bench, one) = stored(&rows);
        assert_eq!(writes_of_a_commit(&mut bench, one, &[4, 5]), once, "{rows:?}");
        assert!(bench.load(one, 4).contains("serial: Tid(66)"));
        assert_eq!(bench.node.status().counts.held_commits, 1);
    }
}

#[test]
fn a_vote_is_durable_when_another_storage_has_the_metadata() {
    for row in [&REPLICATED, &FILLED] {
        let (mut bench, one) = stored(&[&row[..]]);
        assert_eq!(writes_of_a_commit(&mut bench, one, &[4]), [(1, 1), (1, 1), (1, 0)]);
    }
    // Or only they have it: this node does not know the tid until the unlock.
    let (mut bench, one) = stored(&[&ALONE]);
    let before = bench.durable_writes;
    bench.tell(one, 2, AskVoteTransaction { ttid: Tid(100) });
    assert_eq!(bench.durable_writes, before + 1);
}

#[test]
fn an_order_to_pack_is_durable_at_its_vote() {
    let (mut bench, one) = stored(&[&ALONE]);
    let pack = Some(PackRequest { oids: None, tid: Tid(50) });
    let writes = writes_of(&mut bench, |bench| vote(bench, one, &[4], pack));
    assert_eq!(writes, [(1, 1), (1, 1), (1, 0)]);
}

#[test]
fn on_a_disk_that_is_nearly_full_rows_are_written_at_their_vote() {
    let mut bench = Bench::accepted_with_room(1, u64::MAX).operate(&[vec![(1, UpToDate)]]);
    let one = bench.client(1);
    bench.store(one, 100, 4, 0, b"data");
    assert_eq!(writes_of_a_commit(&mut bench, one, &[4]), [(1, 0), (1, 1), (0, 0)]);
}

#[test]
fn an_undo_is_written_at_its_vote() {
    let (mut bench, one) = stored(&[&ALONE]);
    vote(&mut bench, one, &[4], None);
    lock(&mut bench);
    unlock(&mut bench);
    bench.store(one, 110, 4, 102, b"later");
    bench.commit(one, 110, 112, &[4]);
    let undo = AskStoreObject {
        oid: Oid(4),
        serial: Tid(112),
        compression: 0,
        checksum: zodium_neo::Checksum::ZERO,
        data: b"",
        data_serial: Some(Tid(102)),
        ttid: Some(Tid(120)),
    };
    bench.tell(one, 1, undo);
    assert_eq!(bench.names(), ["AnswerStoreObject"]);
    // Another object, which could be held.
    bench.store(one, 120, 6, 0, b"beside");
    let before = bench.writes;
    bench.vote_and_lock(one, 120, 122, &[4, 6]);
    assert_eq!(bench.writes, before + 2);
    bench.master_tells(NotifyUnlockInformation { ttid: Tid(120) });
    let said = bench.load(one, 4);
    assert!(said.contains("data_serial: Some(Tid(66))"), "{said}");
    assert!(said.contains(&format!("{:?}", checksum(b"data"))), "{said}");
}

#[test]
fn no_read_sees_a_commit_before_its_unlock() {
    let (mut bench, one) = stored(&[&ALONE]);
    vote(&mut bench, one, &[4], None);
    lock(&mut bench);
    bench.names();
    assert_eq!(bench.load(one, 4), "");
    bench.tell(one, 3, AskTransactionInformation { tid: Tid(102) });
    let (first, end, partition) = (0, 9, Partition(0));
    bench.tell(one, 3, AskTIDs { first, end, partition });
    assert!(bench.names().is_empty());
    unlock(&mut bench);
    let mut names = bench.names();
    names.sort_unstable();
    assert_eq!(names, ["AnswerObject", "AnswerTIDs", "AnswerTransactionInformation"]);
}

#[test]
fn an_unlock_that_comes_before_the_commit_is_written_waits_for_it() {
    let (mut bench, one) = stored(&[&ALONE]);
    vote(&mut bench, one, &[4], None);
    bench.names();
    bench.hold();
    lock(&mut bench);
    unlock(&mut bench);
    assert_eq!(bench.load(one, 4), "");
    bench.release();
    assert_eq!(bench.names(), ["AnswerInformationLocked", "AnswerObject"]);
    assert!(bench.load(one, 4).contains("serial: Tid(66)"));
}

/// What the master is told after a crash: of locked transactions, and the last transaction.
fn told_after_a_crash(bench: &mut Bench) -> (String, String) {
    bench.master_tells(StopOperation {});
    bench.master_tells(AskLockedTransactions {});
    bench.master_tells(AskLastIDs {});
    bench.master_tells(AskFinalTID { ttid: Tid(100) });
    let said: Vec<_> = bench.take().into_iter().map(|(_, text)| text).collect();
    let find = |name: &str| said.iter().find(|text| text.starts_with(name)).unwrap().clone();
    assert!(find("AnswerLockedTransactions").contains("Map([])"), "{said:?}");
    (find("AnswerLastIDs"), find("AnswerFinalTID"))
}

#[test]
fn a_transaction_that_is_not_locked_is_not_committed_by_a_crash() {
    let (mut bench, one) = stored(&[&ALONE]);
    vote(&mut bench, one, &[4], None);
    bench.names();
    let (last, outcome) = told_after_a_crash(&mut bench);
    assert!(last.contains("last_tid: None") && outcome.contains("tid: None"), "{last} {outcome}");
    bench.master_tells(StartOperation { backup: false });
    bench.names();
    let one = bench.client(1);
    assert!(bench.load(one, 4).contains("OidDoesNotExist"));
    let orphans = bench.database.write(false, |database| database.prune_orphans(true));
    assert_eq!(orphans.unwrap(), 0);
}

#[test]
fn a_transaction_that_is_locked_is_committed_whatever_follows() {
    let (mut bench, one) = stored(&[&ALONE]);
    vote(&mut bench, one, &[4], None);
    lock(&mut bench);
    bench.names();
    let (last, outcome) = told_after_a_crash(&mut bench);
    assert!(last.contains("last_tid: Some(Tid(66))"), "{last}");
    assert!(outcome.contains("tid: Some(Tid(66))"), "{outcome}");
    bench.master_tells(StartOperation { backup: false });
    bench.names();
    let one = bench.client(1);
    assert!(bench.load(one, 4).contains("serial: Tid(66)"));
}

#[test]
fn an_abort_of_what_is_only_in_memory_leaves_nothing() {
    let (mut bench, one) = stored(&[&ALONE]);
    vote(&mut bench, one, &[4], None);
    bench.names();
    assert_eq!(bench.node.status().unvoted_bytes, 4);
    let before = bench.writes;
    bench.tell(one, 4, AbortTransaction { ttid: Tid(100), nodes: Vec::new() });
    assert_eq!((bench.writes, bench.node.status().unvoted_bytes), (before, 0));
    assert!(bench.store(one, 110, 4, 0, b"next")[0].contains("None"));
}

#[test]
fn rows_of_a_cell_that_is_taken_away_before_the_lock_are_not_written() {
    let (mut bench, one) = stored(&[&ALONE, &ALONE]);
    bench.store(one, 100, 5, 0, b"other");
    vote(&mut bench, one, &[4, 5], None);
    let change = CellChange { partition: Partition(1), node: storage(1), state: Discarded };
    let other = CellChange { node: storage(2), state: UpToDate, ..change };
    let changes = vec![other, change];
    bench.master_tells(NotifyPartitionChanges { table: TableId(2), replicas: 0, changes });
    lock(&mut bench);
    unlock(&mut bench);
    bench.names();
    assert!(bench.load(one, 4).contains("serial: Tid(66)"));
    let found = bench.database.read(|database| database.load(Oid(5), None, None));
    assert_eq!(found.unwrap().unwrap(), zodium_neo_storage::Loaded::Never);
    let orphans = bench.database.write(false, |database| database.prune_orphans(true));
    assert_eq!(orphans.unwrap(), 0);
}

#[test]
fn a_node_that_lacks_data_does_not_say_that_it_has_locked() {
    // The other storage has all data. It may have lost the transaction before its own lock.
    for (state, expected) in [(UpToDate, "Some(Tid(66))"), (OutOfDate, "None")] {
        let (mut bench, one) = stored(&[&[(1, state), (2, UpToDate)]]);
        vote(&mut bench, one, &[4], None);
        lock(&mut bench);
        bench.names();
        bench.master_tells(StopOperation {});
        bench.master_tells(AskLockedTransactions {});
        let said = bench.take();
        assert!(said[0].1.contains(&format!("(Tid(64), {expected})")), "{said:?}");
    }
}
