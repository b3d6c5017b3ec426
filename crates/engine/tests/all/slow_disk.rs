//! A disk whose syncs take very long: readers are not delayed, committers wait without expiring,
//! and the number of waiting requests is bounded by the number of committers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{CONFIG, Session, assert_idle, start, start_with, transaction};
use bytes::Bytes;
use zodium_disk::{FaultyDisk, MemoryDisk, Operation, SystemClock};
use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Config, Database, Notice, Transaction};
use zodium_storage::{Access, Load};
use zodium_types::{Oid, Tid};

/// How long a sync takes: several times the transaction timeout.
const SYNC: Duration = Duration::from_millis(2500);
/// A writer may have to wait for the processor between its vote and its finish.
const TIMEOUT: Duration = Duration::from_millis(1000);
const WRITERS: u64 = 16;

#[test]
fn reads_do_not_wait_for_slow_syncs_and_nobody_is_given_up_for_them() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let config = Config { transaction_timeout: Some(TIMEOUT), ..CONFIG };
    let storage = start_with(disk.clone(), Arc::new(SystemClock::new()), &config);
    Session::new(&storage).store(&[(1, "read by all")]);
    let done = Arc::new(AtomicBool::new(false));
    let is_quick = Arc::clone(&done);
    // Before a sync counts as done.
    disk.after_each(move |operation, _| {
        if operation == Operation::Sync && !is_quick.load(Ordering::Relaxed) {
            thread::sleep(SYNC);
        }
    });
    let reader = {
        let (storage, done) = (Arc::clone(&storage), Arc::clone(&done));
        thread::spawn(move || read_until(&storage, &done))
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let session = Session::new(&storage);
            thread::spawn(move || commit_one(session, 100 + number))
        })
        .collect();
    let (mut waiting_most, mut write_longest) = (0, Duration::ZERO);
    while !writers.iter().all(thread::JoinHandle::is_finished) {
        let status = storage.commit_status();
        waiting_most = waiting_most.max(status.ready + status.writing);
        write_longest = write_longest.max(storage.write_time().unwrap_or_default());
        thread::sleep(Duration::from_millis(5));
    }
    let tids: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    done.store(true, Ordering::Relaxed);
    let reads = reader.join().unwrap();
    assert_eq!(tids.len() as u64, WRITERS);
    assert!(waiting_most as u64 <= WRITERS, "{waiting_most} wait for {WRITERS} writers");
    assert!(write_longest > SYNC / 2, "{write_longest:?}");
    assert_eq!(storage.write_time(), None);
    // One sync for the first, one or two for all that came meanwhile: each shares its wait.
    assert!(storage.metrics().syncs.count() <= 1 + 3, "{:?}", storage.metrics().syncs);
    // A read that waited for a sync would be one for each sync.
    let syncs = storage.metrics().syncs.count();
    assert!(reads as u64 > 10 * syncs, "{reads} reads beside {syncs} syncs");
    storage.close().unwrap();
    assert_idle(&storage);
}

/// Reads until everything is committed, and counts the reads.
fn read_until(storage: &Database, done: &AtomicBool) -> usize {
    let mut reads = 0;
    while !done.load(Ordering::Relaxed) {
        let loaded = storage.reader().load_before(Oid(1), Tid::MAX, Access::NonBlocking).unwrap();
        assert!(matches!(loaded, Load::Revision(_)));
        assert!(storage.last_tid() > Tid::ZERO);
        reads += 1;
        thread::sleep(Duration::from_micros(200));
    }
    reads
}

fn commit_one(mut session: Session, oid: u64) -> Tid {
    let (number, voted) = session.vote(storing(oid));
    session.storage.finish(number, voted).unwrap();
    wait_committed(&mut session, number)
}

fn storing(oid: u64) -> Transaction {
    let mut new = transaction();
    new.store(Oid(oid), Tid::ZERO, Bytes::from_static(b"slowly"));
    new
}

fn wait_committed(session: &mut Session, number: TransactionNumber) -> Tid {
    loop {
        let notice = session.next();
        assert!(!matches!(notice, Notice::Failed(..) | Notice::Expired(_)), "given up");
        if let Some(tid) = notice.tid_of(number) {
            return tid;
        }
    }
}

#[test]
fn a_finish_that_comes_just_behind_another_shares_its_sync() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = start(disk.clone());
    disk.after_each(|operation, _| {
        if operation == Operation::Sync {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let mut sessions = [(); 2].map(|()| Session::new(&storage));
    // The wait for others depends on how long the last batches took.
    for _ in 0..20 {
        sessions[0].store(&[(1, "alone")]);
    }
    // On a busy machine some threads wake too late.
    let (mut shared, mut rounds) = (0, 0);
    while shared < 5 {
        rounds += 1;
        assert!(rounds <= 200, "only {shared} shared a sync");
        let oids = [2 * rounds, 2 * rounds + 1];
        let voted = [0, 1].map(|n| sessions[n].vote(storing(oids[n])));
        let syncs_before = storage.metrics().syncs.count();
        let numbers = voted.map(|(number, voted)| {
            storage.finish(number, voted).unwrap();
            thread::sleep(Duration::from_micros(300));
            number
        });
        for (session, number) in sessions.iter_mut().zip(numbers) {
            wait_committed(session, number);
        }
        shared += u64::from(storage.metrics().syncs.count() == syncs_before + 1);
    }
    storage.close().unwrap();
}
