//! A script of transactions with blobs, with each step of the disk failing in turn, and with a
//! crash after each step. Whatever happens: what was acknowledged is there with its blobs, every
//! record of a blob has its file, and no other file is left once the storage was opened again.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use zodium_blobs::BlobDirectory;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, Operation};
use zodium_engine::Transaction;
use zodium_filestorage::{BlobsToCheck, CheckOptions, check_with_blobs};
use zodium_types::{Oid, Tid};

use super::client::{Client, DIRECTORY, blob_paths, path_of};
use crate::support::{Outcome, assert_idle, transaction};

/// Those that change the disk.
const OPERATIONS: [Operation; 6] = [
    Operation::Open,
    Operation::Write,
    Operation::Sync,
    Operation::SetLength,
    Operation::Reserve,
    Operation::Folder,
];

#[test]
fn whatever_fails_records_and_files_of_blobs_agree_after_opening_again() {
    for operation in OPERATIONS {
        let mut nth = 1;
        loop {
            let disk = FaultyDisk::new(MemoryDisk::new());
            let mut client = Client::new(&disk);
            disk.fail(operation, nth, ErrorKind::Other);
            let acknowledged = run(&mut client);
            disk.mend();
            let files = disk.files();
            for crashed in [
                files.after_kill(),
                files.after_power_cut(),
                files.after_power_cut_with_names_lost(),
            ] {
                check(&crashed, &acknowledged, &format!("{operation:?} {nth}"));
            }
            let _ = client.storage().close();
            assert_idle(client.storage());
            check(files, &acknowledged, &format!("{operation:?} {nth}, closed"));
            if !disk.has_failed() {
                assert_eq!(acknowledged.len(), 6, "all is well without a fault");
                break;
            }
            nth += 1;
        }
    }
}

#[test]
fn whenever_it_crashes_records_and_files_of_blobs_agree_after_opening_again() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let mut client = Client::new(&disk);
    disk.keep_images();
    let acknowledged = run_noting(&mut client, |_| disk.images().len());
    assert_eq!(acknowledged.len(), 6);
    client.close();
    let images = disk.images();
    assert!(images.len() > 100, "{} steps", images.len());
    for (index, image) in images.into_iter().enumerate() {
        let told = acknowledged.iter().filter(|(_, (_, at))| *at <= index);
        let told = told.map(|(tid, (blobs, _))| (*tid, blobs.clone())).collect();
        for (kind, crashed) in
            [("kill", image.kill), ("power", image.power_cut), ("names", image.names_lost)]
        {
            check(&crashed, &told, &format!("{kind} after step {index}, {:?}", image.after));
        }
    }
}

/// What a transaction left: the data of the blobs of its objects.
pub(crate) type Blobs = BTreeMap<u64, Vec<u8>>;

fn run(client: &mut Client) -> BTreeMap<Tid, Blobs> {
    let acknowledged = run_noting(client, |_| ());
    acknowledged.into_iter().map(|(tid, (blobs, ()))| (tid, blobs)).collect()
}

/// Creations, a change, an undo, its undo, an abort. Goes on after failures as a client would.
fn run_noting<N>(client: &mut Client, note: impl Fn(Tid) -> N) -> BTreeMap<Tid, (Blobs, N)> {
    let mut acknowledged = BTreeMap::new();
    let mut tell = |client: &Client, tid: Option<Tid>, blobs: &[(u64, &[u8])]| {
        client.blobs().settle();
        if let Some(tid) = tid {
            let blobs = blobs.iter().map(|(oid, data)| (*oid, data.to_vec())).collect();
            acknowledged.insert(tid, (blobs, note(tid)));
        }
    };
    let first: [(u64, &[u8]); 1] = [(1, b"first")];
    let created = commit(client, &first);
    tell(client, created, &first);
    let both: [(u64, &[u8]); 2] = [(1, b"second"), (0x1_0000_0002, b"")];
    let changed = commit(client, &both);
    tell(client, changed, &both);
    let undone = undo(client, changed);
    // Without the first one it was a creation.
    tell(client, undone, if created.is_some() { &first } else { &[] });
    let redone = undo(client, undone);
    tell(client, redone, &both);
    if let Ok(transaction) = client.try_storing(&[(1, b"aborted")])
        && let Some((number, voted)) = vote(client, transaction)
    {
        client.storage().abort(number, Some(voted));
    }
    tell(client, None, &[]);
    let third: [(u64, &[u8]); 1] = [(3, b"third")];
    let tid = commit(client, &third);
    tell(client, tid, &third);
    let last: [(u64, &[u8]); 1] = [(1, b"last")];
    let tid = commit(client, &last);
    tell(client, tid, &last);
    acknowledged
}

fn commit(client: &mut Client, blobs: &[(u64, &[u8])]) -> Option<Tid> {
    let transaction = client.try_storing(blobs).ok()?;
    let (number, voted) = vote(client, transaction)?;
    client.session.finish(number, voted).ok()
}

fn undo(client: &mut Client, tid: Option<Tid>) -> Option<Tid> {
    let mut transaction = transaction();
    transaction.undo(tid?);
    let (number, voted) = vote(client, transaction)?;
    client.session.finish(number, voted).ok()
}

fn vote(
    client: &mut Client,
    mut transaction: Transaction,
) -> Option<(zodium_engine::commit::TransactionNumber, zodium_engine::Voted)> {
    match client.session.try_vote(&mut transaction).ok()? {
        Outcome::Voted(number, voted) => Some((number, voted)),
        Outcome::Conflicts(number, _) => {
            client.storage().abort(number, None);
            None
        }
    }
}

/// A check that reads all blobs calls none damaged.
fn assert_unharmed(disk: &MemoryDisk, moment: &str) {
    let directory = BlobDirectory::open(Arc::new(disk.clone()), Path::new(DIRECTORY), true);
    let directory = &directory.unwrap();
    let options = CheckOptions::new("Data.fs");
    let blobs = Some(BlobsToCheck { directory, data: true });
    let checked = check_with_blobs(disk, &options, blobs, &mut |damage| {
        assert!(!damage.kind.is_damage(), "{moment}: {damage}");
    });
    checked.unwrap();
}

/// Opens what a crash left, and holds records and files against each other.
pub(crate) fn check(disk: &MemoryDisk, acknowledged: &BTreeMap<Tid, Blobs>, moment: &str) {
    let disk = disk.after_kill();
    let mut client = Client::new(&disk);
    let mut expected = Vec::new();
    let mut tids = Vec::new();
    let mut transactions = client.storage().reader().iterate(None, None).unwrap();
    while let Some(transaction) = transactions.step().unwrap() {
        let mut records = transactions.records().unwrap();
        while let Some(record) = records.step().unwrap() {
            if record.data.is_some() && record.oid != Oid::ROOT {
                let blob = client.blob(record.oid.0, record.tid);
                assert!(blob.is_ok(), "{moment}: {blob:?}");
                expected.push(path_of((record.oid.0, record.tid)));
            }
        }
        tids.push(transaction.tid);
    }
    for (tid, blobs) in acknowledged {
        assert!(tids.contains(tid), "{moment}: {tid} is lost");
        for (oid, data) in blobs {
            assert_eq!(&client.blob(*oid, *tid).unwrap(), data, "{moment}: {oid} of {tid}");
        }
    }
    expected.sort();
    assert_eq!(blob_paths(&disk), expected, "{moment}");
    assert_unharmed(&disk, moment);
    // And it works again.
    client.store_blob(1, b"again");
    client.close();
    assert!(!disk.exists("Data.fs.tr9".as_ref()).unwrap());
}
