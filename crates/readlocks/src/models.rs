//! Readers and writers in all interleavings (`make loom`).

use std::sync::Arc;

use loom::thread::{self, JoinHandle};

use crate::{ReadLocks, Reader};

/// Two numbers that are equal but while they are written.
type Pair = (u64, u64);

/// Two locks, of which the first is open.
fn opened() -> (Arc<ReadLocks<Pair>>, Reader) {
    let locks = Arc::new(ReadLocks::new([(0, 0), (0, 0)]));
    let reader = locks.reader();
    assert_eq!(read(&locks, &reader, 0), Some(0));
    (locks, reader)
}

/// A thread that writes to locks, one after the other.
fn writer(locks: &Arc<ReadLocks<Pair>>, numbers: &'static [usize]) -> JoinHandle<()> {
    let locks = Arc::clone(locks);
    thread::spawn(move || numbers.iter().for_each(|number| write(&locks, *number)))
}

fn write(locks: &ReadLocks<Pair>, lock: usize) {
    let mut pair = locks.lock(lock);
    pair.0 += 1;
    pair.1 += 1;
}

/// What it reads; `None` if a writer is in the way.
fn read(locks: &ReadLocks<Pair>, reader: &Reader, lock: usize) -> Option<u64> {
    let pair = locks.try_read(reader, lock)?;
    let (first, second) = *pair;
    assert_eq!((first, second), *pair, "no write meanwhile");
    assert_eq!(first, second, "no half of a change is seen");
    Some(first)
}

#[test]
fn a_reader_sees_all_of_a_change_or_nothing() {
    loom::model(|| {
        let (locks, reader) = opened();
        let writer = writer(&locks, &[0]);
        let first = read(&locks, &reader, 0);
        let second = read(&locks, &reader, 0);
        assert!(first.max(second) <= Some(1) && (second.is_none() || first <= second));
        writer.join().unwrap();
        assert_eq!(read(&locks, &reader, 0), Some(1));
    });
}

#[test]
fn two_readers_and_a_writer_do_not_meet() {
    loom::model(|| {
        let (locks, reader) = opened();
        let threads = [locks.reader(), reader].map(|reader| {
            let locks = Arc::clone(&locks);
            thread::spawn(move || {
                read(&locks, &reader, 0);
            })
        });
        write(&locks, 0);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*locks.lock(0), (1, 1));
    });
}

#[test]
fn a_new_reader_is_seen() {
    loom::model(|| {
        let (locks, first) = opened();
        drop(first);
        let writer = writer(&locks, &[0]);
        let reader = locks.reader();
        read(&locks, &reader, 0);
        writer.join().unwrap();
    });
}

#[test]
fn all_of_some_locks_are_opened_and_read_at_once() {
    loom::model(|| {
        let (locks, reader) = opened();
        let writer = writer(&locks, &[1, 0]);
        if let Some(pairs) = locks.read_all(&reader, 0b11) {
            let both = [0, 1].map(|lock| pairs.get(lock).copied().unwrap());
            assert!(both.iter().all(|pair| pair.0 == pair.1));
            assert_eq!(both, [0, 1].map(|lock| pairs.get(lock).copied().unwrap()));
        }
        writer.join().unwrap();
        assert_eq!((*locks.lock(0), *locks.lock(1)), ((1, 1), (1, 1)));
    });
}

#[test]
fn several_locks_are_read_at_once() {
    loom::model(|| {
        let (locks, reader) = opened();
        let writer = writer(&locks, &[1, 0]);
        let pairs = locks.read_each(&reader, 0b11);
        for pair in [pairs.get(0), pairs.get(1)].into_iter().flatten() {
            assert_eq!(pair.0, pair.1);
        }
        drop(pairs);
        writer.join().unwrap();
    });
}
