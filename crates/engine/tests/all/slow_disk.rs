//! A disk whose syncs take very long: readers are not delayed, committers wait without expiring,
//! and the number of waiting requests is bounded by the number of committers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{CONFIG, Session, assert_idle, start_with, transaction};
use bytes::Bytes;
use zodium_disk::{FaultyDisk, MemoryDisk, Operation, SystemClock};
use zodium_engine::{Config, Database, Notice};
use zodium_storage::{Access, Load};
use zodium_types::{Oid, Tid};

/// How long a sync takes: several times the transaction timeout.
const SYNC: Duration = Duration::from_millis(1500);
const TIMEOUT: Duration = Duration::from_millis(300);
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
    let mut waiting_most = 0;
    while !writers.iter().all(thread::JoinHandle::is_finished) {
        let status = storage.commit_status();
        waiting_most = waiting_most.max(status.ready + status.writing);
        thread::sleep(Duration::from_millis(5));
    }
    let tids: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    done.store(true, Ordering::Relaxed);
    let reads = reader.join().unwrap();
    assert_eq!(tids.len() as u64, WRITERS);
    assert!(waiting_most as u64 <= WRITERS, "{waiting_most} wait for {WRITERS} writers");
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
    let mut new = transaction();
    new.store(Oid(oid), Tid::ZERO, Bytes::from_static(b"slowly"));
    let (number, voted) = session.vote(new);
    session.storage.finish(number, voted).unwrap();
    loop {
        let notice = session.next();
        assert!(!matches!(notice, Notice::Failed(..) | Notice::Expired(_)), "given up");
        if let Some(tid) = notice.tid_of(number) {
            return tid;
        }
    }
}
