//! One wrong bit in a header of an open file: iteration, history, undo and the undo log answer as
//! the model does, or with an error. They never give fewer or other answers without one.
//!
//! Each bit of the headers of transactions is flipped, and many of those of records. With checksums
//! this holds for all of them. Without, it holds for what the format says twice: all of a
//! transaction's header except the tid of one without records, and the tids and positions by
//! which records name their transactions.

use std::ops::ControlFlow;

use crate::support::{
    Field, History, Model, ModelTransaction, Undoing, data_file, data_of, flip_in, for_each_seed,
    open_summed, undo_record,
};
use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use zodium_disk::{Disk, MemoryDisk, OpenMode};
use zodium_filestorage::{ChecksumMode, FileStorage, FileStorageError};
use zodium_storage::{LogItem, NewBody, TransactionRecord};
use zodium_types::{Oid, Tid, TransactionStatus};

const TRANSACTIONS: usize = 50;
/// Of the bits in headers of records so many are flipped.
const RECORD_FLIPS: usize = 2_000;

/// An answer, or the position that the error names.
type Answer<T> = Result<T, u64>;

fn written(rng: &SmallRng, checksums: ChecksumMode) -> (FileStorage, MemoryDisk, Model) {
    let disk = MemoryDisk::new();
    let storage = open_summed(&disk, checksums);
    let mut history = History::new(rng.clone());
    while history.model.transactions.len() < TRANSACTIONS {
        history.commit_batch(&storage);
    }
    (storage, disk, history.model)
}

/// The bits to flip: byte, bit, and the number of the transaction.
fn bits(
    rng: &mut SmallRng,
    bytes: &[u8],
    model: &Model,
    checksums: ChecksumMode,
) -> Vec<(u64, u32, usize)> {
    let positions = model.positions();
    let covered = checksums == ChecksumMode::Full;
    let (mut of_transactions, mut of_records) = (Vec::new(), Vec::new());
    for field in Field::all(bytes, model) {
        let number = positions.partition_point(|start| *start <= field.start as u64);
        let Some(number) = number.checked_sub(1) else { continue };
        let has_records = !model.transactions[number].records.is_empty();
        let chosen = match field.name {
            "transaction tid" if !covered && !has_records => continue,
            "transaction tid" | "transaction length" | "status" | "metadata lengths" => {
                &mut of_transactions
            }
            "metadata" if covered => &mut of_records,
            "record tid" | "transaction position" | "version length" => &mut of_records,
            "oid" | "previous" | "data length" | "back pointer" if covered => &mut of_records,
            _ => continue,
        };
        let bytes = field.start as u64..field.end as u64;
        chosen.extend(bytes.flat_map(|at| (0..8).map(move |bit| (at, bit, number))));
    }
    of_records.shuffle(rng);
    of_records.truncate(RECORD_FLIPS);
    of_transactions.extend(of_records);
    of_transactions
}

fn place_of(error: &FileStorageError) -> u64 {
    match error {
        FileStorageError::Corrupt { position, .. } => *position,
        other => panic!("damage was expected, not {other}"),
    }
}

/// A transaction as an iterator gives it, in words.
fn shown(transaction: &ModelTransaction) -> String {
    let ModelTransaction { tid, status, metadata, records } = transaction;
    let records = records.iter().map(|record| (record.oid, &record.data, record.points_to));
    format!("{tid} {status:?} {metadata:?} {:?}", records.collect::<Vec<_>>())
}

/// What an iterator gives from `start` on up to `stop`, and the place of the error that ended it.
fn iterated(storage: &FileStorage, start: Tid, stop: Tid) -> (Vec<String>, Option<u64>) {
    let mut found = Vec::new();
    let mut iterate = || -> Result<(), FileStorageError> {
        let mut transactions = storage.reader().iterate(Some(start), Some(stop))?;
        while let Some(transaction) = transactions.step()? {
            let mut records = transactions.records().unwrap();
            let mut all = Vec::new();
            while let Some(TransactionRecord { oid, data, data_tid, .. }) = records.step()? {
                all.push((oid, data, data_tid));
            }
            let (tid, status) = (transaction.tid, transaction.status);
            found.push(format!("{tid} {status:?} {:?} {all:?}", transaction.metadata));
        }
        Ok(())
    };
    let error = iterate().err().map(|error| place_of(&error));
    (found, error)
}

/// The tids and oids that a read of the log shows, and whether an error ended it.
fn read(storage: &FileStorage, start: Tid) -> (Vec<(Tid, Vec<Oid>)>, bool) {
    let mut found: Vec<(Tid, Vec<Oid>)> = Vec::new();
    let Ok(mut log) = storage.reader().iterate(Some(start), None) else { return (found, true) };
    let read = log.read(true, |item| {
        match item {
            LogItem::Transaction { tid, .. } => found.push((tid, Vec::new())),
            LogItem::Record { oid, .. } => found.last_mut().unwrap().1.push(oid),
            LogItem::Skipped => {}
        }
        ControlFlow::Continue(())
    });
    // What it was in the middle of is not an answer.
    if read.is_err() {
        found.pop();
    }
    (found, read.is_err())
}

/// What an undo of each transaction writes: object by object, in words.
fn undone(storage: &FileStorage, tid: Tid) -> Answer<Vec<String>> {
    let undo = || -> Result<Vec<String>, FileStorageError> {
        let mut undoing = Undoing::default();
        let records = storage.reader().records_to_undo(tid)?;
        let bodies = records.into_iter().map(|record| {
            let body = undo_record(storage, tid, record, &mut undoing)?;
            Ok(match body {
                // The file gets the position; a wrong bit in that record may change its tid.
                Some(NewBody::SameAs(tid)) => {
                    let position = storage.reader().position_of(record.oid, tid)?;
                    format!("{} same as {position}", record.oid)
                }
                body => format!("{} {body:?}", record.oid),
            })
        });
        bodies.collect()
    };
    match undo() {
        Ok(bodies) => Ok(bodies),
        Err(FileStorageError::NotUndoable { reason, .. }) => Ok(vec![reason.to_owned()]),
        Err(error) => Err(place_of(&error)),
    }
}

fn undo_log(storage: &FileStorage) -> (Vec<Tid>, bool) {
    let mut found = Vec::new();
    let listed = storage.reader().undo_log(|transaction| {
        found.push(transaction.tid);
        true
    });
    (found, listed.is_err())
}

/// An open file and what it answers while it is sound.
struct Sound<'a> {
    storage: &'a FileStorage,
    model: &'a Model,
    /// By checksums.
    is_covered: bool,
    undo: Vec<Vec<String>>,
}

impl Sound<'_> {
    fn of<'a>(storage: &'a FileStorage, model: &'a Model) -> Sound<'a> {
        let undo = model.transactions.iter().map(|t| undone(storage, t.tid).unwrap());
        let undo: Vec<_> = undo.collect();
        let undoable = model.undoable().map(|t| t.tid).collect::<Vec<_>>();
        for (transaction, undo) in model.transactions.iter().zip(&undo) {
            let oids = undo.iter().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
            let wanted = match undoable.contains(&transaction.tid) {
                true => transaction.oids().len(),
                false => 0,
            };
            assert_eq!(oids.count(), wanted, "{undo:?}");
        }
        let is_covered = storage.checksum_metrics().is_some();
        Sound { storage, model, is_covered, undo }
    }

    /// Asks for everything near transaction `number`, one bit of which is wrong.
    fn verify(&self, number: usize, rng: &mut SmallRng, flip: &str) {
        let transactions = &self.model.transactions;
        let count = transactions.len();
        let near = number.saturating_sub(1)..(number + 2).min(count);
        let mut starts: Vec<_> = near.clone().collect();
        starts.push(rng.random_range(0..count));
        for start in starts {
            self.verify_iteration(start, rng.random_range(start..count), number, flip);
        }
        for other in near {
            if let Ok(undo) = undone(self.storage, transactions[other].tid) {
                assert_eq!(undo, self.undo[other], "undo: {flip}");
            }
        }
        for oid in transactions[number].oids() {
            let Ok(history) = self.storage.reader().history(oid, usize::MAX) else { continue };
            let history: Vec<_> = history.iter().map(|e| (e.transaction.tid, e.size)).collect();
            let wanted = self.model.revisions(oid);
            let wanted: Vec<_> = wanted.iter().rev().map(|r| (r.tid, r.size)).collect();
            assert_eq!(history, wanted, "history of {oid}: {flip}");
        }
        let wanted: Vec<Tid> = self.model.undoable().map(|t| t.tid).collect();
        assert_same_or_cut(&wanted, undo_log(self.storage), &format!("undo log: {flip}"));
        if let Ok(recent) = self.storage.reader().recent(usize::MAX) {
            let oids = |t: &ModelTransaction| if t.counts() { t.oids() } else { Vec::new() };
            let wanted: Vec<_> = transactions.iter().map(|t| (t.tid, oids(t))).collect();
            assert_eq!(recent, wanted, "recent: {flip}");
        }
    }

    fn verify_iteration(&self, start: usize, stop: usize, damaged: usize, flip: &str) {
        let transactions = &self.model.transactions;
        let (first, last) = (transactions[start].tid, transactions[stop].tid);
        let wanted = transactions[start..=stop].iter().filter(|t| t.counts()).map(shown);
        let wanted: Vec<_> = wanted.collect();
        let (found, error) = iterated(self.storage, first, last);
        if let Some(place) = error.filter(|_| !found.is_empty()) {
            let positions = self.model.positions();
            // Without a checksum a transaction without records is judged by the one behind it.
            let first = damaged.saturating_sub(usize::from(!self.is_covered));
            let damage = positions[first]..positions[damaged + 1];
            assert!(
                damage.contains(&place),
                "the error names {place}, not one in {damage:?}: {flip}"
            );
            // A later transaction may point back to what is damaged.
            if start <= damaged && damage.start == positions[damaged] {
                let before = transactions[start..damaged].iter().filter(|t| t.counts()).count();
                assert_eq!(found.len(), before, "what is sound is given: {flip}");
            }
        }
        assert_same_or_cut(&wanted, (found, error.is_some()), &format!("iteration: {flip}"));
        let all = transactions[start..].iter().filter(|t| t.counts());
        let all: Vec<_> = all.map(|t| (t.tid, t.records.iter().map(|r| r.oid).collect())).collect();
        assert_same_or_cut(&all, read(self.storage, first), &format!("read: {flip}"));
    }
}

/// All of what is wanted; or, with an error, what comes first of it.
fn assert_same_or_cut<T: PartialEq + std::fmt::Debug>(
    wanted: &[T],
    (found, is_error): (Vec<T>, bool),
    what: &str,
) {
    if let Some((found, wanted)) = found.iter().zip(wanted).find(|(found, wanted)| found != wanted)
    {
        panic!("{what}: {found:?} instead of {wanted:?}");
    }
    let is_right = if is_error { found.len() <= wanted.len() } else { found.len() == wanted.len() };
    assert!(is_right, "{what}: {} of {}, error: {is_error}", found.len(), wanted.len());
}

fn flip_headers(checksums: ChecksumMode) {
    for_each_seed(1, "damaged_headers", |_, rng| {
        let (storage, disk, model) = written(rng, checksums);
        let file = disk.open(data_file(), OpenMode::Write).unwrap();
        let sound = Sound::of(&storage, &model);
        let bits = bits(rng, &data_of(&disk), &model, checksums);
        for (at, bit, number) in &bits {
            let name = format!("bit {bit} of byte {at} in transaction {number}");
            flip_in(file.as_ref(), *at, *bit);
            sound.verify(*number, rng, &name);
            flip_in(file.as_ref(), *at, *bit);
        }
        println!("{} flips, {checksums:?}", bits.len());
    });
}

#[test]
fn with_checksums_no_wrong_bit_in_a_header_changes_an_answer() {
    flip_headers(ChecksumMode::Full);
}

#[test]
fn without_checksums_no_wrong_bit_in_what_is_said_twice_changes_an_answer() {
    flip_headers(ChecksumMode::Off);
}

#[test]
fn transaction_marked_as_unfinished_is_damage_and_not_the_end_of_the_log() {
    for_each_seed(1, "damaged_headers", |_, rng| {
        for checksums in [ChecksumMode::Full, ChecksumMode::Commit, ChecksumMode::Off] {
            let (storage, disk, model) = written(rng, checksums);
            let file = disk.open(data_file(), OpenMode::Write).unwrap();
            let position = model.positions()[10];
            file.write_all_at(b"c", position + 16).unwrap();
            let last = model.last_tid();
            let (found, error) = iterated(&storage, Tid::ZERO, last);
            assert_eq!(error, Some(position), "{checksums:?}");
            let before = model.transactions[..10].iter().filter(|t| t.counts());
            assert_eq!(found, before.map(shown).collect::<Vec<_>>(), "{checksums:?}");
            assert!(undone(&storage, model.transactions[10].tid).is_err());
            // What lies behind it is found from the end.
            assert_eq!(iterated(&storage, last, Tid::MAX).1, None, "{checksums:?}");
        }
    });
}

#[test]
fn status_is_not_believed_before_its_checksum() {
    for_each_seed(1, "damaged_headers", |_, rng| {
        let (storage, disk, model) = written(rng, ChecksumMode::Full);
        let file = disk.open(data_file(), OpenMode::Write).unwrap();
        let normal = |t: &ModelTransaction| t.status == TransactionStatus::Normal;
        let number = model.transactions.iter().rposition(normal).unwrap();
        let (tid, position) = (model.transactions[number].tid, model.positions()[number]);
        for status in [b"u", b"p"] {
            file.write_all_at(status, position + 16).unwrap();
            assert_eq!(iterated(&storage, tid, Tid::MAX), (Vec::new(), Some(position)));
            assert_eq!(undone(&storage, tid), Err(position));
            assert!(undo_log(&storage).1);
            assert!(storage.reader().recent(usize::MAX).is_err());
        }
    });
}
