//! Finding the primary master, and losing it.

use std::net::{TcpListener, TcpStream};

use zodium_neo_client::{NeoError, NeoStorage, Options};
use zodium_storage::{Read, StorageError, Write, WriteState};
use zodium_types::{Oid, Tid};

use crate::model::{AtFinish, Model};
use crate::support::{PATIENCE, commit, current, follow, open, options, write};

#[test]
fn other_masters_tell_where_the_primary_one_is() {
    let model = Model::start(1);
    model.commit(&[(1, "a")]);
    let neo = NeoStorage::open(options(&[model.secondary()], 10)).unwrap();
    assert_eq!(current(&neo, 1).as_deref(), Some("a"));
    assert_eq!(neo.write_state(), WriteState::Writable);
}

#[test]
fn a_master_of_which_the_primary_has_told_is_found_when_the_given_one_is_gone() {
    let model = Model::start(1);
    model.commit(&[(1, "a")]);
    // One connection goes through it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (given, master) = (listener.local_addr().unwrap(), model.master);
    std::thread::spawn(move || {
        let (from, _) = listener.accept().unwrap();
        drop(listener);
        let to = TcpStream::connect(master).unwrap();
        let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut back_from, &mut back_to);
            let _ = back_to.shutdown(std::net::Shutdown::Both);
        });
        let _ = std::io::copy(&mut &from, &mut &to);
    });
    let neo = NeoStorage::open(options(&[given], 10)).unwrap();
    let commits = follow(&neo);
    model.lose_clients();
    let missed = model.commit(&[(1, "b")]);
    assert_eq!(commits.recv_timeout(PATIENCE).unwrap().tid, missed);
    assert_eq!(current(&neo, 1).as_deref(), Some("b"));
    assert_eq!(neo.write_state(), WriteState::Writable);
}

#[test]
fn cluster_that_cannot_be_opened_is_explained() {
    let model = Model::start(1);
    let mut wrong = options(&[model.master], 1);
    wrong.cluster = "other".to_owned();
    let error = NeoStorage::open(wrong).err().unwrap().to_string();
    assert!(error.contains("invalid cluster name"), "{error}");
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = NeoStorage::open(options(&[nowhere], 1)).err().unwrap();
    assert!(matches!(error, NeoError::NoPrimary { seconds: 1, .. }), "{error}");
    // A server that does not speak NEO.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::io::Write::write_all(&mut stream.unwrap(), b"HTTP/1.1 400\r\n\r\n").unwrap();
        }
    });
    let error = NeoStorage::open(options(&[address], 1)).err().unwrap().to_string();
    assert!(error.contains("not a greeting of NEO"), "{error}");
}

#[test]
fn commits_that_were_missed_are_told_in_order_and_once() {
    let model = Model::start(1);
    let neo = open(&model);
    let commits = follow(&neo);
    let first = model.commit(&[(1, "a")]);
    assert_eq!(commits.recv_timeout(PATIENCE).unwrap().tid, first);
    let missed = {
        let listening = model.state.lock().objects.len();
        assert_eq!(listening, 1);
        model.lose_clients();
        [model.commit(&[(1, "b")]), model.commit(&[(2, "b")])]
    };
    for tid in missed {
        assert_eq!(commits.recv_timeout(PATIENCE).unwrap().tid, tid);
    }
    let own = commit(&neo, &[write(3, Tid::ZERO, "c")]).unwrap();
    let later = model.commit(&[(3, "d")]);
    assert_eq!(commits.recv_timeout(PATIENCE).unwrap().tid, later);
    assert!(own.tid < later);
    assert_eq!(neo.last_tid(), later);
}

#[test]
fn finish_whose_answer_is_lost_has_its_outcome() {
    let model = Model::start(1);
    let neo = open(&model);
    let commits = follow(&neo);
    model.state.lock().at_finish = AtFinish::CommitAndLeave;
    let committed = commit(&neo, &[write(1, Tid::ZERO, "a")]).unwrap();
    assert_eq!(committed.oids, [Oid(1)]);
    assert_eq!(current(&neo, 1).as_deref(), Some("a"));
    model.state.lock().at_finish = AtFinish::Leave;
    let error = commit(&neo, &[write(2, Tid::ZERO, "b")]).unwrap_err();
    assert!(error.to_string().contains("has not committed"), "{error}");
    assert_eq!(current(&neo, 2), None);
    commit(&neo, &[write(2, Tid::ZERO, "c")]).unwrap();
    assert!(commits.try_recv().is_err(), "own commits are told to their callers");
}

#[test]
fn transaction_of_a_lost_master_is_over() {
    let model = Model::start(1);
    let neo = open(&model);
    let prepared = crate::support::vote(&neo, &[write(1, Tid::ZERO, "a")]).unwrap();
    model.lose_clients();
    model.commit(&[(5, "x")]);
    let (done, outcome) = std::sync::mpsc::channel();
    // The connection's end may not have arrived: the outcome is an error either way.
    let told = Box::new(move |one| done.send(one).unwrap());
    crate::support::shared(&neo).finish(prepared, told);
    let error = outcome.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert!(error.to_string().contains("master"), "{error}");
    // Until the end of the connection has arrived, transactions that begin fail with it.
    let begun = std::time::Instant::now();
    while crate::support::shared(&neo).begin(&Default::default()).is_err() {
        assert!(begun.elapsed() < PATIENCE);
    }
    commit(&neo, &[write(1, Tid::ZERO, "b")]).unwrap();
}

#[test]
fn oids_of_a_lost_master_are_not_used_any_more() {
    let model = Model::start(1);
    let neo = open(&model);
    assert_eq!(neo.new_oids(2), Some(1..=2));
    assert_eq!(neo.new_oids(1), Some(3..=3));
    // The next master knows only what was committed, and may have given more to others.
    model.state.lock().next_oid = 5000;
    model.lose_clients();
    // Until the end of the connection has arrived, those of the lost master are handed out.
    loop {
        let first = *neo.new_oids(1).unwrap().start();
        if first > 5000 {
            break;
        }
        assert!(first < 900, "all of them were used up");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn truncated_cluster_is_not_served_any_more() {
    let model = Model::start(1);
    let neo = open(&model);
    model.commit(&[(1, "a")]);
    commit(&neo, &[write(2, Tid::ZERO, "b")]).unwrap();
    model.state.lock().last_tid = 500;
    model.lose_clients();
    let mut failed = None;
    while failed.is_none() {
        failed = crate::support::text(&neo, 1, Tid::MAX).err();
    }
    let error = failed.unwrap();
    assert!(matches!(error, StorageError::Failed(_)), "{error}");
    assert!(error.to_string().contains("truncated"), "{error}");
    assert_eq!(neo.write_state(), WriteState::Failed);
}

#[test]
fn truncated_cluster_with_later_commits_is_not_served_any_more() {
    let model = Model::start(1);
    let neo = crate::support::open_with_cache(&model);
    let commits = follow(&neo);
    let cut_off = model.commit(&[(1, "a")]);
    assert_eq!(commits.recv_timeout(PATIENCE).unwrap().tid, cut_off);
    assert_eq!(current(&neo, 1).as_deref(), Some("a"));
    {
        let mut state = model.state.lock();
        state.objects.clear();
        state.transactions.clear();
    }
    model.lose_clients();
    model.commit(&[(2, "b")]);
    let mut failed = None;
    let begun = std::time::Instant::now();
    while failed.is_none() {
        failed = crate::support::text(&neo, 1, Tid::MAX).err();
        assert!(begun.elapsed() < PATIENCE, "it shows what was cut off");
    }
    assert!(failed.unwrap().to_string().contains("truncated"));
    assert!(commits.try_recv().is_err());
}

#[test]
fn backup_that_is_behind_what_it_has_shown_is_waited_for() {
    let model = Model::start(1);
    model.state.lock().is_backup = true;
    let last = model.commit(&[(1, "a")]);
    let options = Options { read_only: true, cache_bytes: 0, ..options(&[model.master], 10) };
    let neo = NeoStorage::open(options).unwrap();
    model.state.lock().last_tid = last.0 - 1;
    model.lose_clients();
    std::thread::sleep(std::time::Duration::from_millis(500));
    model.state.lock().last_tid = last.0;
    assert_eq!(current(&neo, 1).as_deref(), Some("a"));
}
