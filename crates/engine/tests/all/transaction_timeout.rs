//! Only a transaction that holds its locks for too long is reported to its mailbox.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{CONFIG, Outcome, Session, assert_idle, start_with, transaction};
use bytes::Bytes;
use zodium_disk::{FaultyDisk, ManualClock, MemoryDisk, Operation};
use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Config, Database, Notice, Transaction, VoteStart};
use zodium_types::{Oid, Tid};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Real time in which a report would come that must not come.
const WHILE: Duration = Duration::from_millis(350);
/// Real time in which a report comes that must come, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn voted_transaction_is_reported_when_its_time_is_over_and_not_before() {
    let (clock, storage) = timed(MemoryDisk::new());
    let mut session = Session::new(&storage);
    let (number, voted) = session.vote(store(1));
    clock.advance(TIMEOUT);
    assert_eq!(expired(&mut session, WHILE), None);
    clock.advance(Duration::from_millis(1));
    assert_eq!(expired(&mut session, PATIENCE), Some(number));
    storage.abort(number, Some(voted));
    while session.poll().is_some() {}
    assert_eq!(expired(&mut session, WHILE), None);
    storage.close().unwrap();
    assert_idle(&storage);
}

#[test]
fn time_counts_from_the_check_and_only_for_those_that_hold() {
    let (clock, storage) = timed(MemoryDisk::new());
    let mut holder = Session::new(&storage);
    let mut waiter = Session::new(&storage);
    let (held, voted) = holder.vote(store(1));
    let wanting = store(1);
    let (waiting, start) = waiter.begin(&wanting).unwrap();
    assert_eq!(start, VoteStart::Waiting);
    clock.advance(TIMEOUT * 2);
    assert_eq!(expired(&mut holder, PATIENCE), Some(held));
    assert_eq!(expired(&mut waiter, WHILE), None);
    storage.abort(held, Some(voted));
    waiter.wait_granted(waiting);
    clock.advance(TIMEOUT * 2);
    assert_eq!(expired(&mut waiter, WHILE), None, "the server has not checked it yet");
    let Ok(Outcome::Voted(_, voted)) = waiter.check(waiting, &wanting) else {
        panic!("the object is new")
    };
    clock.advance(TIMEOUT);
    assert_eq!(expired(&mut waiter, WHILE), None);
    clock.advance(Duration::from_secs(1));
    assert_eq!(expired(&mut waiter, PATIENCE), Some(waiting));
    storage.abort(waiting, Some(voted));
    storage.close().unwrap();
    assert_idle(&storage);
}

#[test]
fn transaction_whose_client_resolves_conflicts_is_reported_too() {
    let (clock, storage) = timed(MemoryDisk::new());
    let mut session = Session::new(&storage);
    session.commit(store(1));
    let Ok(Outcome::Conflicts(number, _)) = session.try_vote(&mut store(1)) else {
        panic!("the object was created before")
    };
    clock.advance(TIMEOUT * 2);
    assert_eq!(expired(&mut session, PATIENCE), Some(number));
    storage.abort(number, None);
    storage.close().unwrap();
    assert_idle(&storage);
}

#[test]
fn slow_disk_is_not_the_clients_fault() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let (clock, storage) = timed(disk.clone());
    let mut session = Session::new(&storage);
    let (go_on, held_up) = mpsc::channel();
    disk.before_next(Operation::Sync, move || held_up.recv().unwrap());
    let (number, voted) = session.vote(store(1));
    storage.finish(number, voted).unwrap();
    while storage.commit_status().writing == 0 {
        thread::yield_now();
    }
    clock.advance(TIMEOUT * 2);
    go_on.send(()).unwrap();
    let notice = session.next();
    assert!(notice.tid_of(number).is_some(), "{notice:?}");
    assert_eq!(expired(&mut session, WHILE), None);
    storage.close().unwrap();
}

#[test]
fn clock_that_goes_back_or_far_ahead_gives_later_tids_all_the_same() {
    let (clock, storage) = timed(MemoryDisk::new());
    let mut session = Session::new(&storage);
    let now = 1_800_000_000_000_000_000;
    let mut last = Tid::ZERO;
    for (oid, nanos) in
        [now, now - 3_600_000_000_000, 0, now, now * 10, now, u64::MAX, 0].into_iter().enumerate()
    {
        clock.set_unix_nanos(nanos);
        let tid = session.commit(store(oid as u64));
        assert!(tid > last, "{tid} after {last}");
        last = tid;
    }
    storage.close().unwrap();
}

fn timed(disk: impl zodium_disk::Disk + 'static) -> (Arc<ManualClock>, Arc<Database>) {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000_000_000));
    let config = Config { transaction_timeout: Some(TIMEOUT), ..CONFIG };
    let storage = start_with(disk, Arc::clone(&clock) as _, &config);
    (clock, storage)
}

fn store(oid: u64) -> Transaction {
    let mut transaction = transaction();
    transaction.store(Oid(oid), Tid::ZERO, Bytes::from_static(b"new"));
    transaction
}

/// The first transaction that is reported, if one is within this time.
fn expired(session: &mut Session, limit: Duration) -> Option<TransactionNumber> {
    let started = Instant::now();
    while started.elapsed() < limit {
        match session.poll() {
            Some(Notice::Expired(number)) => return Some(number),
            Some(_) => {}
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
    None
}
