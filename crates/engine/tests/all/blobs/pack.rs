//! Packs remove the blobs of what they drop, and no others.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, Operation};
use zodium_engine::Config;
use zodium_types::{Oid, Tid};

use super::client::{Client, blob_paths, is_own, path_of};
use super::faults::{Blobs, check};
use crate::support::{CONFIG, transaction};

fn keeping_old() -> Config {
    Config { pack_keep_old: true, ..CONFIG }
}

#[test]
fn a_pack_leaves_the_blobs_of_what_is_in_use_and_of_what_came_later() {
    let disk = MemoryDisk::new();
    let mut client = Client::new(&disk);
    let old = client.store_blobs(&[(1, b"one"), (2, b"two"), (3, b"garbage")]);
    client.store_root(&[1, 2]);
    let current = client.store_blob(1, b"one more");
    let later = {
        let pack_tid = client.storage().last_tid();
        let later = client.store_blob(2, b"two later");
        client.storage().pack(pack_tid).unwrap().unwrap();
        later
    };
    client.close();
    let expected = [(1, current), (2, old), (2, later)].map(path_of);
    assert_eq!(blob_paths(&disk), expected);
    assert!(!disk.exists(path_of((3, old)).parent().unwrap()).unwrap(), "its folder is gone");
    assert!(!disk.exists(Path::new("blobs.old")).unwrap());
}

#[test]
fn a_pack_that_keeps_the_old_file_keeps_its_blobs_too() {
    let disk = MemoryDisk::new();
    let mut client = Client::with(&disk, &keeping_old());
    for round in 0..2 {
        client.store_blobs(&[(1, b"one"), (2, b"garbage")]);
        client.store_root(&[1]);
        client.store_blob(1, b"one more");
        client.blobs().settle();
        let before = blob_paths(&disk);
        client.storage().pack(Tid::MAX).unwrap().unwrap();
        let mut kept: Vec<_> = disk.paths();
        kept.retain(|path| path.starts_with("blobs.old") && !is_own(path));
        let inside =
            |path: &PathBuf| Path::new("blobs").join(path.strip_prefix("blobs.old").unwrap());
        assert_eq!(kept.iter().map(inside).collect::<Vec<_>>(), before, "round {round}");
        assert_eq!(disk.bytes(Path::new("blobs.old/.layout")).unwrap(), b"bushy");
        // Its own lengths and sums: put back, the blobs are compared with them.
        let sums = |folder: &str| disk.bytes(&Path::new(folder).join(".zodium-sums")).unwrap();
        assert_eq!((sums("blobs.old").len() - 32) / 32, before.len());
        assert_eq!((sums("blobs").len() - 32) / 32, 1);
        assert_eq!(blob_paths(&disk).len(), 1);
    }
}

#[test]
fn what_an_undo_after_the_pack_time_points_back_to_keeps_its_blob() {
    let disk = MemoryDisk::new();
    let mut client = Client::new(&disk);
    client.store_root(&[1]);
    let first = client.store_blob(1, b"first");
    let second = client.store_blob(1, b"second");
    let third = client.store_blob(1, b"third");
    let pack_tid = third;
    let undone = client.undo(&[third]).unwrap();
    client.storage().pack(pack_tid).unwrap().unwrap();
    assert_eq!(client.blob(1, undone).unwrap(), b"second");
    let redone = client.undo(&[undone]).unwrap();
    assert_eq!(client.blob(1, redone).unwrap(), b"third");
    client.close();
    let expected = [(1, second), (1, third), (1, undone), (1, redone)].map(path_of);
    assert_eq!(blob_paths(&disk), expected);
    assert!(client.blob(1, first).is_err());
}

#[test]
fn random_histories_leave_exactly_the_blobs_of_their_records() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let config = Config { pack_gc: random.random(), pack_keep_old: random.random(), ..CONFIG };
        let disk = MemoryDisk::new();
        let mut client = Client::with(&disk, &config);
        client.store_root(&[1, 2]);
        let mut blobs: BTreeMap<Tid, Blobs> = BTreeMap::new();
        let mut tids = Vec::new();
        for step in 0..random.random_range(5..40_u32) {
            match random.random_range(0..10) {
                0 => drop(
                    client.storage().pack(tids.get(step as usize / 2).copied().unwrap_or(Tid::MAX)),
                ),
                1 => tids.push(client.store_root(&[1, random.random_range(2..5)])),
                2 | 3 if !tids.is_empty() => {
                    let tid = tids[random.random_range(0..tids.len())];
                    if let Ok(tid) = client.undo(&[tid]) {
                        tids.push(tid);
                    }
                }
                _ => {
                    let data = format!("{seed} {step}").into_bytes();
                    let oid = random.random_range(1..5);
                    let tid = client.store_blob(oid, &data);
                    blobs.insert(tid, BTreeMap::from([(oid, data)]));
                    tids.push(tid);
                }
            }
            client.blobs().settle();
        }
        // Of those that a pack dropped nothing is expected.
        blobs.retain(|tid, blobs| {
            blobs.keys().all(|oid| {
                client.storage().reader().load_serial(Oid(*oid), *tid).unwrap().is_some()
            })
        });
        check(&disk, &blobs, &format!("seed {seed}"));
        client.close();
        check(&disk, &blobs, &format!("seed {seed}, closed"));
    }
}

#[test]
fn whenever_a_pack_crashes_records_and_files_of_blobs_agree_after_opening_again() {
    for config in [CONFIG, keeping_old()] {
        let (disk, mut client) = before_pack(&config);
        disk.keep_images();
        client.storage().pack(Tid::MAX).unwrap().unwrap();
        let last = client.store_blob(1, b"after");
        client.close();
        let told = BTreeMap::from([(last, BTreeMap::from([(1, b"after".to_vec())]))]);
        check(disk.files(), &told, "at the end");
        for (index, image) in disk.images().into_iter().enumerate() {
            for crashed in [image.kill, image.power_cut, image.names_lost] {
                check(&crashed, &BTreeMap::new(), &format!("step {index}, {:?}", image.after));
            }
        }
    }
}

#[test]
fn whatever_fails_in_a_pack_records_and_files_of_blobs_agree_after_opening_again() {
    for operation in [Operation::Open, Operation::Write, Operation::Sync, Operation::Folder] {
        for nth in 1.. {
            let (disk, client) = before_pack(&keeping_old());
            disk.fail(operation, nth, ErrorKind::Other);
            let _ = client.storage().pack(Tid::MAX);
            disk.mend();
            let _ = client.storage().close();
            check(disk.files(), &BTreeMap::new(), &format!("{operation:?} {nth}"));
            if !disk.has_failed() {
                break;
            }
        }
    }
}

#[test]
fn a_list_of_a_pack_that_did_not_end_removes_nothing() {
    let (disk, client) = before_pack(&CONFIG);
    // The rename of the packed file is the first after that of no other.
    let before = blob_paths(disk.files());
    let list = Path::new("blobs/tmp/zodium-packed");
    disk.keep_images();
    client.storage().pack(Tid::MAX).unwrap().unwrap();
    let images = disk.images();
    let listed = images.iter().find(|image| image.kill.exists(list).unwrap());
    let crashed = listed.unwrap().kill.clone();
    let reopened = Client::new(&crashed);
    reopened.close();
    assert_eq!(blob_paths(&crashed), before);
    assert!(!crashed.exists(list).unwrap());
}

/// A history of which a pack drops something in every way.
fn before_pack(config: &Config) -> (FaultyDisk, Client) {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let mut client = Client::with(&disk, config);
    client.store_root(&[1, 2]);
    client.store_blobs(&[(1, b"one"), (2, b"two"), (3, b"garbage")]);
    let changed = client.store_blob(1, b"one more");
    client.undo(&[changed]).unwrap();
    let mut deletion = transaction();
    let serial = client.store_blob(4, b"deleted");
    deletion.delete(Oid(4), serial);
    client.session.commit(deletion);
    client.blobs().settle();
    (disk, client)
}
