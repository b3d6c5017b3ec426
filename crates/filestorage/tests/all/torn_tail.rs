//! What a crash leaves at the end of the file, and what only looks like it.
//!
//! A transaction that was being written when the process or the machine died is cut short at some
//! byte, or zeros stand from some byte on, or it is marked as voted and not finished. The file
//! then opens with all transactions before it, and the tail is kept in a `.trN` file: cutting is
//! the one thing an opening does that cannot be undone.
//!
//! The same length field with a wrong bit, anywhere, looks alike to a program that only reads
//! forward. There the file must be refused and not one byte of it changed.

use crate::support::{
    History, check_everything, commit, companion, damaged_at, data_file, data_of, disk_of, logged,
    open, open_read_only, overwrite, same_answers, stores, try_open,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tracing::Level;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, Operation};
use zodium_types::Tid;

#[test]
fn torn_tail_is_dropped_at_every_byte() {
    let written = Written::new();
    for length in written.last_position()..written.bytes.len() {
        let torn = &written.bytes[..length];
        check_recovered(&written, &disk_of(torn), torn);
    }
}

#[test]
fn torn_tail_is_dropped_with_an_index_too() {
    let written = Written::new();
    let older = {
        let disk = disk_of(&written.bytes[..written.last_position()]);
        open(disk.clone()).close().unwrap();
        disk
    };
    let newer = disk_of(&written.bytes);
    open(newer.clone()).close().unwrap();
    for index_of in [older, newer] {
        for length in written.last_position()..written.bytes.len() {
            let torn = &written.bytes[..length];
            let disk = index_of.after_power_cut();
            disk.put(data_file(), torn.to_vec());
            check_recovered(&written, &disk, torn);
        }
    }
}

#[test]
fn zeroed_tail_is_dropped_from_every_byte() {
    let written = Written::new();
    for further in [0, 1, 7, 8, 4096] {
        for start in written.last_position()..written.bytes.len() {
            let mut torn = written.bytes.clone();
            torn[start..].fill(0);
            torn.resize(torn.len() + further, 0);
            check_recovered(&written, &disk_of(&torn), &torn);
        }
    }
}

#[test]
fn zeros_behind_the_last_transaction_are_dropped() {
    let written = Written::new();
    for count in [1, 7, 8, 22, 23, 24, 4096, 3 << 20] {
        let mut bytes = written.bytes.clone();
        bytes.resize(bytes.len() + count, 0);
        let disk = disk_of(&bytes);
        assert!(same_answers(&open(disk.clone()), &written.model).unwrap());
        assert_eq!(disk.bytes(&companion(".tr0")).unwrap(), vec![0; count]);
    }
}

#[test]
fn voted_and_not_finished_transaction_is_dropped_at_every_byte() {
    let mut written = Written::new();
    let status = written.last_position() + 16;
    written.bytes[status] = b'c';
    for length in status + 1..=written.bytes.len() {
        let torn = &written.bytes[..length];
        check_recovered(&written, &disk_of(torn), torn);
    }
}

#[test]
fn the_cut_is_on_stable_storage_once_the_file_is_open() {
    let written = Written::new();
    let start = written.last_position();
    let disk = disk_of(&written.bytes[..start + 40]);
    let _storage = open(disk.clone());
    assert_eq!(data_of(&disk.after_power_cut()), &written.bytes[..start]);
}

#[test]
fn the_log_tells_where_a_tail_began_and_how_long_it_was() {
    let written = Written::new();
    let start = written.last_position();
    for length in [start + 1, start + 40, written.bytes.len() - 1] {
        let disk = disk_of(&written.bytes[..length]);
        let (_, messages) = logged(Level::WARN, || open(disk));
        let [(level, text)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!(*level, Level::WARN);
        assert!(text.contains("put an unfinished transaction aside"), "{text}");
        let place = format!("position={start} bytes={} ", length - start);
        assert!(text.contains(&place), "{text}");
    }
}

#[test]
fn tails_are_kept_under_numbers_that_count_up() {
    let written = Written::new();
    let disk = MemoryDisk::new();
    for number in 0..4 {
        let torn = &written.bytes[..written.last_position() + 10 + number];
        disk.put(data_file(), torn.to_vec());
        open(disk.clone());
        for kept in 0..=number {
            let expected = &written.bytes[written.last_position()..][..10 + kept];
            assert_eq!(disk.bytes(&companion(&format!(".tr{kept}"))).unwrap(), expected);
        }
        assert!(!disk.exists(&companion(&format!(".tr{}", number + 1))).unwrap());
    }
}

#[test]
fn reader_ignores_the_tail_and_changes_nothing() {
    let written = Written::new();
    for length in written.last_position()..written.bytes.len() {
        let torn = &written.bytes[..length];
        let disk = disk_of(torn);
        let storage = open_read_only(disk.clone()).unwrap();
        assert!(same_answers(&storage, &written.before_last()).unwrap());
        let refused = commit(&storage, stores(Tid::MAX, &[(1, b"new")]));
        assert!(matches!(refused, Err(zodium_filestorage::FileStorageError::ReadOnly { .. })));
        assert!(storage.save_index().is_err());
        storage.close().unwrap();
        drop(storage);
        assert_eq!(data_of(&disk), torn);
        assert_eq!(disk.paths(), [data_file()]);
    }
}

#[test]
fn length_with_a_wrong_bit_is_refused_and_never_cut() {
    let written = Written::new();
    for (number, start) in written.positions().enumerate() {
        let end = written.model.positions()[number + 1] as usize;
        for field in [start + 8, end - 8] {
            for bit in 0..64 {
                let mut damaged = written.bytes.clone();
                damaged[field + bit / 8] ^= 1 << (bit % 8);
                check_refused(&damaged, start, &format!("bit {bit} at {field}"));
            }
        }
    }
}

#[test]
fn shortest_transactions_behind_a_wrong_length_are_not_cut() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for number in 1..=3 {
        commit(&storage, stores(Tid(number), &[(number, b"x")])).unwrap();
    }
    drop(storage);
    let bytes = data_of(&disk);
    let start = 4 + (bytes.len() - 4) / 3;
    for wrong in [u64::MAX, 1 << 40, bytes.len() as u64] {
        let mut damaged = bytes.clone();
        damaged[start + 8..start + 16].copy_from_slice(&wrong.to_be_bytes());
        check_refused(&damaged, start, &format!("length {wrong}"));
    }
}

#[test]
fn length_with_a_wrong_bit_before_a_torn_tail_is_refused() {
    let written = Written::new();
    let start = written.positions().nth(2).unwrap();
    for length in written.last_position()..written.bytes.len() {
        for bit in 0..64 {
            let mut damaged = written.bytes[..length].to_vec();
            damaged[start + 8 + bit / 8] ^= 1 << (bit % 8);
            check_refused(&damaged, start, &format!("bit {bit}, {length} bytes left"));
        }
    }
}

#[test]
fn zeroed_piece_before_the_last_transaction_is_refused() {
    let written = Written::new();
    for start in written.positions().take(3) {
        let mut damaged = written.bytes.clone();
        damaged[start..start + 40].fill(0);
        check_refused(&damaged, start, "zeros in the middle");
        damaged[written.last_position() + 30..].fill(0);
        check_refused(&damaged, start, "zeros in the middle and at the end");
    }
}

/// Whole transactions follow, each some bytes before or behind the position that its records name.
#[test]
fn bytes_that_are_missing_or_inserted_before_the_last_transaction_are_refused() {
    let written = Written::new();
    let starts: Vec<_> = written.positions().collect();
    let start_of = |place| starts.iter().rev().find(|start| **start <= place).copied().unwrap();
    for place in (starts[0]..written.last_position()).step_by(5) {
        for count in [1, 8, 100] {
            let end = place + count;
            if end <= written.last_position() {
                let mut damaged = written.bytes.clone();
                damaged.drain(place..end);
                check_refused(&damaged, start_of(place), &format!("{place}..{end} missing"));
            }
            let mut damaged = written.bytes.clone();
            damaged.splice(place..place, vec![b'i'; count]);
            check_refused(&damaged, start_of(place), &format!("{count} bytes more at {place}"));
        }
    }
}

/// The opening reads only, so a server may have the file open.
#[test]
fn a_transaction_that_is_written_during_an_opening_is_no_damage() {
    let written = Written::new();
    let (start, end) = (written.positions().nth(2).unwrap(), written.positions().nth(3).unwrap());
    let mut unfinished = written.bytes.clone();
    unfinished[start..end].fill(0);
    let sound = FaultyDisk::new(disk_of(&written.bytes));
    open_read_only(sound.clone()).unwrap();
    let mut seen_unfinished = 0;
    for nth in 1.. {
        let disk = FaultyDisk::new(disk_of(&unfinished));
        let (files, bytes) = (disk.files().clone(), written.bytes.clone());
        before_read(&disk, nth, move || overwrite(&files, data_file(), &bytes));
        let Ok(storage) = open_read_only(disk.clone()) else { break };
        let reads = disk.count(Operation::Read);
        seen_unfinished += u32::from(reads > sound.count(Operation::Read));
        assert!(same_answers(&storage, &written.model).unwrap(), "{nth}");
    }
    assert!(seen_unfinished > 0);
}

/// Calls `call` before the nth read from now.
fn before_read(disk: &FaultyDisk, nth: u32, call: impl FnOnce() + Send + 'static) {
    let again = disk.clone();
    disk.before_next(Operation::Read, move || match nth {
        1 => call(),
        _ => before_read(&again, nth - 1, call),
    });
}

#[test]
fn data_that_hold_a_transaction_are_not_taken_for_one() {
    let written = Written::new();
    let disk = disk_of(&written.bytes);
    let storage = open(disk.clone());
    commit(&storage, stores(written.model.last_tid().next(), &[(1, &written.bytes)])).unwrap();
    drop(storage);
    let mut torn = data_of(&disk);
    torn.truncate(torn.len() - 3);
    let storage = open(disk_of(&torn));
    assert!(same_answers(&storage, &written.model).unwrap());
}

/// A file of several transactions, the last with all kinds of records.
struct Written {
    bytes: Vec<u8>,
    model: crate::support::Model,
}

impl Written {
    fn new() -> Written {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        let mut history = History::new(SmallRng::seed_from_u64(5));
        for _ in 0..6 {
            history.commit_batch(&storage);
        }
        // Longer than 256 bytes: the last bytes of its length are two.
        let last = history.model.last_tid().next();
        let new = stores(last, &[(1, &[1; 200]), (2, b"b"), (3, b"c")]);
        history.commit(&storage, new);
        Written { bytes: data_of(&disk), model: history.model }
    }

    fn positions(&self) -> impl Iterator<Item = usize> {
        let positions = self.model.positions();
        let count = positions.len() - 1;
        positions.into_iter().take(count).map(|position| position as usize)
    }

    fn last_position(&self) -> usize {
        self.positions().last().unwrap()
    }

    fn before_last(&self) -> crate::support::Model {
        self.model.first(self.model.transactions.len() - 1)
    }
}

fn check_recovered(written: &Written, disk: &MemoryDisk, torn: &[u8]) {
    let context = || format!("{} of {} bytes", torn.len(), written.bytes.len());
    let start = written.last_position();
    let storage = open(disk.clone());
    let expected = written.before_last();
    assert!(same_answers(&storage, &expected).unwrap(), "{}", context());
    assert_eq!(data_of(disk), &written.bytes[..start], "{}", context());
    let kept = disk.bytes(&companion(".tr0")).unwrap_or_default();
    assert_eq!(kept, &torn[start..], "{}", context());
    assert_eq!(disk.after_power_cut().bytes(&companion(".tr0")).unwrap_or_default(), kept);

    let mut history = History::after(&expected, SmallRng::seed_from_u64(torn.len() as u64));
    history.commit_batch(&storage);
    drop(storage);
    let reopened = try_open(disk.clone(), 0).unwrap();
    assert!(same_answers(&reopened, &history.model).unwrap(), "{}", context());
    if torn.len().is_multiple_of(64) {
        check_everything(&reopened, &history.model, &mut SmallRng::seed_from_u64(1));
    }
    assert!(!disk.exists(&companion(".tr1")).unwrap(), "{}", context());
}

fn check_refused(damaged: &[u8], position: usize, what: &str) {
    let disk = disk_of(damaged);
    assert_eq!(damaged_at(try_open(disk.clone(), 0)), position as u64, "{what}");
    assert_eq!(damaged_at(open_read_only(disk.clone())), position as u64, "{what}");
    assert_eq!(data_of(&disk), damaged, "{what}");
    assert_eq!(disk.paths(), [data_file()], "{what}");
}
