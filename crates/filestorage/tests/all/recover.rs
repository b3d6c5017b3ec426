//! What is whole in a damaged file comes out of it, and what comes out is whole.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::support::{
    History, Model, checked, commit, copied_body, data_file, data_of, disk_of, flip, for_each_seed,
    open, open_summed, stores, tid, transaction,
};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use zodium_disk::{FaultyDisk, MemoryDisk};
use zodium_filestorage::{
    CheckOptions, ChecksumMode, Damage, DamageKind, Distrust, FileStorage, FileStorageError,
    OpenOptions, RecoverOptions, RecoveryKind, RecoveryNote, RecoverySummary, check, recover,
};
use zodium_storage::{NewBody, NewRecord};
use zodium_types::{Oid, Tid};

fn recovered_file() -> &'static Path {
    Path::new("Recovered.fs")
}

struct Outcome {
    disk: MemoryDisk,
    bytes: Vec<u8>,
    notes: Vec<RecoveryNote>,
    summary: RecoverySummary,
}

fn try_recover(bytes: &[u8], partial: bool) -> Result<Outcome, FileStorageError> {
    let (disk, mut notes) = (disk_of(bytes), Vec::new());
    let options = RecoverOptions {
        from: data_file().to_owned(),
        to: recovered_file().to_owned(),
        partial,
        drop_mismatches: false,
        progress: &|_, _| {},
    };
    let summary = recover(&disk, &options, &mut |note| notes.push(note.clone()))?;
    assert_eq!(data_of(&disk), bytes);
    let bytes = disk.bytes(recovered_file()).unwrap();
    Ok(Outcome { disk, bytes, notes, summary })
}

fn damage_of(disk: &MemoryDisk, path: &Path) -> Vec<Damage> {
    let mut found = Vec::new();
    let options = CheckOptions { references: true, pickles: true, ..CheckOptions::new(path) };
    check(disk, &options, &mut |damage| found.push(damage.clone())).unwrap();
    found.retain(|damage| damage.kind.name() != "pickle");
    found
}

fn recovered_tids(outcome: &Outcome) -> Vec<Tid> {
    let options = OpenOptions { read_only: true, ..OpenOptions::new(recovered_file()) };
    let storage = FileStorage::open(Arc::new(outcome.disk.clone()), &options).unwrap();
    let mut transactions = storage.reader().iterate(None, None).unwrap();
    let mut tids = Vec::new();
    while let Some(transaction) = transactions.step().unwrap() {
        tids.push(transaction.tid);
    }
    tids
}

fn written(rng: &SmallRng, bytes_min: u64) -> (Vec<u8>, Model) {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let mut history = History::new(rng.clone());
    while history.model.size() < bytes_min {
        history.commit_batch(&storage);
    }
    (data_of(&disk), history.model)
}

#[test]
fn whole_file_comes_out_byte_for_byte() {
    for_each_seed(10, "recover", |_, rng| {
        let (bytes, _) = written(rng, 20_000);
        let outcome = try_recover(&bytes, false).unwrap();
        assert_eq!(outcome.notes, []);
        assert!(outcome.bytes == bytes);
        let RecoverySummary { bytes_before, bytes_after, bytes_left_out, .. } = outcome.summary;
        let length = bytes.len() as u64;
        assert_eq!((bytes_before, bytes_after, bytes_left_out), (length, length, 0));
    });
}

#[test]
fn byte_wrong_anywhere_costs_its_own_transaction_at_most() {
    for_each_seed(2, "recover", |_, rng| {
        let (bytes, model) = written(rng, 1_500);
        let mut damaged = bytes.clone();
        let mut end = 4;
        for (number, transaction) in model.transactions.iter().enumerate() {
            let start = end;
            end += transaction.length() as usize + 8;
            for at in start..end {
                damaged[at] ^= 0xff;
                let outcome = try_recover(&damaged, at % 2 == 0).unwrap();
                damaged[at] ^= 0xff;
                assert_eq!(damage_of(&outcome.disk, recovered_file()), [], "byte {at}");
                let tids = recovered_tids(&outcome);
                let others = model.transactions.iter().enumerate();
                let others = others.filter(|(other, t)| *other != number && t.counts());
                for (_, other) in others {
                    assert!(tids.contains(&other.tid), "byte {at}: {} is lost", other.tid);
                }
            }
        }
    });
}

#[test]
fn what_is_left_out_is_told() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=5 {
        commit(&storage, stores(tid(n), &[(1, b"abc"), (n + 10, b"def")])).unwrap();
    }
    let bytes = data_of(&disk);
    let length = (bytes.len() - 4) / 5;
    let third = 4 + 2 * length;
    let mut damaged = bytes.clone();
    damaged[third + length - 1] ^= 1;

    let outcome = try_recover(&damaged, false).unwrap();
    let [note] = &outcome.notes[..] else { panic!("{:?}", outcome.notes) };
    assert_eq!(note.kind, RecoveryKind::LeftOut);
    assert_eq!((note.start, note.end), (third as u64, (third + length) as u64));
    // The last record ends where nothing says that its transaction ends.
    assert_eq!((&note.oids[..], &note.tids[..]), (&[Oid(1)][..], &[tid(3)][..]));
    // The place of the reason is that of the note.
    assert_eq!(note.what, checked(&disk_of(&damaged)).1[0].what);
    assert_eq!(outcome.summary.bytes_left_out, length as u64);
    assert_eq!((outcome.summary.transactions, outcome.summary.records), (4, 8));
    assert_eq!(recovered_tids(&outcome), [1, 2, 4, 5].map(tid));

    let outcome = try_recover(&damaged, true).unwrap();
    assert_eq!(outcome.notes[0].records_kept, 1);
    assert_eq!((outcome.summary.transactions, outcome.summary.transactions_partial), (5, 1));
    assert_eq!(recovered_tids(&outcome), [1, 2, 3, 4, 5].map(tid));
    assert_eq!(damage_of(&outcome.disk, recovered_file()), []);
}

#[test]
fn records_before_a_damage_are_kept_where_they_end_of_themselves() {
    let pickles = b"\x80\x03cm\nC\n.\x80\x03}.";
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, pickles), (2, pickles), (3, pickles)])).unwrap();
    let end = data_of(&disk).len() - 8;
    commit(&storage, stores(tid(2), &[(4, pickles)])).unwrap();
    let bytes = data_of(&disk);
    for start in end - pickles.len() - 42..end - pickles.len() {
        let mut damaged = bytes.clone();
        damaged[start..end].fill(0);
        let outcome = try_recover(&damaged, true).unwrap();
        assert_eq!(outcome.summary.records, 3, "{start}");
        assert_eq!(damage_of(&outcome.disk, recovered_file()), []);
    }
}

/// Three transactions: data, other data, and the first ones again by a back pointer.
fn undone() -> Vec<u8> {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"first data"), (2, b"beside")])).unwrap();
    commit(&storage, stores(tid(2), &[(1, b"other data")])).unwrap();
    let body = copied_body(&storage, Oid(1), Some("first data".into()), Some(tid(1))).unwrap();
    assert!(matches!(body, NewBody::SameAs(_)));
    let records = vec![NewRecord { oid: Oid(1), body }];
    commit(&storage, (tid(3), transaction(records))).unwrap();
    data_of(&disk)
}

#[test]
fn data_behind_a_back_pointer_are_fetched_from_a_transaction_that_is_left_out() {
    let mut bytes = undone();
    bytes[4 + 16] = b'?';
    let outcome = try_recover(&bytes, false).unwrap();
    assert_eq!(recovered_tids(&outcome), [2, 3].map(tid));
    let needle = b"first data";
    assert!(outcome.bytes.windows(needle.len()).any(|bytes| bytes == needle));
    assert_eq!(damage_of(&outcome.disk, recovered_file()), []);
    assert_eq!(outcome.notes.len(), 1);
}

#[test]
fn record_whose_data_are_lost_is_left_out_and_named() {
    let mut bytes = undone();
    bytes[4..4 + 23 + 42].fill(0);
    let outcome = try_recover(&bytes, true).unwrap();
    let [gap, record] = &outcome.notes[..] else { panic!("{:?}", outcome.notes) };
    assert_eq!((gap.start, gap.records_kept, &gap.tids[..]), (4, 1, &[tid(1)][..]));
    assert_eq!((&record.oids[..], &record.tids[..]), (&[Oid(1)][..], &[tid(3)][..]));
    assert_eq!(record.end - record.start, 42 + 8);
    // What stood beside it is kept, by what the record says of itself.
    assert_eq!(recovered_tids(&outcome), [1, 2, 3].map(tid));
    assert_eq!(outcome.summary.records, 2);
    assert_eq!(damage_of(&outcome.disk, recovered_file()), []);
}

#[test]
fn data_that_end_nowhere_are_not_fetched_from_a_transaction_that_is_left_out() {
    let mut bytes = undone();
    bytes[4 + 16] = b'?';
    // The header of the record behind the data.
    let behind = 4 + 23 + 42 + 10;
    bytes[behind..behind + 42].fill(0);
    let outcome = try_recover(&bytes, false).unwrap();
    assert_eq!(recovered_tids(&outcome), [2, 3].map(tid));
    let needle = b"first data";
    assert!(!outcome.bytes.windows(needle.len()).any(|bytes| bytes == needle));
    let [_, record] = &outcome.notes[..] else { panic!("{:?}", outcome.notes) };
    assert_eq!((&record.oids[..], &record.tids[..]), (&[Oid(1)][..], &[tid(3)][..]));
    assert_eq!(outcome.summary.records, 1);
}

#[test]
fn record_whose_pointer_leads_to_a_later_one_is_left_out() {
    let disk = disk_of(&undone());
    let storage = open(disk.clone());
    let later = storage.size() + 23;
    commit(&storage, stores(tid(4), &[(1, b"later data")])).unwrap();
    drop(storage);
    let mut bytes = data_of(&disk);
    let pointer = later as usize - 23 - 8 - 8;
    bytes[pointer..pointer + 8].copy_from_slice(&later.to_be_bytes());
    let outcome = try_recover(&bytes, false).unwrap();
    let [record] = &outcome.notes[..] else { panic!("{:?}", outcome.notes) };
    assert_eq!(record.what, format!("a record whose data, at {later}, are lost"));
    assert_eq!((record.start, record.end), (pointer as u64 - 42, pointer as u64 + 8));
    assert_eq!(outcome.summary.records, 4);
    assert_eq!(recovered_tids(&outcome), [1, 2, 3, 4].map(tid));
    assert_eq!(damage_of(&outcome.disk, recovered_file()), []);
}

/// The metadata stand between the header and the records.
#[test]
fn the_description_of_a_transaction_is_kept_with_its_records_where_its_header_is_sound() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let mut new = stores(tid(1), &[(1, b"abc"), (2, b"def")]);
    new.1.metadata.description = b"what it is for".to_vec();
    commit(&storage, new).unwrap();
    commit(&storage, stores(tid(2), &[(1, b"abc")])).unwrap();
    drop(storage);
    let mut bytes = data_of(&disk);
    // Its second length.
    let end = 4 + 23 + 14 + 45 + 45;
    bytes[end..end + 8].fill(0);
    // The last byte of the tid, the last bytes of the lengths of the description.
    for (at, byte, is_kept) in [
        (4, 3, true),
        (4 + 7, 0xff, false),
        (4 + 20, 13, true),
        (4 + 20, 14, true),
        (4 + 20, 15, false),
    ] {
        let mut damaged = bytes.clone();
        damaged[at] = byte;
        let outcome = try_recover(&damaged, true).unwrap();
        assert_eq!(outcome.summary.transactions_partial, 1, "{byte} at {at}");
        let needle = &b"what it is for"[..13];
        let found = outcome.bytes.windows(13).any(|bytes| bytes == needle);
        assert_eq!(found, is_kept, "{byte} at {at}");
        assert_eq!(damage_of(&outcome.disk, recovered_file()), []);
    }
}

#[test]
fn what_the_rest_of_the_file_tells_is_put_right_and_told() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=3 {
        commit(&storage, stores(tid(n), &[(1, b"abc"), (2, b"def")])).unwrap();
    }
    drop(storage);
    let bytes = data_of(&disk);
    let length = (bytes.len() - 4) / 3;
    let (second, record) = (4 + length, 4 + length + 23);
    for (at, number, how) in [
        (record + 8, tid(9).0, "that of its transaction was put there"),
        (record + 16, record as u64, "the right one was put there"),
        (second, tid(9).0, "it was given the tid"),
    ] {
        let mut damaged = bytes.clone();
        damaged[at..at + 8].copy_from_slice(&number.to_be_bytes());
        let outcome = try_recover(&damaged, false).unwrap();
        let [note] = &outcome.notes[..] else { panic!("{:?}", outcome.notes) };
        assert!(note.what.contains(how), "{note:?}");
        assert_eq!((note.kind, outcome.summary.mended), (RecoveryKind::Mended, 1));
        assert!(outcome.bytes == bytes, "{how}");
    }
}

#[test]
fn records_that_are_not_earlier_than_the_next_transaction_are_not_kept() {
    for (number, kept) in [(2, true), (3, false), (9, false)] {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        for n in 1..=3 {
            commit(&storage, stores(tid(n), &[(n, b"abc"), (n + 10, b"def")])).unwrap();
        }
        drop(storage);
        let mut bytes = data_of(&disk);
        let length = (bytes.len() - 4) / 3;
        let second = 4 + length;
        for at in [second, second + 23 + 8, second + 23 + 45 + 8] {
            bytes[at..at + 8].copy_from_slice(&tid(number).0.to_be_bytes());
        }
        // Its second length.
        bytes[second + length - 8..second + length].fill(0);
        let outcome = try_recover(&bytes, true).unwrap();
        let expected = if kept { vec![1, number, 3] } else { vec![1, 3] };
        let expected: Vec<_> = expected.into_iter().map(tid).collect();
        assert_eq!(recovered_tids(&outcome), expected, "{number}");
        assert_eq!(outcome.summary.redated, 0);
    }
}

#[test]
fn the_reason_is_told_with_its_place() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"abc"), (2, b"def"), (3, b"ghi")])).unwrap();
    let mut bytes = data_of(&disk);
    let second = 4 + 23 + 42 + 3;
    // The length of its data.
    bytes[second + 41] ^= 0x40;
    let (_, found) = checked(&disk_of(&bytes));
    assert_eq!(found[0].position, second as u64, "{found:?}");
    let outcome = try_recover(&bytes, false).unwrap();
    let reason = format!("{} at {second}", found[0].what);
    assert!(outcome.notes[0].what.contains(&reason), "{:?}, not {reason}", outcome.notes);
}

#[test]
fn what_is_copied_is_written_about_a_mebibyte_at_a_time() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=3 {
        commit(&storage, stores(tid(n), &[(n, &vec![1; 1 << 20])])).unwrap();
    }
    drop(storage);
    let disk = FaultyDisk::new(disk);
    let lengths = Arc::new(Mutex::new(vec![0]));
    let seen = Arc::clone(&lengths);
    disk.after_each(move |_, files| {
        let length = files.bytes(recovered_file()).map_or(0, |bytes| bytes.len());
        seen.lock().unwrap().push(length);
    });
    let options = RecoverOptions {
        from: data_file().to_owned(),
        to: recovered_file().to_owned(),
        partial: false,
        drop_mismatches: false,
        progress: &|_, _| {},
    };
    recover(&disk, &options, &mut |_| {}).unwrap();
    assert!(disk.files().bytes(recovered_file()).unwrap() == data_of(disk.files()));
    let lengths = lengths.lock().unwrap();
    let most = lengths.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(most.is_some_and(|most| most < (1 << 20) + 200), "{lengths:?}");
}

#[test]
fn nothing_is_overwritten() {
    let disk = disk_of(&undone());
    let options = |to: &str| RecoverOptions {
        from: data_file().to_owned(),
        to: to.into(),
        partial: false,
        drop_mismatches: false,
        progress: &|_, _| {},
    };
    assert!(recover(&disk, &options("Data.fs"), &mut |_| {}).is_err());
    disk.put(Path::new("Other.fs.index"), b"index".to_vec());
    assert!(recover(&disk, &options("Other.fs"), &mut |_| {}).is_err());
    assert_eq!(disk.bytes(Path::new("Other.fs")), None);
    assert_eq!(data_of(&disk), undone());
}

/// What may happen to a file.
#[derive(Clone, Debug)]
enum Mutation {
    Flip(usize),
    Fill(usize, usize, u8),
    Remove(usize, usize),
    Repeat(usize, usize),
    Cut(usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let (at, length) = (0..100_000_usize, prop_oneof![1..10_usize, 1..600_usize]);
    prop_oneof![
        at.clone().prop_map(Mutation::Flip),
        (at.clone(), length.clone(), prop_oneof![Just(0), Just(0xff), any::<u8>()])
            .prop_map(|(at, length, byte)| Mutation::Fill(at, length, byte)),
        (at.clone(), length.clone()).prop_map(|(at, length)| Mutation::Remove(at, length)),
        (at.clone(), length).prop_map(|(at, length)| Mutation::Repeat(at, length)),
        at.prop_map(Mutation::Cut),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    let size = bytes.len();
    let part = |at: usize, length: usize| at % size..(at % size + length).min(size);
    match *mutation {
        _ if size == 0 => {}
        Mutation::Flip(at) => bytes[at / 8 % size] ^= 1 << (at % 8),
        Mutation::Fill(at, length, byte) => bytes[part(at, length)].fill(byte),
        Mutation::Remove(at, length) => drop(bytes.drain(part(at, length))),
        Mutation::Repeat(at, length) => bytes.extend_from_within(part(at, length)),
        Mutation::Cut(at) => bytes.truncate(at % size),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn whatever_happened_to_a_file_what_comes_out_of_it_is_whole(
        seed in 0..8_u64,
        mutations in prop::collection::vec(mutation(), 1..6),
        partial in any::<bool>(),
    ) {
        let (mut bytes, _) = written(&rand::SeedableRng::seed_from_u64(seed), 3_000);
        mutations.iter().for_each(|mutation| mutate(&mut bytes, mutation));
        match try_recover(&bytes, partial) {
            Ok(outcome) => {
                prop_assert_eq!(damage_of(&outcome.disk, recovered_file()), []);
                // What follows from the rest is put right without a word.
                let mut damage = damage_of(&outcome.disk, data_file());
                damage.retain(|damage| damage.kind != DamageKind::Previous);
                if outcome.notes.is_empty() {
                    prop_assert_eq!(damage, []);
                }
                recovered_tids(&outcome);
            }
            Err(FileStorageError::NotFileStorage { .. }) => {}
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

/// The names of blobs have tids.
#[test]
fn each_transaction_that_gets_another_tid_is_told() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for number in 1..4 {
        commit(&storage, stores(tid(number), &[(number, b"data")])).unwrap();
    }
    let mut bytes = data_of(&disk);
    // In the header of the first transaction, and in that of its record.
    for at in [4, 4 + 23 + 8] {
        bytes[at..at + 8].copy_from_slice(&tid(9).0.to_be_bytes());
    }
    let outcome = try_recover(&bytes, false).unwrap();
    assert_eq!(outcome.summary.redated, 2);
    assert_eq!(recovered_tids(&outcome), [tid(9), tid(9).next(), tid(9).next().next()]);
    let told: Vec<_> = outcome.notes.iter().flat_map(|note| note.tids.iter().copied()).collect();
    assert_eq!(told, [tid(2), tid(3)]);
    // The same tid as the second's.
    for at in [4, 4 + 23 + 8] {
        bytes[at..at + 8].copy_from_slice(&tid(2).0.to_be_bytes());
    }
    let outcome = try_recover(&bytes, false).unwrap();
    assert_eq!((outcome.summary.redated, outcome.summary.mended), (1, 1));
    assert_eq!(recovered_tids(&outcome), [tid(2), tid(2).next(), tid(3)]);
}

/// The next one says nothing of what is before it.
#[test]
fn records_are_kept_before_a_transaction_that_is_not_later_than_the_one_before_them() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for number in [5, 7, 5] {
        commit(&storage, stores(tid(number), &[(number, b"abc"), (number + 10, b"def")])).unwrap();
    }
    drop(storage);
    let mut bytes = data_of(&disk);
    let second_end = 4 + (bytes.len() - 4) / 3 * 2;
    bytes[second_end - 8..second_end].fill(0);
    let outcome = try_recover(&bytes, true).unwrap();
    assert_eq!(recovered_tids(&outcome), [tid(5), tid(7), tid(7).next()]);
}

/// Three transactions with checksums as in [`undone`], and what a recovery makes of the file that
/// has a wrong bit at `at`.
fn recover_mismatch(at: usize, partial: bool) -> (Vec<u8>, Vec<RecoveryNote>, RecoverySummary) {
    let disk = MemoryDisk::new();
    let storage = open_summed(&disk, ChecksumMode::Full);
    commit(&storage, stores(tid(1), &[(1, b"first data"), (2, b"beside")])).unwrap();
    commit(&storage, stores(tid(2), &[(1, b"other data")])).unwrap();
    let body = copied_body(&storage, Oid(1), Some("first data".into()), Some(tid(1))).unwrap();
    let records = vec![NewRecord { oid: Oid(1), body }];
    commit(&storage, (tid(3), transaction(records))).unwrap();
    storage.close().unwrap();
    drop(storage);
    flip(&disk, at as u64, 0);
    let mut notes = Vec::new();
    let options = RecoverOptions {
        from: data_file().to_owned(),
        to: recovered_file().to_owned(),
        partial,
        drop_mismatches: true,
        progress: &|_, _| {},
    };
    let summary = recover(&disk, &options, &mut |note| notes.push(note.clone())).unwrap();
    (disk.bytes(recovered_file()).unwrap(), notes, summary)
}

#[test]
fn records_that_do_not_fit_their_checksums_are_dropped_with_those_that_point_to_them() {
    let data = 4 + 23 + 42;
    for partial in [false, true] {
        let (bytes, notes, summary) = recover_mismatch(data, partial);
        let is_there = |needle: &[u8]| bytes.windows(needle.len()).any(|bytes| bytes == needle);
        assert!(!is_there(b"irst data") && is_there(b"other data"));
        assert_eq!(is_there(b"beside"), partial);
        let [first, third] = &notes[..] else { panic!("{notes:?}") };
        let lost = if partial { &[Oid(1)][..] } else { &[Oid(1), Oid(2)] };
        assert_eq!((&first.oids[..], first.records_kept), (lost, u64::from(partial)));
        assert_eq!((&third.oids[..], &third.tids[..]), (&[Oid(1)][..], &[tid(3)][..]));
        assert_eq!((summary.left_out, summary.distrust), (2, None));
    }
}

#[test]
fn checksums_of_another_file_are_not_compared_and_that_is_told() {
    let disk = MemoryDisk::new();
    let storage = open_summed(&disk, ChecksumMode::Full);
    commit(&storage, stores(tid(1), &[(1, b"data")])).unwrap();
    storage.close().unwrap();
    drop(storage);
    disk.put(data_file(), data_of(&disk));
    let options = RecoverOptions {
        from: data_file().to_owned(),
        to: recovered_file().to_owned(),
        partial: false,
        drop_mismatches: false,
        progress: &|_, _| {},
    };
    let summary = recover(&disk, &options, &mut |note| panic!("{note:?}")).unwrap();
    assert_eq!(summary.distrust, Some(Distrust::OtherFile));
}
