//! The invalidations for a client that was disconnected: the objects written since, from memory or
//! from the log, or that these are no longer known. Never fewer than were written.

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::support::{CONFIG, Session, load, start, start_with, transaction};
use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zodium_disk::{Disk, ManualClock, MemoryDisk, OpenMode, SystemClock};
use zodium_engine::{Config, Database, Mailbox, Notice, VoteStart};
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};
use zodium_types::{Oid, Tid};

#[test]
fn what_was_written_in_between_is_told_each_object_once() {
    let storage = start(MemoryDisk::new());
    let mut session = Session::new(&storage);
    let first = session.store(&[(1, "a"), (2, "a")]);
    let second = session.store(&[(2, "b"), (3, "b")]);
    let third = session.store(&[(3, "c"), (1, "c")]);
    let changed = |since, told| storage.subscribers().recently_changed(since, told).map(sorted);
    assert_eq!(changed(first, third), Some(vec![1, 2, 3]));
    assert_eq!(changed(second, third), Some(vec![1, 3]));
    assert_eq!(changed(first, second), Some(vec![2, 3]));
    // A tid between two transactions, as a client of another time may have.
    assert_eq!(changed(first.next(), third), Some(vec![1, 2, 3]));
    assert_eq!(changed(third, third), Some(vec![]));
    assert_eq!(changed(Tid::MAX, third), Some(vec![]));
    // What comes after the last one told will come as a notice.
    assert_eq!(changed(second, second), Some(vec![]));
    storage.close().unwrap();
}

#[test]
fn empty_file_knows_all_since_its_beginning() {
    let storage = start(MemoryDisk::new());
    let mut session = Session::new(&storage);
    assert_eq!(storage.subscribers().recently_changed(Tid::ZERO, Tid::ZERO), Some(vec![]));
    let tid = session.store(&[(1, "a")]);
    assert_eq!(storage.subscribers().recently_changed(Tid::ZERO, tid), Some(vec![Oid(1)]));
    storage.close().unwrap();
}

#[test]
fn only_so_many_transactions_are_remembered_also_after_a_restart() {
    for size in [0, 1, 2, 5, 30] {
        let disk = MemoryDisk::new();
        let mut tids = Vec::new();
        for _ in 0..3 {
            let config = Config { invalidation_queue_size: size, ..CONFIG };
            let clock = Arc::new(zodium_disk::SystemClock::new());
            let storage = start_with(disk.clone(), clock, &config);
            let mut session = Session::new(&storage);
            check_remembered(&storage, &tids, size);
            for _ in 0..4 {
                let number = tids.len() as u64 + 1;
                tids.push(session.store(&[(number, "data")]));
                check_remembered(&storage, &tids, size);
            }
            storage.close().unwrap();
        }
    }
}

/// Transaction n wrote object n, counted from 1.
fn check_remembered(storage: &Database, tids: &[Tid], size: usize) {
    let Some(&last) = tids.last() else { return };
    for (since, tid) in tids.iter().enumerate() {
        let written: Vec<_> = (since as u64 + 2..=tids.len() as u64).collect();
        let told = storage.subscribers().recently_changed(*tid, last).map(sorted);
        if *tid == last {
            assert_eq!(told, Some(vec![]));
        } else if since + size >= tids.len() {
            assert_eq!(told, Some(written), "since {since} of {}, {size} kept", tids.len());
        } else {
            assert_eq!(told, None, "since {since} of {}, {size} kept", tids.len());
        }
    }
}

#[test]
fn log_is_read_for_those_that_were_not_away_too_long() {
    let now = 1_700_000_000_000_000_000;
    let clock = Arc::new(ManualClock::at(now));
    let age = Some(Duration::from_secs(3600));
    let config = Config { invalidation_queue_size: 1, invalidation_age: age, ..CONFIG };
    let storage = start_with(MemoryDisk::new(), Arc::clone(&clock) as _, &config);
    let mut session = Session::new(&storage);
    let first = session.store(&[(1, "a")]);
    clock.advance(Duration::from_secs(1800));
    let second = session.store(&[(2, "b")]);
    let third = session.store(&[(3, "c"), (2, "c")]);
    assert_eq!(storage.subscribers().recently_changed(first, third), None);
    assert!(storage.reads_log_since(first));
    let changed = |since, told| sorted(storage.changed_in_log(since, told).unwrap());
    assert_eq!(changed(first, third), [2, 3]);
    assert_eq!(changed(first, second), [2]);
    assert_eq!(changed(third, third), [0; 0]);
    clock.advance(Duration::from_secs(1801));
    assert!(!storage.reads_log_since(first));
    assert!(storage.reads_log_since(second));
    assert!(storage.reads_log_since(Tid::MAX));
    storage.close().unwrap();

    let without = start(MemoryDisk::new());
    assert!(!without.reads_log_since(first));
    without.close().unwrap();
}

#[test]
fn memory_and_log_tell_the_same() {
    let storage = start(MemoryDisk::new());
    let mut session = Session::new(&storage);
    let mut random = SmallRng::seed_from_u64(1);
    let mut tids = Vec::new();
    for _ in 0..60 {
        let mut objects = vec![(random.random_range(0..20), "data")];
        objects.extend(random.random_bool(0.5).then_some((30, "data")));
        tids.push(session.store(&objects));
    }
    for since in &tids {
        for told in &tids {
            let recent = storage.subscribers().recently_changed(*since, *told).map(sorted);
            let in_log = sorted(storage.changed_in_log(*since, *told).unwrap());
            assert_eq!(recent, Some(in_log));
        }
    }
    storage.close().unwrap();
}

/// A subscriber is told the last tid in the same moment, so that nothing falls in between.
#[test]
fn subscriber_misses_nothing_after_the_tid_it_was_given() {
    let storage = start(MemoryDisk::new());
    let writer = {
        let mut session = Session::new(&storage);
        std::thread::spawn(move || {
            let tids: Vec<_> = (1..=300).map(|oid| session.store(&[(oid, "data")])).collect();
            tids
        })
    };
    let mut subscribed = Vec::new();
    while !writer.is_finished() {
        subscribed.push(Session::subscribed(&storage));
        std::thread::sleep(Duration::from_millis(1));
    }
    let tids = writer.join().unwrap();
    storage.close().unwrap();
    for (last, mut session) in subscribed {
        while session.poll().is_some() {}
        let told: Vec<_> = session.seen.iter().map(|commit| commit.tid).collect();
        let later: Vec<_> = tids.iter().copied().filter(|tid| *tid > last).collect();
        assert_eq!(told, later);
    }
}

/// A mailbox that looks at the storage in the moment in which commits are posted.
#[derive(Default)]
struct Witness {
    storage: OnceLock<Weak<Database>>,
    seen: Mutex<Vec<Moment>>,
}

/// What holds while a batch of commits is announced.
#[derive(Debug)]
struct Moment {
    commits: usize,
    last: Tid,
    announced: Tid,
    /// Commits whose locks are held.
    locked: usize,
    oldest_grant: Option<Duration>,
}

impl Mailbox for Witness {
    fn post(&self, notice: Notice) {
        let Notice::Committed(commits) = notice else { return };
        let storage = self.storage.get().and_then(Weak::upgrade).expect("it is open");
        let status = storage.commit_status();
        self.seen.lock().push(Moment {
            commits: commits.len(),
            last: commits.last().expect("not empty").tid,
            announced: storage.subscribers().announced_tid(),
            locked: status.writing,
            oldest_grant: status.oldest_grant,
        });
    }
}

/// A transaction that gets the locks next is checked against what its client may know.
#[test]
fn commits_are_known_as_announced_and_keep_their_locks_while_they_are_posted() {
    let storage = start(MemoryDisk::new());
    let witness = Arc::new(Witness::default());
    witness.storage.set(Arc::downgrade(&storage)).unwrap();
    storage.subscribers().add(Arc::clone(&witness) as _);
    let mut session = Session::new(&storage);
    for number in 0..20 {
        session.store(&[(number % 3, "data")]);
    }
    storage.close().unwrap();
    let seen = witness.seen.lock();
    assert_eq!(seen.iter().map(|moment| moment.commits).sum::<usize>(), 20);
    for moment in seen.iter() {
        assert_eq!(moment.announced, moment.last, "{moment:?}");
        assert_eq!(moment.locked, moment.commits, "{moment:?}");
        // A client that has its answer asks for the status, and sees no lock of its own.
        assert_eq!(moment.oldest_grant, None, "{moment:?}");
    }
}

#[test]
fn a_mailbox_that_was_removed_is_told_nothing() {
    let storage = start(MemoryDisk::new());
    let mailboxes = [(); 2].map(|()| Arc::new(Witness::default()));
    for mailbox in &mailboxes {
        mailbox.storage.set(Arc::downgrade(&storage)).unwrap();
        storage.subscribers().add(Arc::clone(mailbox) as _);
    }
    let mut session = Session::new(&storage);
    session.store(&[(1, "data")]);
    let removed: Arc<dyn Mailbox> = Arc::<Witness>::clone(&mailboxes[0]);
    storage.subscribers().remove(&removed);
    let last = session.store(&[(2, "data")]);
    assert_eq!(mailboxes.each_ref().map(|mailbox| mailbox.seen.lock().len()), [1, 2]);
    assert_eq!(storage.subscribers().add(removed), last);
    storage.close().unwrap();
}

#[test]
fn a_waiting_transaction_hears_of_the_commit_before_it_gets_the_locks() {
    let storage = start(MemoryDisk::new());
    let (mut first, mut second) = (Session::new(&storage), Session::new(&storage));
    let serial = first.store(&[(1, "first")]);
    assert!(matches!(second.next(), Notice::Committed(_)));
    let store = |data: &'static [u8]| {
        let mut transaction = transaction();
        transaction.store(Oid(1), serial, Bytes::from_static(data));
        transaction
    };
    let (number, voted) = first.vote(store(b"second"));
    let (waiting, start) = second.begin(&store(b"third")).unwrap();
    assert_eq!(start, VoteStart::Waiting);
    let tid = first.finish(number, voted).unwrap();
    assert!(matches!(second.next(), Notice::Committed(commits) if commits[0].tid == tid));
    assert!(matches!(second.next(), Notice::Granted(granted) if granted == waiting));
    assert_eq!(load(&storage, 1, Tid::MAX).map(|(_, serial)| serial), Some(tid));
    storage.abort(waiting, None);
    storage.close().unwrap();
}

/// A wrong bit in a header must not hide an object that was written, or the client keeps what is
/// stale. One bit of each byte is flipped in the open file.
#[test]
fn no_wrong_bit_in_a_header_hides_an_object_that_was_written() {
    let disk = MemoryDisk::new();
    let path = Path::new("Data.fs");
    let options = OpenOptions { checksums: ChecksumMode::Full, ..OpenOptions::new(path) };
    let file = FileStorage::open(Arc::new(disk.clone()), &options).unwrap();
    let clock = Arc::new(SystemClock::new());
    let storage = Database::start(Arc::new(file), clock, &CONFIG).unwrap();
    let mut session = Session::new(&storage);
    let mut random = SmallRng::seed_from_u64(1);
    let tids: Vec<_> = (0..50)
        .map(|_| session.store(&[(random.random_range(0..10), "data"), (30, "data")]))
        .collect();
    let changed = |since, told| storage.changed_in_log(since, told).map(sorted);
    let last = tids[tids.len() - 1];
    let pairs = tids.iter().flat_map(|since| {
        let middle = tids[random.random_range(0..tids.len())].max(*since);
        [(*since, last), (*since, middle)]
    });
    let pairs: Vec<_> = pairs.collect();
    let sound: Vec<_> = pairs.iter().map(|(since, told)| changed(*since, *told)).collect();
    assert!(sound.iter().all(Option::is_some));

    let data = disk.open(path, OpenMode::Write).unwrap();
    let bytes = disk.bytes(path).unwrap();
    let (mut position, mut hidden, mut asked) = (4, 0, 0);
    for _ in &tids {
        let length = u64::from_be_bytes(bytes[position + 8..position + 16].try_into().unwrap());
        let end = position + length as usize + 8;
        for (byte, at) in bytes[position..end].iter().zip(position as u64..) {
            let bit = random.random_range(0..8);
            data.write_all_at(&[byte ^ 1 << bit], at).unwrap();
            for _ in 0..4 {
                let pair = random.random_range(0..pairs.len());
                let (since, told) = pairs[pair];
                let answer = changed(since, told);
                hidden += u32::from(answer.is_none());
                asked += 1;
                let right = answer.is_none() || answer == sound[pair];
                assert!(right, "bit {bit} of byte {at}: {answer:?} since {since} up to {told}");
            }
            data.write_all_at(&[*byte], at).unwrap();
        }
        position = end;
    }
    assert_eq!(position, bytes.len());
    // Most questions are not about what is damaged.
    assert!((1..asked * 3 / 4).contains(&hidden), "{hidden} of {asked}");
    storage.close().unwrap();
}

fn sorted(oids: Vec<Oid>) -> Vec<u64> {
    let mut oids: Vec<_> = oids.into_iter().map(|oid| oid.0).collect();
    oids.sort_unstable();
    oids
}
