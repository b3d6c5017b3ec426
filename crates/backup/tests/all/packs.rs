//! What a backup stores after a pack: a small part of what the pack left.

use proptest::prelude::*;
use zodium_backup::repository::{Backup, KeepRules, backup, prune, verify};
use zodium_memorystorage::MemoryStorage;
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::memory::{Memory, log, plan, repository, restored, write};

/// Bytes of the records of a history.
const HISTORY_BYTES: usize = 6 << 20;
/// Bytes that a file has for a record and for a transaction, beside data and texts.
const RECORD_BYTES: usize = 42;
const TRANSACTION_BYTES: usize = 31;

/// What the records of a history are like.
#[derive(Clone, Debug)]
struct Shape {
    seed: u64,
    /// The logarithms of the bytes of a record, and of the records of a transaction, are below.
    bytes_log: u32,
    records_log: u32,
    is_compressible: bool,
    losses: Losses,
}

/// Which records a pack frees.
#[derive(Clone, Copy, Debug)]
enum Losses {
    Everywhere,
    /// Those of one stretch.
    Stretch,
    Largest,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let losses = prop_oneof![
        2 => Just(Losses::Everywhere),
        1 => Just(Losses::Stretch),
        1 => Just(Losses::Largest),
    ];
    (any::<u64>(), 6u32..22, 0u32..14, any::<bool>(), losses).prop_map(
        |(seed, bytes_log, records_log, is_compressible, losses)| Shape {
            seed,
            bytes_log,
            records_log,
            is_compressible,
            losses,
        },
    )
}

/// Random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
    }

    /// Small numbers are as frequent as large ones.
    fn below_power(&mut self, log: u32) -> usize {
        let log = self.next() % u64::from(log + 1);
        1 + (self.next() % (1 << log)) as usize
    }

    fn data(&mut self, bytes: usize, is_compressible: bool) -> Vec<u8> {
        let mut data = Vec::with_capacity(bytes + 8);
        while data.len() < bytes {
            let number = self.next();
            match is_compressible {
                true => data.extend_from_slice(format!("item {} ", number % 1000).as_bytes()),
                false => data.extend_from_slice(&number.to_le_bytes()),
            }
        }
        data.truncate(bytes);
        data
    }
}

#[derive(Clone)]
struct Transaction {
    tid: Tid,
    status: TransactionStatus,
    records: Vec<(Oid, Vec<u8>)>,
}

struct History {
    random: Random,
    transactions: Vec<Transaction>,
}

impl History {
    fn new(shape: &Shape) -> History {
        let mut history = History { random: Random(shape.seed), transactions: Vec::new() };
        history.extend(shape, HISTORY_BYTES);
        history
    }

    /// Adds transactions.
    fn extend(&mut self, shape: &Shape, bytes_max: usize) {
        let random = &mut self.random;
        let mut tid = self.transactions.last().map_or(1 << 40, |last| last.tid.0);
        let mut bytes = 0;
        while bytes < bytes_max {
            tid += 1 + random.next() % (1 << 30);
            let count = random.below_power(shape.records_log) as u64;
            let mut records = Vec::new();
            for number in 0..count {
                if bytes >= bytes_max {
                    break;
                }
                let data = random.below_power(shape.bytes_log);
                bytes += data + RECORD_BYTES;
                records.push((Oid(number), random.data(data, shape.is_compressible)));
            }
            let status = TransactionStatus::Normal;
            self.transactions.push(Transaction { tid: Tid(tid), status, records });
        }
    }

    fn bytes(&self) -> usize {
        let records = self.transactions.iter().flat_map(|it| &it.records);
        records.map(|(_, data)| data.len() + RECORD_BYTES).sum::<usize>()
            + self.transactions.len() * TRANSACTION_BYTES
    }

    /// Frees a tenth of the bytes, and marks all transactions; those without records are gone.
    fn pack(&mut self, losses: Losses) {
        let mut left = self.bytes() / 10;
        let sizes = self.transactions.iter().enumerate().flat_map(|(place, transaction)| {
            let records = transaction.records.iter().enumerate();
            records.map(move |(record, (_, data))| (place, record, data.len() + RECORD_BYTES))
        });
        let mut records: Vec<_> = sizes.collect();
        match losses {
            Losses::Everywhere => {
                let random = &mut self.random;
                records.sort_by_cached_key(|_| random.next());
            }
            Losses::Stretch => {
                let middle = self.random.next() as usize % records.len();
                records.rotate_left(middle);
            }
            Losses::Largest => records.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes)),
        }
        let mut freed = std::collections::BTreeSet::new();
        for (place, record, bytes) in records {
            if bytes <= left {
                left -= bytes;
                freed.insert((place, record));
            }
        }
        for (place, transaction) in self.transactions.iter_mut().enumerate() {
            transaction.status = TransactionStatus::Packed;
            let mut record = 0..;
            transaction.records.retain(|_| !freed.contains(&(place, record.next().unwrap())));
        }
        self.transactions.retain(|transaction| !transaction.records.is_empty());
    }

    fn storage(&self) -> MemoryStorage {
        let storage = MemoryStorage::new();
        for Transaction { tid, status, records } in &self.transactions {
            write(&storage, *tid, *status, records);
        }
        storage
    }
}

fn full(storage: &MemoryStorage) -> Backup<'_> {
    Backup { quick: false, ..plan(storage) }
}

/// Packs, and backs up after each; a kept restore point is whole.
fn check_uploads(shape: &Shape, packs: usize) {
    let memory = Memory::default();
    let repository = repository(&memory, None);
    let mut history = History::new(shape);
    backup(&repository, &full(&history.storage())).unwrap();
    let mut storage = history.storage();
    for _ in 0..packs {
        history.pack(shape.losses);
        storage = history.storage();
        let stored = backup(&repository, &full(&storage)).unwrap().stored_bytes;
        let share = stored as f64 / history.bytes() as f64;
        eprintln!("{:.2} % {shape:?}", share * 100.0);
        assert!(share < 0.15, "{share} is stored: {shape:?}");
    }
    // Nothing is new, and what differences need stays.
    assert!(!backup(&repository, &full(&storage)).unwrap().is_new);
    prune(&repository, &KeepRules { last: 1, ..KeepRules::default() }, 1, false).unwrap();
    verify(&repository, false).unwrap();
    assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("ZODIUM_TEST_PACKS").map_or(6, |text| text.parse().unwrap()),
        max_shrink_iters: 0,
        ..ProptestConfig::default()
    })]

    #[test]
    fn after_a_pack_that_frees_a_tenth_little_is_stored(shape in shapes()) {
        check_uploads(&shape, 2);
    }
}

/// Continues a history, and backs up what is new only.
#[test]
fn long_transactions_are_read_on_from_their_end() {
    let shape = Shape {
        seed: 7,
        bytes_log: 12,
        records_log: 13,
        is_compressible: false,
        losses: Losses::Everywhere,
    };
    let memory = Memory::default();
    let repository = repository(&memory, None);
    let mut history = History::new(&shape);
    for _ in 0..4 {
        let storage = history.storage();
        backup(&repository, &plan(&storage)).unwrap();
        assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
        let stored = backup(&repository, &full(&storage)).unwrap();
        assert!(!stored.is_new && stored.stored_bytes == 0);
        history.extend(&shape, HISTORY_BYTES / 4);
    }
}
