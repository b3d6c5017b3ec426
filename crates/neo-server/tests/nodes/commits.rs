//! Commits: locks, conflicts, deadlocks, reads between lock and unlock.

use zodium_neo::CellState::UpToDate;
use zodium_neo::messages::*;
use zodium_types::{Oid, Tid};

use crate::support::{Bench, client};

/// A node with a replica, so that votes are durable.
fn replicated_node() -> Bench {
    Bench::operating(1, &[vec![(1, UpToDate), (2, UpToDate)]])
}

fn one_node() -> Bench {
    Bench::operating(1, &[vec![(1, UpToDate)], vec![(1, UpToDate)]])
}

#[test]
fn a_committed_object_can_be_loaded() {
    let mut bench = one_node();
    let one = bench.client(1);
    assert!(bench.load(one, 5).contains("OidDoesNotExist"));
    assert_eq!(
        bench.store(one, 100, 5, 0, b"data"),
        ["AnswerStoreObject(AnswerStoreObject { conflict: None })"]
    );
    bench.commit(one, 100, 102, &[5]);
    let loaded = bench.load(one, 5);
    assert!(loaded.contains("serial: Tid(66)") && loaded.contains("next_serial: None"), "{loaded}");
}

#[test]
fn a_load_finds_the_revision_before_a_tid_and_the_one_after_it() {
    let mut bench = one_node();
    let one = bench.client(1);
    let tids = [102, 202, 302, 402];
    for (index, tid) in tids.into_iter().enumerate() {
        let serial = index.checked_sub(1).map_or(0, |last| tids[last]);
        bench.store(one, tid - 2, 5, serial, b"data");
        bench.commit(one, tid - 2, tid, &[5]);
    }
    for (index, tid) in tids.into_iter().enumerate() {
        let next = tids.get(index + 1).map(|next| Tid(*next));
        let expected = format!("serial: {:?}, next_serial: {next:?}", Tid(tid));
        for (at, before) in [(Some(tid), None), (None, Some(tid + 1)), (None, Some(tid + 100))] {
            let (at, before) = (at.map(Tid), before.map(Tid));
            bench.tell(one, 3, AskObject { oid: Oid(5), at, before });
            let said = bench.take();
            assert!(said[0].1.contains(&expected), "{at:?} {before:?}: {said:?}");
        }
    }
    bench.tell(one, 3, AskObject { oid: Oid(5), at: None, before: Some(Tid(102)) });
    assert!(bench.take()[0].1.contains("OidNotFound"));
}

#[test]
fn an_object_that_was_changed_is_a_conflict() {
    let mut bench = one_node();
    let one = bench.client(1);
    bench.store(one, 100, 5, 0, b"data");
    bench.commit(one, 100, 102, &[5]);
    let answer = bench.store(one, 110, 5, 0, b"other");
    assert_eq!(answer, ["AnswerStoreObject(AnswerStoreObject { conflict: Some(Tid(66)) })"]);
    // The lock is free again.
    assert!(bench.store(one, 120, 5, 102, b"other")[0].contains("None"));
}

#[test]
fn reads_wait_between_lock_and_unlock() {
    let mut bench = one_node();
    let (one, other) = (bench.client(1), bench.client(2));
    bench.store(one, 100, 5, 0, b"data");
    bench.tell(one, 2, AskVoteTransaction { ttid: Tid(100) });
    assert_eq!(bench.names(), ["AnswerVoteTransaction"]);
    let (ttid, tid) = (Tid(100), Tid(102));
    bench.master_tells(AskLockInformation { ttid, tid, pack_approved: false });
    assert_eq!(bench.names(), ["AnswerInformationLocked"]);
    assert_eq!(bench.load(other, 5), "");
    bench.master_tells(NotifyUnlockInformation { ttid });
    assert_eq!(bench.names(), ["AnswerObject"]);
}

#[test]
fn a_younger_transaction_gives_its_lock_back() {
    let mut bench = one_node();
    let (old, young) = (bench.client(1), bench.client(2));
    assert_eq!(bench.store(young, 200, 5, 0, b"young").len(), 1);
    // The older one waits, and the younger one's client is asked.
    let said = bench.store(old, 100, 5, 0, b"old");
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("NotifyDeadlock"), "{said:?}");
    bench.tell(young, 9, AskRelockObject { ttid: Tid(200), oid: Oid(5) });
    let said = bench.take();
    assert_eq!(said.len(), 1);
    assert!(said[0].0 == old && said[0].1.contains("conflict: None"), "{said:?}");
    // When the older one is committed, the younger one learns of it with its own data.
    bench.commit(old, 100, 202, &[5]);
    let said = bench.take();
    assert_eq!(said.len(), 1);
    let expected = "RelockConflict { serial: Tid(0), conflict: Tid(ca), stored: Some(";
    assert!(said[0].0 == young && said[0].1.contains(expected), "{said:?}");
}

#[test]
fn a_voted_transaction_gives_no_lock_back() {
    let mut bench = one_node();
    let (one, other) = (bench.client(1), bench.client(2));
    bench.store(one, 100, 5, 0, b"one");
    bench.tell(one, 2, AskVoteTransaction { ttid: Tid(100) });
    assert_eq!(bench.names(), ["AnswerVoteTransaction"]);
    assert!(bench.store(other, 200, 5, 0, b"other").is_empty());
    bench.tell(one, 9, AskRelockObject { ttid: Tid(100), oid: Oid(5) });
    let said = bench.take();
    assert_eq!(said.len(), 1);
    assert!(said[0].0 == one && said[0].1.contains("conflict: None"), "{said:?}");
}

#[test]
fn a_client_reaches_no_transaction_of_another_one() {
    let (ttid, oid) = (Tid(100), Oid(5));
    let messages: [zodium_neo::Message<'_>; 4] = [
        AskRelockObject { ttid, oid }.into(),
        AskCheckCurrentSerial { ttid, oid, serial: Tid(0) }.into(),
        AskVoteTransaction { ttid }.into(),
        AbortTransaction { ttid, nodes: Vec::new() }.into(),
    ];
    for message in messages {
        let mut bench = one_node();
        let (one, other, waiting) = (bench.client(1), bench.client(2), bench.client(3));
        bench.store(one, 100, 5, 0, b"one");
        assert!(bench.store(waiting, 200, 5, 0, b"waiting").is_empty());
        bench.tell(other, 9, message);
        assert_eq!((bench.names(), bench.closed.pop()), (vec!["Error".to_owned()], Some(other)));
        bench.commit(one, 100, 202, &[5]);
    }
}

#[test]
fn a_younger_transaction_waits_for_an_older_one() {
    let mut bench = one_node();
    let (old, young) = (bench.client(1), bench.client(2));
    bench.store(old, 100, 5, 0, b"old");
    assert!(bench.store(young, 200, 5, 0, b"young").is_empty());
    bench.tell(old, 4, AbortTransaction { ttid: Tid(100), nodes: Vec::new() });
    assert_eq!(bench.names(), ["AnswerStoreObject"]);
}

#[test]
fn the_end_of_a_client_releases_its_locks() {
    let mut bench = one_node();
    let (one, other, one_more) = (bench.client(1), bench.client(2), bench.client(3));
    bench.store(one, 100, 5, 0, b"data");
    bench.node.closed(one);
    bench.work();
    assert!(bench.store(other, 200, 5, 0, b"data")[0].contains("None"));
    // Or hands them on.
    assert!(bench.store(one_more, 300, 5, 0, b"data").is_empty());
    bench.node.closed(other);
    bench.work();
    assert_eq!(bench.names(), ["AnswerStoreObject"]);
}

#[test]
fn a_connection_that_ends_late_does_not_end_what_is_stored_on_the_next_one() {
    let mut bench = one_node();
    let (first, second) = (bench.client(1), bench.client(1));
    bench.store(first, 90, 7, 0, b"on the first");
    bench.store(second, 100, 5, 0, b"data");
    bench.node.closed(first);
    bench.work();
    assert_eq!(bench.node.status().transactions.open, 1);
    bench.commit(second, 100, 102, &[5]);
    assert!(bench.load(second, 5).contains("serial: Tid(66)"));
}

#[test]
fn a_vote_and_a_lock_are_durable_and_an_unlock_need_not_be() {
    let mut bench = replicated_node();
    let one = bench.client(1);
    bench.store(one, 100, 5, 0, b"data");
    let before = bench.durable_writes;
    bench.tell(one, 2, AskVoteTransaction { ttid: Tid(100) });
    assert_eq!(bench.durable_writes, before + 1);
    bench.store(one, 110, 6, 0, b"data");
    bench.commit(one, 110, 112, &[6]);
    assert_eq!(bench.durable_writes, before + 3, "a vote and a lock");
}

#[test]
fn a_vote_outlives_the_connection_of_its_client_and_not_the_client() {
    let mut bench = one_node();
    let (one, other) = (bench.client(1), bench.client(2));
    bench.store(one, 100, 5, 0, b"data");
    bench.tell(one, 2, AskVoteTransaction { ttid: Tid(100) });
    bench.names();
    bench.node.closed(one);
    bench.work();
    assert!(bench.store(other, 200, 5, 0, b"other").is_empty());
    let mut gone = crate::support::information(zodium_neo::NodeType::Client, 1);
    gone.state = zodium_neo::NodeState::Unknown;
    assert_eq!(gone.id, Some(client(1)));
    bench.master_tells(NotifyNodeInformation { timestamp: 11.0, nodes: vec![gone] });
    assert_eq!(bench.names(), ["AnswerStoreObject"]);
}

#[test]
fn a_checked_serial_is_locked() {
    let mut bench = one_node();
    let (one, other) = (bench.client(1), bench.client(2));
    bench.store(one, 100, 5, 0, b"data");
    bench.commit(one, 100, 102, &[5]);
    let check = |serial| AskCheckCurrentSerial { ttid: Tid(110), oid: Oid(5), serial: Tid(serial) };
    bench.tell(one, 5, check(100));
    assert!(bench.take()[0].1.contains("conflict: Some(Tid(66))"));
    bench.tell(one, 5, check(102));
    assert!(bench.take()[0].1.contains("conflict: None"));
    assert!(bench.store(other, 120, 5, 102, b"other").is_empty());
}

#[test]
fn what_was_locked_is_committed_after_a_crash_and_what_was_voted_is_not() {
    let mut bench = replicated_node();
    let one = bench.client(1);
    for (ttid, oid) in [(100, 5), (120, 6)] {
        bench.store(one, ttid, oid, 0, b"data");
        let vote = AskStoreTransaction {
            ttid: Tid(ttid),
            user: b"",
            description: b"",
            extension: b"",
            oids: vec![Oid(oid)],
            pack: None,
        };
        bench.tell(one, 2, vote);
    }
    let (ttid, tid) = (Tid(100), Tid(130));
    bench.master_tells(AskLockInformation { ttid, tid, pack_approved: false });
    bench.names();
    bench.master_tells(StopOperation {});
    bench.master_tells(AskLockedTransactions {});
    let said = bench.take();
    assert!(said[0].1.contains("(Tid(64), Some(Tid(82))), (Tid(78), None)"), "{said:?}");
    bench.master_tells(ValidateTransaction { ttid, tid });
    bench.master_tells(AskLastIDs {});
    let said = bench.take();
    let last = "AnswerLastIDs { last_tid: Some(Tid(82)), last_oid: Some(Oid(5))";
    assert!(said.iter().any(|(_, text)| text.contains(last)), "{said:?}");
    bench.master_tells(StartOperation { backup: false });
    bench.names();
    let one = bench.client(1);
    assert!(bench.load(one, 5).contains("serial: Tid(82)"));
    assert!(bench.load(one, 6).contains("OidDoesNotExist"));
}
