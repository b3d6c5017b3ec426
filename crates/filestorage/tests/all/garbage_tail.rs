//! Whatever stands in place of the last transactions, if it is none: the file opens as it was
//! before them, says so once, keeps what stood there, and takes commits.
//!
//! Garbage reaches to the end of the file here, and comes from any byte on: random bytes, ones,
//! zeros, what the file has further up, a whole earlier transaction that names its new place. Or
//! it is a sector of zeros where the header of a transaction or a record was. Where the garbage is
//! shorter and not zeros, see `torn_tail.rs`: that is damage, and refused.

use crate::support::{
    self, History, Model, checked, commit, companion, count_warnings, data_file, data_of, disk_of,
    open, open_summed, same_answers, stores, transaction, try_open,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zodium_disk::{Disk, MemoryDisk};
use zodium_filestorage::{ChecksumMode, IndexVerdict};
use zodium_types::Tid;

#[test]
fn garbage_from_any_byte_of_the_last_two_transactions_on_is_dropped() {
    let written = Written::new(&[150, 20, 90]);
    for kind in Garbage::ALL {
        for start in written.positions[written.positions.len() - 3]..written.bytes.len() {
            written.check(&kind.over(&written, start), None);
        }
    }
}

#[test]
fn garbage_is_dropped_with_an_index_too() {
    let written = Written::new(&[150, 20, 90]);
    let indexes = written.indexes();
    for kind in Garbage::ALL {
        let first = written.positions[written.positions.len() - 3];
        for start in (first..written.bytes.len()).step_by(7) {
            for index in &indexes {
                written.check(&kind.over(&written, start), Some(index));
            }
        }
    }
}

#[test]
fn garbage_from_any_sector_on_is_dropped() {
    let written = Written::new(&[9_000, 700, 6_000]);
    for kind in Garbage::ALL {
        let first = written.positions[written.positions.len() - 3];
        for start in (first.next_multiple_of(512)..written.bytes.len()).step_by(512) {
            written.check(&kind.over(&written, start), None);
        }
    }
}

#[test]
fn garbage_behind_the_last_transaction_is_dropped() {
    let written = Written::new(&[150, 20, 90]);
    for kind in Garbage::ALL {
        for count in [1, 7, 8, 9, 22, 23, 24, 31, 100, 512, 4096, 100_000] {
            let end = written.bytes.len();
            let longer = Written { bytes: vec![0; end + count], ..written.clone() };
            let mut bytes = kind.over(&longer, end);
            bytes[..end].copy_from_slice(&written.bytes);
            written.check(&bytes, None);
        }
    }
}

/// The last transaction has the header of a record in nearly every sector.
#[test]
fn sector_of_zeros_over_a_header_in_the_last_transaction_is_dropped() {
    let written = Written::new(&[200; 60]);
    let start = written.positions[written.positions.len() - 2];
    for sector_bytes in [512, 4096] {
        let first = start / sector_bytes * sector_bytes;
        for sector in (first..written.bytes.len()).step_by(sector_bytes) {
            let mut bytes = written.bytes.clone();
            let end = bytes.len().min(sector + sector_bytes);
            bytes[sector.max(start)..end].fill(0);
            written.check(&bytes, None);
        }
    }
}

/// Behind the last transaction the blocks held that same one, at home there or not.
#[test]
fn the_last_transaction_left_over_behind_itself_is_dropped() {
    let written = Written::new(&[150, 20, 90]);
    let (last, end) = (written.positions.len() - 2, written.bytes.len());
    let not_at_home = written.bytes[written.positions[last]..].to_vec();
    for copy in [not_at_home, written.moved(last, end)] {
        written.check(&[&written.bytes[..], &copy].concat(), None);
    }
}

/// As other programs may have written it.
#[test]
fn transaction_that_is_not_later_is_kept_unless_it_is_left_over_at_the_end() {
    let written = Written::new(&[150, 20, 90]);
    let (disk, last) = (disk_of(&written.bytes), written.model.last_tid());
    let storage = open(disk.clone());
    let (first, earlier) = (written.model.transactions[0].tid, written.model.transactions[2].tid);
    commit(&storage, stores(Tid(first.0 - 1), &[(1, b"unlike all before")])).unwrap();
    let new_tid = data_of(&disk);
    commit(&storage, stores(earlier, &[(2, b"like one before")])).unwrap();
    commit(&storage, stores(last.next(), &[(3, b"later")])).unwrap();
    let followed = data_of(&disk);
    drop(storage);
    for (bytes, last_tid) in [(new_tid, last), (followed, last.next())] {
        disk.put(data_file(), bytes.clone());
        let (storage, warnings) = count_warnings(|| try_open(disk.clone(), 0));
        assert_eq!(storage.unwrap().last_tid(), last_tid);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(data_of(&disk), bytes);
    }
}

/// They show that it had been on stable storage.
#[test]
fn transaction_that_is_not_later_is_kept_at_the_end_if_checksums_cover_it() {
    let disk = MemoryDisk::new();
    let storage = open_summed(&disk, ChecksumMode::Full);
    for number in [10, 20, 10] {
        commit(&storage, stores(Tid(number), &[(number, b"data")])).unwrap();
    }
    storage.close().unwrap();
    drop(storage);
    let bytes = data_of(&disk);
    disk.remove(&companion(".index")).unwrap();
    drop(open_summed(&disk, ChecksumMode::Full));
    assert_eq!(data_of(&disk), bytes);
    disk.remove(&companion(".index")).unwrap();
    disk.remove(&companion(".checksums")).unwrap();
    drop(open(disk.clone()));
    let third = 4 + (bytes.len() - 4) / 3 * 2;
    assert_eq!(data_of(&disk), &bytes[..third]);
}

/// As copyTransactionsFrom makes it of two storages, one after the other.
#[test]
fn transaction_without_records_is_read_where_tids_go_back() {
    // The one with an odd tid has no records.
    for tids in [[10, 20, 30, 15, 18, 40], [10, 20, 30, 15, 40, 50], [10, 20, 35, 30, 40, 50]] {
        let tids = tids.map(Tid);
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        for tid in tids {
            match tid.0 % 2 {
                1 => commit(&storage, (tid, transaction(vec![]))).unwrap(),
                _ => commit(&storage, stores(tid, &[(tid.0, b"data")])).unwrap(),
            }
        }
        drop(storage);
        let storage = open_summed(&disk, ChecksumMode::Full);
        let mut log = storage.reader().iterate(None, None).unwrap();
        let mut found = Vec::new();
        while let Some(transaction) = log.step().unwrap() {
            found.push(transaction.tid);
        }
        assert_eq!(found, tids);
        assert_eq!(storage.damaged_places(), 0);
    }
}

/// A last tid that is not the latest would end walks to it early, and hide later revisions.
#[test]
fn the_latest_transaction_is_known_at_each_opening_wherever_it_stands() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for tid in [10, 30, 20] {
        commit(&storage, stores(Tid(tid), &[(tid, b"data")])).unwrap();
    }
    drop(storage);
    for round in 0..3 {
        let storage = open(disk.clone());
        assert_eq!(storage.last_tid(), Tid(30), "round {round}");
        storage.close().unwrap();
    }
    let storage = open(disk.clone());
    commit(&storage, stores(Tid(40), &[(1, b"later")])).unwrap();
    storage.close().unwrap();
    drop(storage);
    assert_eq!(open(disk).last_tid(), Tid(40));
}

#[derive(Clone, Copy, Debug)]
enum Garbage {
    Zeros,
    Ones,
    Random,
    /// What the file begins with.
    Copies,
    /// A transaction further up, whole and at home in its new place, and ones behind it.
    Earlier,
}

impl Garbage {
    const ALL: [Garbage; 5] =
        [Garbage::Zeros, Garbage::Ones, Garbage::Random, Garbage::Copies, Garbage::Earlier];

    /// The file with garbage from `start` to its end, which for an earlier transaction may come
    /// later than it was.
    fn over(self, written: &Written, start: usize) -> Vec<u8> {
        let mut bytes = written.bytes.clone();
        match self {
            Garbage::Zeros => bytes[start..].fill(0),
            Garbage::Ones => bytes[start..].fill(0xff),
            Garbage::Random => {
                SmallRng::seed_from_u64(start as u64).fill(&mut bytes[start..]);
            }
            Garbage::Copies => {
                let earlier = written.bytes[4..].iter().copied();
                bytes[start..].iter_mut().zip(earlier).for_each(|(byte, copy)| *byte = copy);
            }
            Garbage::Earlier => {
                bytes[start..].fill(0xff);
                let number = start % (written.positions.len() - 3);
                let moved = written.moved(number, start);
                let room = bytes.len() - start;
                if start.is_multiple_of(2) {
                    bytes.truncate(start);
                    bytes.extend(moved);
                } else {
                    let count = moved.len().min(room);
                    bytes[start..start + count].copy_from_slice(&moved[..count]);
                }
            }
        }
        bytes
    }
}

/// A file of several transactions, the last two of records of given lengths.
#[derive(Clone)]
struct Written {
    bytes: Vec<u8>,
    model: Model,
    /// Of the transactions, and of the end.
    positions: Vec<usize>,
}

impl Written {
    fn new(lengths: &[usize]) -> Written {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        let mut history = History::new(SmallRng::seed_from_u64(8));
        for _ in 0..5 {
            history.commit_batch(&storage);
        }
        for salt in [3, 7] {
            let data: Vec<_> = lengths.iter().map(|length| vec![salt; *length]).collect();
            let objects: Vec<_> = (20..).zip(data.iter().map(Vec::as_slice)).collect();
            history.commit(&storage, stores(history.model.last_tid().next(), &objects));
        }
        let positions = history.model.positions().iter().map(|at| *at as usize).collect();
        Written { bytes: data_of(&disk), model: history.model, positions }
    }

    /// Indexes saved before the last two transactions, between them, and after them.
    fn indexes(&self) -> Vec<MemoryDisk> {
        let ends = &self.positions[self.positions.len() - 3..];
        let saved = |end: &usize| {
            let disk = disk_of(&self.bytes[..*end]);
            open(disk.clone()).close().unwrap();
            disk
        };
        ends.iter().map(saved).collect()
    }

    /// A transaction as it would stand at another position.
    fn moved(&self, number: usize, position: usize) -> Vec<u8> {
        let (start, end) = (self.positions[number], self.positions[number + 1]);
        let mut bytes = self.bytes[start..end].to_vec();
        let transaction = &self.model.transactions[number];
        let mut records = Model { transactions: vec![transaction.clone()] }.record_positions();
        let shift = |at: u64| at as usize - 4;
        for (_, at) in records.drain(..) {
            let field = shift(at) + 24;
            bytes[field..field + 8].copy_from_slice(&(position as u64).to_be_bytes());
        }
        bytes
    }

    /// Opens, and expects what was before the first byte that is not as it was.
    fn check(&self, bytes: &[u8], index_of: Option<&MemoryDisk>) {
        let first = (0..bytes.len()).find(|at| self.bytes.get(*at) != bytes.get(*at));
        let Some(first) = first else { return };
        let whole = self.positions.iter().filter(|position| **position <= first).count() - 1;
        let (expected, kept) = (self.model.first(whole), self.positions[whole]);
        let context = || format!("garbage from {first} on, {:x?}", &bytes[first..]);
        let disk = index_of.map_or_else(MemoryDisk::new, MemoryDisk::after_power_cut);
        disk.put(data_file(), bytes.to_vec());

        let (storage, warnings) = count_warnings(|| try_open(disk.clone(), 0));
        let storage = storage.unwrap_or_else(|error| panic!("{error}: {}", context()));
        assert!(same_answers(&storage, &expected).unwrap(), "{}", context());
        assert_eq!(data_of(&disk), &self.bytes[..kept], "{}", context());
        assert_eq!(disk.bytes(&companion(".tr0")).unwrap(), &bytes[kept..], "{}", context());
        // An index of what was cut is not believed, which is said too.
        let of_index = usize::from(warnings.iter().any(|warning| warning.contains("index")));
        assert_eq!(warnings.len() - of_index, 1, "{warnings:?}: {}", context());
        assert!(index_of.is_some() || of_index == 0, "{warnings:?}");

        let next = self.model.last_tid().next();
        commit(&storage, stores(next, &[(1, b"next")])).unwrap();
        drop(storage);
        let (reopened, warnings) = count_warnings(|| try_open(disk.clone(), 0));
        assert_eq!(reopened.unwrap().last_tid(), next);
        // The index that was not believed is another one now.
        assert_eq!(warnings, [""; 0], "{}", context());
        if first.is_multiple_of(16) {
            assert_eq!(damage_in(&disk), [""; 0], "{}", context());
        }
    }
}

/// What a check of the file without its index finds.
fn damage_in(disk: &MemoryDisk) -> Vec<String> {
    disk.remove(&companion(".index")).unwrap();
    assert_eq!(checked(disk).0.index, IndexVerdict::None);
    support::damage_in(disk)
}
