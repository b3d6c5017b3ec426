//! Space reserved for a transaction is free again when the transaction ends without a commit,
//! however it ends.
//!
//! The quota has room for one large transaction, so the next one fails if space is not released.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::blobs::client::{Client, DIRECTORY};
use crate::support::{CONFIG, Outcome, Refusal, transaction};
use zodium_disk::{FaultyDisk, MemoryDisk, Operation};
use zodium_engine::{Config, Notice, Reopening, Transaction};
use zodium_filestorage::{FileStorage, OpenOptions};
use zodium_types::{Oid, Tid};

const LARGE_BYTES: usize = 200_000;
const QUOTA_BYTES: u64 = 300_000;

fn client(disk: &FaultyDisk, config: &Config) -> Client {
    let options = OpenOptions {
        cache_bytes: 1 << 20,
        blob_directory: Some(DIRECTORY.into()),
        quota_bytes: Some(QUOTA_BYTES),
        ..OpenOptions::new(Path::new("Data.fs"))
    };
    Client::over(FileStorage::open(Arc::new(disk.clone()), &options).expect("it opens"), config)
}

fn large() -> Transaction {
    let mut transaction = transaction();
    transaction.store(Oid(100), Tid::ZERO, vec![7; LARGE_BYTES].into());
    transaction
}

/// A large transaction with a blob.
fn large_with_blob(client: &Client) -> Transaction {
    let mut transaction = client.storing(&[(1, b"blob")]);
    transaction.store(Oid(100), Tid::ZERO, vec![7; LARGE_BYTES].into());
    transaction
}

/// A large transaction passes its vote; it is given up again.
fn assert_room(client: &mut Client, moment: &str) {
    match client.session.try_vote(&mut large()) {
        Ok(Outcome::Voted(number, voted)) => client.storage().abort(number, Some(voted)),
        Ok(Outcome::Conflicts(_, found)) => panic!("{moment}: {found:?}"),
        Err(error) => panic!("{moment}: {error}"),
    }
}

#[test]
fn a_vote_that_is_given_up_gives_its_space_back() {
    let mut client = client(&FaultyDisk::new(MemoryDisk::new()), &CONFIG);
    for round in 0..3 {
        assert_room(&mut client, &format!("round {round}"));
    }
    client.close();
}

#[test]
fn a_vote_whose_blobs_cannot_be_placed_gives_its_space_back() {
    let mut refused = 0;
    for nth in 1.. {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let mut client = client(&disk, &CONFIG);
        let mut transaction = large_with_blob(&client);
        disk.fail(Operation::Folder, nth, ErrorKind::Other);
        let outcome = client.session.try_vote(&mut transaction);
        disk.mend();
        match outcome {
            Err(_) => refused += 1,
            Ok(Outcome::Voted(number, voted)) => client.storage().abort(number, Some(voted)),
            Ok(Outcome::Conflicts(_, found)) => panic!("{found:?}"),
        }
        assert_room(&mut client, &format!("operation {nth}"));
        client.close();
        if !disk.has_failed() {
            break;
        }
    }
    assert!(refused > 0, "a fault at each step refuses the vote");
}

#[test]
fn a_finish_whose_blobs_cannot_be_named_is_told_so_and_gives_its_space_back() {
    let mut failed = 0;
    for nth in 1.. {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let mut client = client(&disk, &CONFIG);
        let transaction = large_with_blob(&client);
        let (number, voted) = client.session.vote(transaction);
        disk.fail(Operation::Folder, nth, ErrorKind::Other);
        let outcome = client.session.finish(number, voted);
        let met = disk.has_failed();
        disk.mend();
        match outcome {
            Err(Refusal::Later(_)) => {
                failed += 1;
                assert!(!client.storage().commit_status().failed, "the log is as it was");
                assert_room(&mut client, &format!("operation {nth}"));
            }
            Err(Refusal::AtOnce(error)) => panic!("{error}"),
            Ok(_) => assert!(!met || failed > 0, "operation {nth}"),
        }
        client.close();
        if !met {
            break;
        }
    }
    assert!(failed > 0, "a fault while blobs get their names fails the finish");
}

#[test]
fn a_finish_that_waited_for_a_write_that_failed_gives_its_space_back() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let (first, longest) = (Duration::from_millis(1), Duration::from_millis(4));
    let config = Config { reopening: Some(Reopening { first, longest }), ..CONFIG };
    let mut client = client(&disk, &config);
    let mut small = transaction();
    small.store(Oid(1), Tid::ZERO, b"small".to_vec().into());
    let (written, written_voted) = client.session.vote(small);
    let (waiting, waiting_voted) = client.session.vote(large());
    // The sync of the first is held up until the second has asked for its finish, then it fails.
    let (asked, go_on) = mpsc::channel();
    disk.before_next(Operation::Sync, move || go_on.recv().unwrap());
    disk.fail(Operation::Sync, 1, ErrorKind::Other);
    client.storage().finish(written, written_voted).unwrap();
    while client.storage().commit_status().writing == 0 {
        thread::yield_now();
    }
    client.storage().finish(waiting, waiting_voted).unwrap();
    asked.send(()).unwrap();
    for expected in [written, waiting] {
        let notice = client.session.next();
        assert!(matches!(notice, Notice::Failed(number, _) if number == expected), "{notice:?}");
    }
    while client.storage().write_failure().is_some() {
        thread::yield_now();
    }
    assert_room(&mut client, "after the file was reopened");
    client.close();
}
