//! Threads that commit through locks, votes and the log writer, as sessions do.
//!
//! Each transaction moves money between accounts and counts itself, or counts while it relies on
//! accounts that do not change. Some are abandoned at some step. Conflicts are resolved with the
//! locks kept, or the transaction is aborted. Meanwhile other threads read. Properties:
//! - in the state before any tid the sum of the money is the same, for any reader at any time;
//! - each counter is the number of commits acknowledged: none is lost, none counts twice;
//! - every mailbox gets every commit once, in the order of tids, after the data are visible;
//! - a power cut afterwards leaves every acknowledged commit;
//! - no transaction waits for ever, and in the end nothing is locked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::support::{Outcome, Session, assert_idle, load, start, transaction};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zodium_disk::MemoryDisk;
use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Commit, Database, Transaction, VoteStart};
use zodium_types::{Oid, Tid};

const WRITERS: u64 = 6;
const READERS: u64 = 2;
const TRANSACTIONS: u64 = 400;
const ACCOUNTS: u64 = 8;
const MONEY: u64 = 1_000;
/// The counters come after the accounts.
const COUNTERS: u64 = 3;

#[test]
fn no_update_is_lost_and_every_state_is_consistent() {
    let seed = std::env::var("ZODIUM_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    println!("replay with ZODIUM_SEED={seed}, as far as threads can be replayed");
    let disk = MemoryDisk::new();
    let storage = start(disk.clone());
    let mut observer = Session::new(&storage);
    let first = observer.commit(initial());

    let barrier = Arc::new(Barrier::new((WRITERS + READERS) as usize));
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (storage, done) = (Arc::clone(&storage), Arc::clone(&done));
            let barrier = Arc::clone(&barrier);
            thread::spawn(move || {
                barrier.wait();
                read_until(&storage, first, &done)
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let session = Session::new(&storage);
            let random = SmallRng::seed_from_u64(seed * 1000 + number);
            let barrier = Arc::clone(&barrier);
            thread::spawn(move || {
                let mut writer = Writer { session, random, counted: BTreeMap::new() };
                barrier.wait();
                writer.run();
                writer
            })
        })
        .collect();
    let mut writers: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    done.store(true, Ordering::Relaxed);
    let states_read: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    storage.close().unwrap();
    assert_idle(&storage);

    while observer.poll().is_some() {}
    for writer in &mut writers {
        while writer.session.poll().is_some() {}
        let told = |session: &Session| session.seen.iter().map(|c| c.tid).collect::<Vec<_>>();
        assert_eq!(told(&writer.session), told(&observer)[1..]);
        check_own(writer);
    }
    check_log(&storage, &observer.seen);
    let counted: u64 = writers.iter().flat_map(|writer| writer.counted.values()).sum();
    println!("{counted} commits, {states_read} states read");
    assert!(counted > WRITERS * TRANSACTIONS / 4);
    for counter in ACCOUNTS..ACCOUNTS + COUNTERS {
        let of_writers = writers.iter().filter_map(|writer| writer.counted.get(&counter));
        assert_eq!(value(&storage, counter, Tid::MAX), of_writers.sum::<u64>());
    }
    check_after_power_cut(&disk, &storage);
}

fn initial() -> Transaction {
    let mut transaction = transaction();
    for oid in 0..ACCOUNTS {
        transaction.store(Oid(oid), Tid::ZERO, data(MONEY));
    }
    for oid in ACCOUNTS..ACCOUNTS + COUNTERS {
        transaction.store(Oid(oid), Tid::ZERO, data(0));
    }
    transaction
}

struct Writer {
    session: Session,
    random: SmallRng,
    /// How often it counted on each counter, by acknowledgement.
    counted: BTreeMap<u64, u64>,
}

impl Writer {
    fn run(&mut self) {
        for _ in 0..TRANSACTIONS {
            while self.session.poll().is_some() {}
            let counter = self.random.random_range(ACCOUNTS..ACCOUNTS + COUNTERS);
            let mut plan = Plan { counter, transfer: None, relied_on: Vec::new() };
            if self.random.random_ratio(2, 3) {
                let from = self.random.random_range(0..ACCOUNTS);
                let to = (from + self.random.random_range(1..ACCOUNTS)) % ACCOUNTS;
                plan.transfer = Some((from, to, self.random.random_range(1..20)));
            } else {
                plan.relied_on = vec![self.random.random_range(0..ACCOUNTS)];
            }
            if self.commit(&plan) {
                *self.counted.entry(counter).or_default() += 1;
            }
        }
    }

    /// Whether it was committed; not if it was abandoned, or a conflict given up.
    fn commit(&mut self, plan: &Plan) -> bool {
        let storage = Arc::clone(&self.session.storage);
        let mut transaction = transaction();
        plan.write(&storage, &mut transaction);
        let (mut number, mut start) = self.session.begin(&transaction).unwrap();
        loop {
            if self.abandons() {
                storage.abort(number, None);
                return false;
            }
            if start == VoteStart::Waiting {
                self.session.wait_granted(number);
            }
            if self.abandons() {
                storage.abort(number, None);
                return false;
            }
            match self.session.check(number, &transaction).unwrap() {
                Outcome::Voted(number, voted) if self.abandons() => {
                    storage.abort(number, Some(voted));
                    return false;
                }
                Outcome::Voted(number, voted) => {
                    self.session.finish(number, voted).unwrap();
                    return true;
                }
                Outcome::Conflicts(_, found) => {
                    if !found.iter().all(|conflict| conflict.is_resolvable()) {
                        // A read that is no longer current: its locks are free already.
                        return false;
                    }
                    if self.random.random_ratio(1, 4) {
                        storage.abort(number, None);
                        return false;
                    }
                    // Written anew over what is current, which cannot change any more.
                    plan.write(&storage, &mut transaction);
                    if storage.vote_again(number, &transaction).unwrap() {
                        start = VoteStart::Granted;
                    } else {
                        (number, start) = self.session.begin(&transaction).unwrap();
                    }
                }
            }
        }
    }

    fn abandons(&mut self) -> bool {
        self.random.random_ratio(1, 40)
    }
}

/// What a transaction is to do.
struct Plan {
    counter: u64,
    transfer: Option<(u64, u64, u64)>,
    relied_on: Vec<u64>,
}

impl Plan {
    /// From the state that is current, object by object: others commit in between.
    fn write(&self, storage: &Database, transaction: &mut Transaction) {
        let (count, serial) = current(storage, self.counter);
        transaction.store(Oid(self.counter), serial, data(count + 1));
        if let Some((from, to, most)) = self.transfer {
            let (from_value, from_serial) = current(storage, from);
            let (to_value, to_serial) = current(storage, to);
            let amount = most.min(from_value);
            transaction.store(Oid(from), from_serial, data(from_value - amount));
            transaction.store(Oid(to), to_serial, data(to_value + amount));
        }
        for oid in &self.relied_on {
            transaction.read_current(Oid(*oid), current(storage, *oid).1);
        }
    }
}

/// Reads states until told to stop; how many.
fn read_until(storage: &Database, first: Tid, done: &AtomicBool) -> u64 {
    let (mut states, mut last) = (0, first);
    while !done.load(Ordering::Relaxed) {
        let tid = storage.subscribers().announced_tid();
        assert!(tid >= last, "{tid} after {last}");
        last = tid;
        assert_eq!(money(storage, tid), ACCOUNTS * MONEY, "at {tid}");
        states += 1;
    }
    states
}

/// Each commit of a writer was told to it once, as its own, with what it wrote.
fn check_own(writer: &Writer) {
    let counted: u64 = writer.counted.values().sum();
    let mut numbers: Vec<_> = writer.session.seen.iter().map(|commit| commit.number).collect();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), writer.session.seen.len());
    assert!(counted <= numbers.len() as u64);
}

/// The log has the transactions that were told, and each state in it is consistent.
fn check_log(storage: &Database, told: &[Arc<Commit>]) {
    let mut transactions = storage.reader().iterate(None, None).unwrap();
    for (before, commit) in told.iter().enumerate() {
        let found = transactions.step().unwrap().expect("what was told is in the log");
        assert_eq!(found.tid, commit.tid);
        let mut records = transactions.records().unwrap();
        let mut oids = Vec::new();
        while let Some(record) = records.step().unwrap() {
            // What is stored again while conflicts are resolved is there twice.
            if !oids.contains(&record.oid) {
                oids.push(record.oid);
            }
        }
        assert_eq!(oids, commit.oids);
        assert_eq!(money(storage, commit.tid), ACCOUNTS * MONEY);
        let counters = ACCOUNTS..ACCOUNTS + COUNTERS;
        let now: u64 = counters.map(|oid| value(storage, oid, commit.tid.next())).sum();
        assert_eq!(now, before as u64, "each transaction counts itself");
    }
    assert!(transactions.step().unwrap().is_none());
}

fn check_after_power_cut(disk: &MemoryDisk, storage: &Database) {
    let reopened = start(disk.after_power_cut());
    assert_eq!(reopened.last_tid(), storage.last_tid());
    for oid in 0..ACCOUNTS + COUNTERS {
        assert_eq!(load(&reopened, oid, Tid::MAX), load(storage, oid, Tid::MAX));
    }
    reopened.close().unwrap();
}

fn money(storage: &Database, tid: Tid) -> u64 {
    (0..ACCOUNTS).map(|oid| value(storage, oid, tid.next())).sum()
}

fn value(storage: &Database, oid: u64, before: Tid) -> u64 {
    let (data, _) = load(storage, oid, before).expect("the object is there");
    u64::from_be_bytes(data.as_ref().try_into().unwrap())
}

fn current(storage: &Database, oid: u64) -> (u64, Tid) {
    let (data, serial) = load(storage, oid, Tid::MAX).expect("the object is there");
    (u64::from_be_bytes(data.as_ref().try_into().unwrap()), serial)
}

fn data(value: u64) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

#[test]
fn each_abandoned_transaction_frees_its_locks_for_the_one_that_waits() {
    type Abandon = fn(&mut Session) -> Box<dyn FnOnce()>;
    let granted: Abandon = |session| {
        let number = begin_granted(session);
        let storage = Arc::clone(&session.storage);
        Box::new(move || storage.abort(number, None))
    };
    let voted: Abandon = |session| {
        let (number, voted) = session.vote(store_one(session_serial(session)));
        let storage = Arc::clone(&session.storage);
        Box::new(move || storage.abort(number, Some(voted)))
    };
    let resolving: Abandon = |session| {
        let outcome = session.try_vote(&mut store_one(Tid(1))).unwrap();
        let Outcome::Conflicts(number, _) = outcome else { panic!("no conflict") };
        let storage = Arc::clone(&session.storage);
        Box::new(move || storage.abort(number, None))
    };
    let waiting: Abandon = |session| {
        let holder = begin_granted(session);
        let (number, start) = session.begin(&store_one(Tid::ZERO)).unwrap();
        assert_eq!(start, VoteStart::Waiting);
        let storage = Arc::clone(&session.storage);
        Box::new(move || {
            storage.abort(number, None);
            storage.abort(holder, None);
        })
    };
    for abandon in [granted, voted, resolving, waiting] {
        let storage = start(MemoryDisk::new());
        let (mut one, mut other) = (Session::new(&storage), Session::new(&storage));
        one.store(&[(1, "before")]);
        let abandon = abandon(&mut one);
        let transaction = store_one(session_serial(&one));
        let (number, start) = other.begin(&transaction).unwrap();
        assert_eq!(start, VoteStart::Waiting);
        abandon();
        other.wait_granted(number);
        let Ok(Outcome::Voted(number, voted)) = other.check(number, &transaction) else {
            panic!("the lock is free and nothing was written")
        };
        other.finish(number, voted).unwrap();
        storage.close().unwrap();
        assert_idle(&storage);
    }
}

#[test]
fn refused_vote_frees_its_locks() {
    let storage = start(MemoryDisk::new());
    let mut session = Session::new(&storage);
    let tid = session.store(&[(1, "before")]);
    let mut empty = transaction();
    empty.store(Oid(1), tid, Bytes::new());
    assert!(session.try_vote(&mut empty).is_err());
    let mut read = transaction();
    read.read_current(Oid(1), Tid(5));
    assert!(matches!(session.try_vote(&mut read), Ok(Outcome::Conflicts(..))));
    let mut missing = transaction();
    missing.delete(Oid(77), Tid::ZERO);
    assert!(matches!(session.try_vote(&mut missing), Ok(Outcome::Conflicts(..))));
    assert_idle(&storage);
    storage.close().unwrap();
}

#[test]
fn object_that_a_vote_relies_on_stays_as_it_is_until_the_finish() {
    let storage = start(MemoryDisk::new());
    let (mut one, mut other) = (Session::new(&storage), Session::new(&storage));
    let serial = one.store(&[(1, "before")]);
    while storage.commit_status().locking > 0 {
        thread::yield_now();
    }
    let mut relying = store_one_of(2);
    relying.read_current(Oid(1), serial);
    let (number, voted) = one.vote(relying);
    let change = store_one(serial);
    let (changing, start) = other.begin(&change).unwrap();
    assert_eq!(start, VoteStart::Waiting);
    one.finish(number, voted).unwrap();
    other.wait_granted(changing);
    assert!(matches!(other.check(changing, &change), Ok(Outcome::Voted(..))));
    storage.abort(changing, None);
    storage.close().unwrap();
}

#[test]
fn late_abort_changes_nothing() {
    let storage = start(MemoryDisk::new());
    let mut session = Session::new(&storage);
    let (number, voted) = session.vote(store_one(Tid::ZERO));
    storage.finish(number, voted).unwrap();
    storage.abort(number, None);
    assert!(matches!(session.next(), zodium_engine::Notice::Committed(_)));
    storage.abort(number, None);
    assert_eq!(session.storage.reader().object_count(), 1);
    storage.close().unwrap();
}

#[test]
fn close_writes_what_was_asked_and_refuses_what_comes_later() {
    let disk = MemoryDisk::new();
    let storage = start(disk.clone());
    let mut session = Session::new(&storage);
    let asked: Vec<_> = (1..=50)
        .map(|oid| {
            let mut transaction = transaction();
            transaction.store(Oid(oid), Tid::ZERO, data(oid));
            session.vote(transaction)
        })
        .collect();
    let (late_number, late) = session.vote(store_one_of(99));
    for (number, voted) in asked {
        storage.finish(number, voted).unwrap();
    }
    storage.close().unwrap();
    let refused = storage.finish(late_number, late);
    assert!(refused.is_err(), "the log writer has ended");
    while session.poll().is_some() {}
    assert_eq!(session.seen.len(), 50);
    assert_idle(&storage);
    let reopened = start(disk.after_power_cut());
    for oid in 1..=50 {
        assert_eq!(value(&reopened, oid, Tid::MAX), oid);
    }
    assert!(load(&reopened, 99, Tid::MAX).is_none());
    reopened.close().unwrap();
}

/// The locks of the commit before may not be free yet when its session is told.
fn begin_granted(session: &mut Session) -> TransactionNumber {
    let (number, start) = session.begin(&store_one(Tid::ZERO)).unwrap();
    if start == VoteStart::Waiting {
        session.wait_granted(number);
    }
    number
}

fn store_one(serial: Tid) -> Transaction {
    let mut transaction = transaction();
    transaction.store(Oid(1), serial, Bytes::from_static(b"new"));
    transaction
}

fn store_one_of(oid: u64) -> Transaction {
    let mut transaction = transaction();
    transaction.store(Oid(oid), Tid::ZERO, Bytes::from_static(b"new"));
    transaction
}

fn session_serial(session: &Session) -> Tid {
    let serial = session.storage.reader().current_serial(Oid(1));
    serial.unwrap().unwrap()
}
