//! Readers and writers in all interleavings (`make loom`).

use std::sync::Arc;

use loom::thread;

use crate::{ReadLocks, Reader};

/// Two numbers that are equal but while they are written.
type Pair = (u64, u64);

fn locks() -> Arc<ReadLocks<Pair>> {
    Arc::new(ReadLocks::new([(0, 0), (0, 0)]))
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

/// Whether a lock is open once its value was read.
fn opened(locks: &ReadLocks<Pair>, reader: &Reader) {
    assert_eq!(read(locks, reader, 0), Some(0));
}

#[test]
fn a_reader_sees_all_of_a_change_or_nothing() {
    loom::model(|| {
        let locks = locks();
        let reader = locks.reader();
        opened(&locks, &reader);
        let writer = thread::spawn({
            let locks = Arc::clone(&locks);
            move || write(&locks, 0)
        });
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
        let locks = locks();
        let readers = [locks.reader(), locks.reader()];
        opened(&locks, &readers[0]);
        let threads = readers.map(|reader| {
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
        let locks = locks();
        opened(&locks, &locks.reader());
        let writer = thread::spawn({
            let locks = Arc::clone(&locks);
            move || write(&locks, 0)
        });
        let reader = locks.reader();
        read(&locks, &reader, 0);
        writer.join().unwrap();
    });
}

#[test]
fn several_locks_are_read_at_once() {
    loom::model(|| {
        let locks = locks();
        let reader = locks.reader();
        opened(&locks, &reader);
        let writer = thread::spawn({
            let locks = Arc::clone(&locks);
            move || {
                write(&locks, 1);
                write(&locks, 0);
            }
        });
        let pairs = locks.read_each(&reader, 0b11);
        for pair in [pairs.get(0), pairs.get(1)].into_iter().flatten() {
            assert_eq!(pair.0, pair.1);
        }
        drop(pairs);
        writer.join().unwrap();
    });
}
