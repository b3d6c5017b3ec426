//! The last bytes of a file whose transactions had been acknowledged are gone: cut off, or zeros
//! or garbage in their place.
//!
//! Wherever that begins, the file opens with the transactions before it, keeps the rest in a
//! `.trN` file, and takes commits: never with a last transaction of which some records are errors.
//! Where checksums show that what was put aside had been acknowledged, the warning says that
//! transactions are lost; without such a proof it does not.
//!
//! One wrong bit is no broken end. The checksum tells which one it is, so the transaction stays.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::support::{
    History, Model, commit, companion, copied_body, count_warnings, damage_in, data_file, data_of,
    logged, open_summed, same_answers, stores, transaction, try_open,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tracing::Level;
use zodium_blobs::NewBlob;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation, with_suffix};
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};
use zodium_storage::{Access, NewBody, NewRecord};
use zodium_types::{Oid, Tid};

#[test]
fn a_cut_end_opens_with_the_state_before_at_every_length() {
    for_each_case(|case| {
        for length in case.first()..case.bytes.len() {
            case.check(&case.bytes[..length]);
        }
    });
}

/// A part of what the tests of every length try, which take longer.
#[test]
fn last_bytes_that_are_cut_off_or_zeros_are_an_end_if_they_are_more_than_a_bit() {
    for kind in [Kind::Plain, Kind::Of256Bytes, Kind::Mixed] {
        for sums in [Sums::Closed, Sums::Off] {
            let case = Case::new(kind, sums, false);
            for start in case.bytes.len() - 10..case.bytes.len() {
                case.check(&case.bytes[..start]);
                let mut bytes = case.bytes.clone();
                bytes[start..].fill(0);
                case.check(&bytes);
            }
            let mut flipped = case.bytes.clone();
            *flipped.last_mut().unwrap() ^= 1;
            if sums.are_proof() {
                case.check(&flipped);
            }
        }
    }
}

/// A new database begins, as with ZODB, but not without a word.
#[test]
fn a_file_that_is_gone_or_empty_is_missed_if_its_index_or_checksums_are_there() {
    for length in [None, Some(0), Some(3)] {
        for left in [&[".index", ".checksums"][..], &[".index"], &[".checksums"]] {
            let disk = closed_file();
            let (bytes, side) = (data_of(&disk), left.iter().map(|suffix| companion(suffix)));
            let kept: Vec<_> = side.map(|path| (path.clone(), disk.bytes(&path))).collect();
            let disk = MemoryDisk::new();
            kept.iter().for_each(|(path, side)| disk.put(path, side.clone().unwrap()));
            if let Some(length) = length {
                disk.put(data_file(), bytes[..length].to_vec());
            }
            let (storage, messages) =
                logged(Level::ERROR, || open_summed(&disk, ChecksumMode::Full));
            assert!(messages[0].1.contains("missing or empty"), "{messages:?}");
            let is_counted = messages[0].1.contains("objects=1 ");
            assert_eq!(is_counted, left.contains(&".index"), "{messages:?}");
            storage.close().unwrap();
            for (path, side) in kept {
                assert_eq!(disk.bytes(&with_suffix(&path, ".lost")), side);
            }
            // Once: what is beside the file now is of an empty one.
            disk.remove(data_file()).unwrap();
            let (_, messages) = logged(Level::ERROR, || open_summed(&disk, ChecksumMode::Full));
            assert_eq!(messages, []);
        }
    }
}

#[test]
fn no_new_database_begins_before_what_is_left_of_the_old_one_is_kept() {
    let old = closed_file();
    let mut refused = 0;
    for nth in 1.. {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let side = [".index", ".checksums"].map(|suffix| {
            let path = companion(suffix);
            disk.files().put(&path, old.bytes(&path).unwrap());
            path
        });
        disk.fail(Operation::Folder, nth, ErrorKind::Other);
        let opened = try_open(disk.clone(), 0);
        if !disk.has_failed() {
            break;
        }
        refused += u32::from(opened.is_err());
        for path in side {
            let is_kept = disk.files().bytes(&with_suffix(&path, ".lost")) == old.bytes(&path);
            assert!(is_kept || opened.is_err(), "failure {nth}: {}", path.display());
        }
    }
    assert!(refused > 0);
}

/// A file with a transaction, its index and its checksums.
fn closed_file() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let storage = open_summed(&disk, ChecksumMode::Full);
    commit(&storage, stores(Tid(1), &[(1, b"one")])).unwrap();
    storage.close().unwrap();
    disk
}

#[test]
fn a_zeroed_end_opens_with_the_state_before_at_every_length() {
    for_each_case(|case| {
        for start in case.first()..case.bytes.len() {
            let mut bytes = case.bytes.clone();
            bytes[start..].fill(0);
            case.check(&bytes);
        }
    });
}

#[test]
fn an_end_of_garbage_opens_with_the_state_before_at_every_length() {
    for_each_case(|case| {
        for start in (case.first()..case.bytes.len()).step_by(3) {
            let mut bytes = case.bytes.clone();
            SmallRng::seed_from_u64(start as u64).fill(&mut bytes[start..]);
            case.check(&bytes);
        }
    });
}

/// The system may have lengthened the file before the power failed.
#[test]
fn a_zeroed_end_with_zeros_behind_it_opens_with_the_state_before() {
    for_each_case(|case| {
        for start in (case.first()..case.bytes.len()).step_by(5) {
            let mut bytes = case.bytes.clone();
            bytes[start..].fill(0);
            bytes.resize(bytes.len() + 700, 0);
            case.check(&bytes);
        }
    });
}

/// What follows shows that it had been written to its end.
#[test]
fn a_second_length_of_garbage_before_another_transaction_is_no_end() {
    let case = Case::new(Kind::Plain, Sums::Closed, false);
    let mut bytes = case.bytes.clone();
    let [.., last, _] = case.positions[..] else { panic!("a last transaction") };
    bytes[last - 8..last].fill(0xa5);
    let storage = case.open_with(&bytes);
    assert_eq!(storage.checksum_metrics().unwrap().damaged, 1);
    case.check_loads(&storage);
}

/// No crash leaves that, and all other records are served.
#[test]
fn a_wrong_bit_in_the_second_length_and_one_in_a_record_are_no_broken_end() {
    let case = Case::new(Kind::Plain, Sums::Closed, false);
    let mut bytes = case.bytes.clone();
    let end = bytes.len();
    bytes[end - 1] ^= 4;
    // In the data of the last record, of object 2.
    bytes[end - 9] ^= 1;
    let storage = case.open_with(&bytes);
    assert_eq!(storage.checksum_metrics().unwrap().damaged, 2);
    storage.reader().load_before(Oid(1), Tid::MAX, Access::Blocking).unwrap();
    storage.reader().load_before(Oid(2), Tid::MAX, Access::Blocking).unwrap_err();
}

/// What the last transaction consists of.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    /// Data that are zeros: only the lengths behind them change.
    Zeros,
    BackPointer,
    Deletion,
    Blob,
    Mixed,
    /// Nothing but its frame.
    Empty,
    /// Its length has a single bit in its last two bytes.
    Of256Bytes,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Plain,
        Kind::Zeros,
        Kind::BackPointer,
        Kind::Deletion,
        Kind::Blob,
        Kind::Mixed,
        Kind::Empty,
        Kind::Of256Bytes,
    ];
}

/// What the checksums beside the file are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    /// Those of a session that was closed in order.
    Closed,
    /// Those of a session that was killed.
    Killed,
    /// None are beside the file.
    Absent,
    /// None are looked at.
    Off,
    /// They end before the last transaction, which another program wrote: they are not used.
    Older,
}

impl Sums {
    const ALL: [Sums; 5] = [Sums::Closed, Sums::Killed, Sums::Absent, Sums::Off, Sums::Older];

    /// Whether they show that the last transaction had been acknowledged.
    fn are_proof(self) -> bool {
        matches!(self, Sums::Closed | Sums::Killed)
    }

    fn mode(self) -> ChecksumMode {
        if self == Sums::Off { ChecksumMode::Off } else { ChecksumMode::Full }
    }
}

/// A file of which the last transactions will be damaged.
struct Case {
    name: String,
    sums: Sums,
    disk: MemoryDisk,
    bytes: Vec<u8>,
    /// Without the last transaction.
    model: Model,
    /// Where each transaction begins, and the end.
    positions: Vec<usize>,
}

/// So many bytes of the last but one transaction are damaged too.
const INTO_THE_ONE_BEFORE: usize = 45;
/// What comes after the opening is looked at in each case of so many.
const CLOSELY: usize = 3;

const BLOBS: &str = "Blobs";
const BLOB_OID: Oid = Oid(3);
/// `ZODB.blob.Blob` without a state.
const BLOB_RECORD: &[u8] = b"cZODB.blob\nBlob\nq\x01.N.";

fn for_each_case(check: impl Fn(&Case)) {
    for kind in Kind::ALL {
        for sums in Sums::ALL {
            check(&Case::new(kind, sums, false));
            if matches!(kind, Kind::Plain | Kind::Mixed) {
                check(&Case::new(kind, sums, true));
            }
        }
    }
}

impl Case {
    fn new(kind: Kind, sums: Sums, has_index: bool) -> Case {
        let name = format!("{kind:?}, checksums {sums:?}, has an index: {has_index}");
        let disk = MemoryDisk::new();
        disk.create_folder(Path::new(BLOBS)).unwrap();
        let mut storage = open(&disk, ChecksumMode::Full);
        let mut history = History::new(SmallRng::seed_from_u64(11));
        for _ in 0..3 {
            history.commit_batch(&storage);
        }
        for salt in [1, 2] {
            let tid = history.model.last_tid().next();
            history.commit(&storage, stores(tid, &[(1, &[salt; 90]), (2, &[salt + 2; 20])]));
        }
        let start = storage.size() as usize;
        if sums == Sums::Older {
            storage.close().unwrap();
            drop(storage);
            storage = open(&disk, ChecksumMode::Off);
            disk.put(&companion(".lock"), b" 1\n".to_vec());
        }
        commit_last(&storage, kind, &history.model);
        match sums {
            Sums::Killed => drop(storage),
            _ => storage.close().unwrap(),
        }
        if sums == Sums::Absent {
            disk.remove(&companion(".checksums")).unwrap();
        }
        if !has_index {
            disk.remove(&companion(".index")).unwrap();
        }
        let bytes = data_of(&disk);
        let mut positions: Vec<_> =
            history.model.positions().iter().map(|position| *position as usize).collect();
        assert_eq!(positions.last(), Some(&start));
        positions.push(bytes.len());
        Case { name, sums, disk, bytes, model: history.model, positions }
    }

    /// Well within the last but one transaction.
    fn first(&self) -> usize {
        let [.., before, last, _] = self.positions[..] else { panic!("two transactions") };
        before.max(last - INTO_THE_ONE_BEFORE)
    }

    /// Opens the file with these bytes, which stay.
    fn open_with(&self, bytes: &[u8]) -> FileStorage {
        let disk = self.disk.after_kill();
        write_over(&disk, bytes);
        let storage = open(&disk, self.sums.mode());
        assert_eq!(data_of(&disk), bytes);
        storage
    }

    /// Opens the file with these bytes, and expects the transactions before the first wrong one.
    fn check(&self, bytes: &[u8]) {
        let first = (0..self.bytes.len()).find(|at| self.bytes.get(*at) != bytes.get(*at));
        let Some(first) = first.or((bytes.len() > self.bytes.len()).then_some(self.bytes.len()))
        else {
            return;
        };
        let context = || format!("{}: other from {first} on of {}", self.name, self.bytes.len());
        let disk = self.disk.after_kill();
        write_over(&disk, bytes);
        let (storage, warnings) = count_warnings(|| open(&disk, self.sums.mode()));
        if self.sums.are_proof() && is_one_bit(&self.bytes, bytes) {
            assert_eq!(data_of(&disk), &bytes[..self.bytes.len()], "{}", context());
            assert_eq!(storage.checksum_metrics().unwrap().damaged, 1, "{}", context());
            return self.check_loads(&storage);
        }
        let whole = self.positions.iter().filter(|position| **position <= first).count() - 1;
        let kept = self.positions[whole];
        if whole < self.positions.len() - 1 {
            assert!(same_answers(&storage, &self.model.first(whole)).unwrap(), "{}", context());
        }
        assert_eq!(data_of(&disk), &self.bytes[..kept], "{}", context());
        let aside = disk.bytes(&companion(".tr0")).unwrap_or_default();
        assert_eq!(aside, &bytes[kept..], "{}", context());
        self.check_warnings(&warnings, whole, aside.is_empty(), &context());
        if first.is_multiple_of(CLOSELY) {
            self.check_goes_on(&disk, storage, &context());
        }
    }

    fn check_warnings(&self, warnings: &[String], whole: usize, is_cut: bool, context: &str) {
        let count = |text: &str| warnings.iter().filter(|line| line.contains(text)).count();
        assert_eq!(count("aside"), usize::from(!is_cut), "{warnings:?}: {context}");
        let is_proven = self.sums.are_proof() && whole <= self.positions.len() - 2;
        if !is_cut {
            assert_eq!(count("are lost"), usize::from(is_proven), "{warnings:?}: {context}");
        }
    }

    /// The next commit is kept, nothing is damaged, and nothing else is put aside.
    fn check_goes_on(&self, disk: &MemoryDisk, storage: FileStorage, context: &str) {
        let blob = storage.blobs().unwrap().path_of(BLOB_OID, self.model.last_tid().next());
        assert_eq!(disk.bytes(&blob), self.disk.bytes(&blob), "{context}");
        let next = self.model.last_tid().next().next();
        commit(&storage, stores(next, &[(1, b"next")])).unwrap();
        storage.close().unwrap();
        drop(storage);
        let (storage, warnings) = count_warnings(|| open(disk, self.sums.mode()));
        assert_eq!(warnings, [""; 0], "{context}");
        assert_eq!(storage.last_tid(), next, "{context}");
        storage.scrub(Default::default(), u64::MAX);
        let damaged = storage.checksum_metrics().map_or(0, |metrics| metrics.damaged);
        assert_eq!(damaged, 0, "{context}");
        assert!(!disk.exists(&companion(".tr1")).unwrap(), "{context}");
        assert_eq!(damage_in(disk), [""; 0], "{context}");
    }

    fn check_loads(&self, storage: &FileStorage) {
        for oid in self.model.objects().keys() {
            storage.reader().load_before(*oid, Tid::MAX, Access::Blocking).unwrap();
        }
        assert_eq!(storage.last_tid(), self.model.last_tid().next());
    }
}

/// In place, as a disk or an operator does it: the file stays the same one.
fn write_over(disk: &MemoryDisk, bytes: &[u8]) {
    let file = disk.open(data_file(), OpenMode::Write).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.set_length(bytes.len() as u64).unwrap();
    file.sync().unwrap();
}

fn is_one_bit(before: &[u8], after: &[u8]) -> bool {
    let wrong = before.iter().zip(after).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
    before.len() <= after.len() && wrong == 1
}

fn commit_last(storage: &FileStorage, kind: Kind, model: &Model) {
    let tid = model.last_tid().next();
    let data = |data: &[u8]| NewBody::Data(data.to_vec().into());
    let undone = || {
        let source = model.transactions[model.transactions.len() - 2].tid;
        let data = storage.reader().load_serial(Oid(1), source).unwrap();
        copied_body(storage, Oid(1), data, Some(source)).unwrap()
    };
    let bodies = match kind {
        Kind::Plain => vec![(1, data(&[7; 150])), (2, data(b"b"))],
        Kind::Zeros => vec![(1, data(&[7; 30])), (2, data(&[0; 50]))],
        Kind::BackPointer => vec![(1, undone())],
        Kind::Deletion => vec![(2, NewBody::Deleted)],
        Kind::Blob => vec![(BLOB_OID.0, data(BLOB_RECORD))],
        Kind::Mixed => vec![
            (2, NewBody::Deleted),
            (1, undone()),
            (4, data(b"data")),
            (5_000, NewBody::Deleted),
        ],
        Kind::Empty => vec![],
        Kind::Of256Bytes => vec![(4, data(&[7; 100])), (5, data(&[7; 256 - 23 - 42 - 100 - 42]))],
    };
    let record = |(oid, body)| NewRecord { oid: Oid(oid), body };
    let mut new = transaction(bodies.into_iter().map(record).collect());
    if matches!(kind, Kind::Mixed) {
        new.metadata.user = b"user".to_vec();
        new.metadata.description = b"what it is for".to_vec();
    }
    if !matches!(kind, Kind::Blob) {
        return commit(storage, (tid, new)).unwrap();
    }
    let blobs = storage.blobs().unwrap();
    let mut sent = blobs.temporary().unwrap();
    sent.append(b"large").unwrap();
    let mut staged = blobs.stage(Tid::ZERO, &[(BLOB_OID, NewBlob::Sent(&sent))]).unwrap();
    staged.commit(tid).unwrap();
    commit(storage, (tid, new)).unwrap();
    staged.keep();
    blobs.settle();
}

fn open(disk: &MemoryDisk, checksums: ChecksumMode) -> FileStorage {
    let options = OpenOptions {
        checksums,
        blob_directory: Some(BLOBS.into()),
        ..OpenOptions::new(data_file())
    };
    FileStorage::open(Arc::new(disk.clone()), &options).expect("it opens")
}
