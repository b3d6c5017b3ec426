//! Commits: their order, and storages and clients that leave meanwhile.

use zodium_neo::messages::*;
use zodium_neo::{ErrorCode, Map, Message};
use zodium_types::{Oid, Tid};

use crate::support::*;

/// What a client was answered: ttid and tid of a commit.
fn finished(bench: &mut Bench, client: zodium_neo::ConnectionId) -> (Tid, Tid) {
    bench.take_with(client, "AnswerTransactionFinished", |message| match message {
        Message::AnswerTransactionFinished(answer) => (answer.ttid, answer.tid),
        _ => unreachable!(),
    })
}

#[test]
fn a_commit_is_answered_when_all_storages_have_locked_it() {
    let (mut bench, storages) = Bench::running(2);
    let (client, other) = (bench.client(), bench.client());
    bench.forget_sent();
    let ttid = bench.begin(client);
    bench.finish(client, ttid);
    bench.answer(storages[0], "AskLockInformation", AnswerInformationLocked { ttid });
    assert_eq!(bench.names(client), [""; 0]);
    bench.answer(storages[1], "AskLockInformation", AnswerInformationLocked { ttid });
    let (committed, tid) = finished(&mut bench, client);
    assert!(committed == ttid && tid > ttid && tid.0 % 2 == ttid.0 % 2);
    assert_eq!(bench.names(other), ["InvalidateObjects"]);
    assert_eq!(bench.names(storages[0]), ["NotifyUnlockInformation"]);
    assert_eq!(bench.master.status().last_tid, tid);
}

#[test]
fn commits_are_answered_in_the_order_of_their_tids() {
    let (mut bench, storages) = Bench::running(1);
    let (one, other) = (bench.client(), bench.client());
    let (first, second) = (bench.begin(one), bench.begin(other));
    // The order of the finishes counts, not that of the begins.
    bench.finish(other, second);
    bench.finish(one, first);
    bench.tell(storages[0], 99, AnswerInformationLocked { ttid: first });
    assert_eq!(bench.names(one), [""; 0]);
    bench.tell(storages[0], 99, AnswerInformationLocked { ttid: second });
    let (earlier, later) = (finished(&mut bench, other), finished(&mut bench, one));
    assert!(earlier.1 < later.1);
}

#[test]
fn cells_of_a_lost_storage_are_out_of_date_before_a_commit_without_it_is_answered() {
    let (mut bench, storages) = Bench::running(2);
    let client = bench.client();
    let ttid = bench.begin(client);
    bench.finish(client, ttid);
    bench.tell(storages[0], 99, AnswerInformationLocked { ttid });
    bench.forget_sent();
    bench.lose(storages[1]);
    let changes = ["NotifyNodeInformation", "NotifyPartitionChanges"];
    assert_eq!(bench.names(client), changes);
    // Without it, a start with the old table would not know of the commit.
    bench.answer(storages[0], "Ping", Pong {});
    assert_eq!(bench.names(client)[2..], ["AnswerTransactionFinished"]);
}

#[test]
fn nothing_is_committed_without_the_only_storage() {
    let (mut bench, storages) = Bench::running(1);
    let client = bench.client();
    let ttid = bench.begin(client);
    bench.finish(client, ttid);
    bench.forget_sent();
    bench.lose(storages[0]);
    let told = bench.names(client);
    assert!(told.contains(&"StopOperation") && !told.contains(&"AnswerTransactionFinished"));
    assert!(bench.closed.contains(&client));
}

#[test]
fn a_transaction_of_a_client_that_left_is_committed_if_it_had_asked_for_that() {
    let (mut bench, storages) = Bench::running(1);
    let (one, other) = (bench.client(), bench.client());
    let (finishing, open) = (bench.begin(one), bench.begin(one));
    bench.finish(one, finishing);
    bench.lose(one);
    // It comes back, and asks what became of them.
    bench.tell(other, 7, AskFinalTID { ttid: open });
    let outcome = bench.take_with(other, "AnswerFinalTID", |message| match message {
        Message::AnswerFinalTID(answer) => answer.tid,
        _ => unreachable!(),
    });
    assert_eq!(outcome, None);
    bench.tell(other, 8, AskFinalTID { ttid: finishing });
    assert!(!bench.names(other).contains(&"AnswerFinalTID"));
    bench.tell(storages[0], 99, AnswerInformationLocked { ttid: finishing });
    assert!(bench.names(other).contains(&"AnswerFinalTID"));
    // Of committed ones storages know.
    bench.forget_sent();
    bench.tell(other, 9, AskFinalTID { ttid: finishing });
    let outcome = bench.take_with(other, "AnswerFinalTID", |message| match message {
        Message::AnswerFinalTID(answer) => answer.tid,
        _ => unreachable!(),
    });
    assert_eq!(outcome, Some(Tid::MAX));
}

#[test]
fn a_vote_without_a_needed_storage_is_refused() {
    let (mut bench, _) = Bench::running(2);
    let client = bench.client();
    let ttid = bench.begin(client);
    let mut vote = |failed: Vec<u32>| {
        let failed = failed.into_iter().map(storage).collect();
        bench.tell(client, 5, FailedVote { ttid, failed });
        bench.take_with(client, "Error", |message| match message {
            Message::Error(error) => error.code,
            _ => unreachable!(),
        })
    };
    assert_eq!(vote(vec![1, 2]), ErrorCode::IncompleteTransaction);
    assert_eq!(vote(vec![2]), ErrorCode::Ack);
    // The storage that misses stores is cut off, and the commit needs the other one only.
    bench.finish(client, ttid);
    assert_eq!(bench.closed.len(), 1);
    assert_eq!(bench.master.status().storages_down, 1);
}

#[test]
fn transactions_wait_while_a_storage_starts() {
    let (mut bench, storages) = Bench::running(2);
    let client = bench.client();
    bench.lose(storages[1]);
    let back = bench.storage(2);
    bench.tell(client, 1, AskBeginTransaction { tid: None });
    assert!(!bench.names(client).contains(&"AnswerBeginTransaction"));
    assert_eq!(bench.master.status().storages_starting, [storage(2)]);
    bench.tell(back, 99, NotifyReady {});
    assert_eq!(bench.master.status().storages_starting, []);
    assert!(bench.names(client).contains(&"AnswerBeginTransaction"));
}

#[test]
fn the_first_oids_are_none_that_clients_may_have_of_an_earlier_master() {
    let (mut bench, _) = Bench::running(1);
    let client = bench.client();
    let mut take = |count| {
        bench.tell(client, 1, AskNewOIDs { count });
        bench.take_with(client, "AnswerNewOIDs", |message| match message {
            Message::AnswerNewOIDs(answer) => answer.oids.clone(),
            _ => unreachable!(),
        })
    };
    let [first, second] = take(2)[..] else { panic!("it gave another number of oids") };
    // The storages have answered that the last one of the database is 50.
    assert_eq!((first, second), (Oid(51 + (1 << 20)), Oid(52 + (1 << 20))));
    assert_eq!(take(1), [Oid(53 + (1 << 20))]);
}

#[test]
fn a_client_brings_no_tid_that_leaves_few_later_ones() {
    for (tid, name) in [(3 << 61, "AnswerBeginTransaction"), ((3 << 61) + 1, "Error")] {
        let (mut bench, _) = Bench::running(1);
        let client = bench.client();
        bench.tell(client, 1, AskBeginTransaction { tid: Some(Tid(tid)) });
        assert_eq!(bench.names(client), [name]);
    }
}

#[test]
fn a_client_commits_no_oid_that_leaves_few_later_ones() {
    for (oid, is_closed) in [(3 << 61, false), ((3 << 61) + 1, true), (u64::MAX, true)] {
        let (mut bench, _) = Bench::running(1);
        let client = bench.client();
        let ttid = bench.begin(client);
        let (oids, deleted, checked) = (vec![Oid(oid)], Vec::new(), Vec::new());
        bench.tell(client, 2, AskFinishTransaction { ttid, oids, deleted, checked, pack: None });
        assert_eq!(bench.closed.contains(&client), is_closed, "{oid}");
    }
}

#[test]
fn a_master_gives_no_oids_beyond_the_range() {
    let mut bench = Bench::new(settings(101));
    let storages = bench.verifying(1);
    let transactions = Map::default();
    bench.answer(storages[0], "AskLockedTransactions", AnswerLockedTransactions { transactions });
    let last = (1 << 63) - 1 - (1 << 20) - 5;
    bench.serve_after(&storages, Oid(last));
    let client = bench.client();
    for (count, name) in [(6, "Error"), (5, "AnswerNewOIDs"), (1, "Error")] {
        bench.tell(client, 1, AskNewOIDs { count });
        bench.take(client, name);
    }
    assert!(!bench.closed.contains(&client));
}
