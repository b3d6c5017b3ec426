//! A storage whose disk failed accepts commits again without a restart.
//!
//! A script of commits, undos, blobs, saved indexes and a pack runs on a failing disk. The first
//! operation of a kind fails, then the second, and so on until the script meets no fault. A fault
//! happens once, or lasts until the operator repairs the disk. Refused steps are tried again, as an
//! application would. In the end every step has succeeded. All acknowledged data are present, and
//! no refused data are, in the running server and in the file. Checksums are kept beside the file:
//! each read is compared with them, and in the end the whole file.

mod script;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::blobs::client::{Client, DIRECTORY};
use crate::support::{CONFIG, Outcome, Session, start_with, text, transaction};
use script::Script;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation, SystemClock};
use zodium_engine::{Config, Database, Reopening};
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions, ScrubPlace};
use zodium_storage::{PackStep, WriteState};
use zodium_types::{Oid, Tid};

fn reopened() -> Config {
    let (first, longest) = (Duration::from_millis(1), Duration::from_millis(4));
    Config { reopening: Some(Reopening { first, longest }), pack_gc: false, ..CONFIG }
}

fn client(disk: impl Disk + 'static, config: &Config) -> Client {
    let options = OpenOptions {
        cache_bytes: 1 << 20,
        blob_directory: Some(DIRECTORY.into()),
        checksums: ChecksumMode::Full,
        ..OpenOptions::new(Path::new("Data.fs"))
    };
    Client::over(FileStorage::open(Arc::new(disk), &options).expect("it opens"), config)
}

/// Nothing in the file is said not to fit its checksum.
fn check_checksums(client: &Client, moment: &str) {
    let file = client.file();
    while file.cover(1 << 20) > 0 {}
    let mut place = Some(ScrubPlace::default());
    while let Some(next) = place {
        place = file.scrub(next, 1 << 20);
    }
    let damaged = file.checksum_metrics().map_or(0, |metrics| metrics.damaged);
    assert_eq!(damaged, 0, "{moment}");
}

const OPERATIONS: [Operation; 7] = [
    Operation::Open,
    Operation::Read,
    Operation::Write,
    Operation::Sync,
    Operation::SetLength,
    Operation::Reserve,
    Operation::Folder,
];

/// How long a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasts {
    Once,
    /// The first try to reopen fails as well.
    ForThree,
    UntilMended,
}

#[test]
fn after_any_fault_commits_go_on_and_nothing_acknowledged_is_lost_nor_anything_refused_kept() {
    let mut faults = 0;
    for operation in OPERATIONS {
        for error in [ErrorKind::Other, ErrorKind::StorageFull] {
            for lasts in [Lasts::Once, Lasts::ForThree, Lasts::UntilMended] {
                if error == ErrorKind::StorageFull && lasts != Lasts::Once {
                    continue;
                }
                faults += (1..).take_while(|nth| run(operation, *nth, error, lasts)).count();
            }
        }
    }
    println!("{faults} faults");
    assert!(faults > 300, "{faults}");
}

/// Whether the script met the fault.
fn run(operation: Operation, nth: u64, error: ErrorKind, lasts: Lasts) -> bool {
    let moment = format!("{operation:?} {nth}, {error:?}, {lasts:?}");
    let disk = FaultyDisk::new(MemoryDisk::new());
    let mut client = client(disk.clone(), &reopened());
    disk.forget_failed_syncs();
    match lasts {
        Lasts::Once => disk.fail(operation, nth, error),
        Lasts::ForThree => disk.fail_times(operation, nth, 3, error),
        Lasts::UntilMended => disk.fail_from(operation, nth, error),
    }
    let script = Script::run(&mut client, &moment, || disk.mend());
    let met = disk.has_failed();
    disk.mend();
    script.check(&client, &moment);
    check_checksums(&client, &moment);
    client.close();
    if lasts == Lasts::Once {
        // Without an opening, which removes what could not be removed before.
        script.check_blobs(disk.files(), &moment);
    }
    for crashed in [disk.files().after_power_cut(), disk.files().after_kill()] {
        let client = self::client(crashed.clone(), &CONFIG);
        script.check(&client, &moment);
        check_checksums(&client, &moment);
        script.check_blobs(&crashed, &moment);
    }
    met
}

#[test]
fn a_transaction_voted_before_the_failure_can_be_finished_after_it() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = start_with(disk.clone(), Arc::new(SystemClock::new()), &reopened());
    let mut session = Session::new(&storage);
    session.store(&[(1, "first")]);
    let (number, voted) = session.vote(storing(2, b"voted before"));
    disk.fail(Operation::Sync, 1, ErrorKind::Other);
    let (refused, refused_voted) = session.vote(storing(3, b"refused"));
    session.finish(refused, refused_voted).unwrap_err();
    wait_until_writable(&storage);
    session.finish(number, voted).unwrap();
    assert_eq!(text(&storage, 2).as_deref(), Some("voted before"));
    assert_eq!(text(&storage, 3), None);
    let metrics = storage.metrics();
    assert_eq!((metrics.write_failures, metrics.reopenings), (1, 1));
    storage.close().unwrap();
}

#[test]
fn what_the_device_has_lost_is_named_and_commits_stay_refused() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = start_with(disk.clone(), Arc::new(SystemClock::new()), &reopened());
    let mut session = Session::new(&storage);
    session.store(&[(1, "first")]);
    let position = storage.reader().size();
    session.store(&[(1, "second")]);
    session.store(&[(1, "third")]);
    // The device forgets what it had said was durable.
    let file = disk.files().open(Path::new("Data.fs"), OpenMode::Write).unwrap();
    file.write_all_at(&[0; 8], position + 30).unwrap();
    let length = file.length().unwrap();
    disk.fail(Operation::Write, 1, ErrorKind::Other);
    let (refused, refused_voted) = session.vote(storing(3, b"refused"));
    session.finish(refused, refused_voted).unwrap_err();
    let failure = wait_for_attempts(&storage, 1);
    let expected = format!("Data.fs: damaged at position {position}: the device does not hold");
    assert!(failure.reason.starts_with(&expected), "{}", failure.reason);
    assert_eq!(failure.next_attempt, None);
    assert_eq!(storage.write_state(), WriteState::Failed);
    assert!(file.length().unwrap() >= length, "a damaged file is left as it is");
    // Reads go on, and an operator that mended the device can ask for another attempt.
    assert_eq!(text(&storage, 1).as_deref(), Some("third"));
    assert!(storage.ask_to_reopen());
    assert_eq!(wait_for_attempts(&storage, 2).next_attempt, None);
    let _ = storage.close();
}

#[test]
fn who_does_not_want_it_by_itself_can_ask_for_it() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = start_with(disk.clone(), Arc::new(SystemClock::new()), &CONFIG);
    let mut session = Session::new(&storage);
    assert!(!storage.ask_to_reopen());
    disk.fail_from(Operation::Sync, 1, ErrorKind::Other);
    let (refused, refused_voted) = session.vote(storing(1, b"refused"));
    session.finish(refused, refused_voted).unwrap_err();
    assert_eq!(storage.write_failure().unwrap().next_attempt, None);
    assert!(storage.ask_to_reopen());
    let failure = wait_for_attempts(&storage, 1);
    assert!(failure.reason.contains("cut failed"), "{}", failure.reason);
    let mut late = storing(2, b"late");
    assert!(session.try_vote(&mut late).is_err());
    disk.mend();
    assert!(storage.ask_to_reopen());
    wait_until_writable(&storage);
    session.store(&[(2, "works again")]);
    storage.close().unwrap();
    let reopened = crate::support::start(disk.files().after_power_cut());
    assert_eq!(text(&reopened, 1), None);
    assert_eq!(text(&reopened, 2).as_deref(), Some("works again"));
}

/// A pack may have taken hours when it comes to its last step.
#[test]
fn a_pack_whose_last_step_comes_during_a_reopening_waits_for_it() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let config = Config { pack_gc: false, ..CONFIG };
    let storage = start_with(disk.clone(), Arc::new(SystemClock::new()), &config);
    let mut session = Session::new(&storage);
    session.store(&[(1, "first")]);
    let undone = session.store(&[(1, "second")]);
    let mut undo = transaction();
    undo.undo(undone);
    let (undoing, voted_undo) = session.vote(undo);
    let packed = Arc::new(AtomicBool::new(false));
    let packer = {
        let (storage, packed) = (Arc::clone(&storage), Arc::clone(&packed));
        thread::spawn(move || {
            let outcome = storage.pack(undone);
            packed.store(true, Ordering::Release);
            outcome
        })
    };
    // It waits until the undo, which knows positions of records, is over.
    wait_for(|| {
        let progress = storage.metrics().pack.running.and_then(|run| run.progress);
        progress.filter(|(step, ..)| *step == PackStep::Waiting)
    });
    disk.fail(Operation::Sync, 1, ErrorKind::Other);
    let (refused, refused_voted) = session.vote(storing(3, b"refused"));
    session.finish(refused, refused_voted).unwrap_err();
    let (in_reopening, released) = (Arc::clone(&storage), Arc::clone(&packed));
    disk.before_next(Operation::SetLength, move || {
        in_reopening.abort(undoing, Some(voted_undo));
        // As much time as the last step may need; it must not be taken.
        let started = Instant::now();
        while !released.load(Ordering::Acquire) && started.elapsed() < Duration::from_millis(300) {
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(storage.ask_to_reopen());
    let outcome = packer.join().unwrap();
    assert!(matches!(outcome, Ok(Some(_))), "{outcome:?}");
    wait_until_writable(&storage);
    assert_eq!(text(&storage, 1).as_deref(), Some("second"));
    session.store(&[(2, "works")]);
    storage.close().unwrap();
}

#[test]
fn tries_come_at_growing_intervals() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let config = Config {
        reopening: Some(Reopening {
            first: Duration::from_millis(10),
            longest: Duration::from_millis(60),
        }),
        ..CONFIG
    };
    let storage = start_with(disk.clone(), Arc::new(SystemClock::new()), &config);
    let mut session = Session::new(&storage);
    disk.fail_from(Operation::Sync, 1, ErrorKind::Other);
    let (refused, refused_voted) = session.vote(storing(1, b"refused"));
    session.finish(refused, refused_voted).unwrap_err();
    // 10, 20, 40, 60, 60: the fifth is not tried before the sum of them.
    let failure = wait_for_attempts(&storage, 5);
    let last = failure.next_attempt.unwrap() - Duration::from_millis(60);
    assert!(last - failure.since >= Duration::from_millis(190));
    disk.mend();
    storage.close().unwrap();
}

#[test]
fn a_reading_that_brings_few_bytes_at_once_is_not_seen_by_anybody() {
    for bytes in [1, 7, 50] {
        let disk = FaultyDisk::new(MemoryDisk::new());
        disk.read_at_most(bytes);
        let moment = format!("{bytes} at once");
        let config = Config { reopening: None, ..reopened() };
        let mut client = self::client(disk.clone(), &config);
        let script = Script::run(&mut client, &moment, || panic!("nothing fails"));
        script.check(&client, &moment);
        client.close();
        drop(client);
        script.check(&self::client(disk, &CONFIG), &moment);
    }
}

fn storing(oid: u64, data: &'static [u8]) -> zodium_engine::Transaction {
    let mut transaction = transaction();
    transaction.store(Oid(oid), Tid::ZERO, data.into());
    transaction
}

fn wait_for_attempts(storage: &Database, attempts: u32) -> zodium_engine::WriteFailure {
    wait_for(|| storage.write_failure().filter(|failure| failure.attempts >= attempts))
}

pub(crate) fn wait_until_writable(storage: &Database) {
    wait_for(|| storage.write_failure().is_none().then_some(()));
    assert_ne!(storage.write_state(), WriteState::Failed);
}

fn wait_for<T>(mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "it does not come");
        thread::sleep(Duration::from_micros(200));
    }
}

/// The vote of a transaction, if it passes.
pub(crate) fn try_vote(
    session: &mut Session,
    mut transaction: zodium_engine::Transaction,
) -> Option<(zodium_engine::commit::TransactionNumber, zodium_engine::Voted)> {
    match session.try_vote(&mut transaction).ok()? {
        Outcome::Voted(number, voted) => Some((number, voted)),
        Outcome::Conflicts(number, _) => {
            session.storage.abort(number, None);
            None
        }
    }
}
