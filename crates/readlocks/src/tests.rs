//! Readers and writers on threads of the system; `make miri` runs them too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::*;

const ROUNDS: u64 = if cfg!(miri) { 100 } else { 20_000 };

fn pairs() -> Arc<ReadLocks<(u64, u64)>> {
    Arc::new(ReadLocks::new([(0, 0); LOCKS_MAX]))
}

#[test]
fn readers_never_see_half_a_change() {
    let (locks, ended) = (pairs(), Arc::new(AtomicBool::new(false)));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (locks, ended) = (Arc::clone(&locks), Arc::clone(&ended));
            thread::spawn(move || {
                let reader = locks.reader();
                let (mut last, mut seen) = ([0; LOCKS_MAX], 0_u64);
                let mut check = |number: usize, pair: &(u64, u64)| {
                    assert_eq!(pair.0, pair.1);
                    assert!(last[number] <= pair.0, "a change is not taken back");
                    last[number] = pair.0;
                    seen += 1;
                };
                let mut is_last = false;
                while !is_last {
                    is_last = ended.load(Ordering::Relaxed);
                    for number in 0..LOCKS_MAX {
                        if let Some(pair) = locks.try_read(&reader, number) {
                            check(number, &pair);
                        }
                    }
                    let pairs = locks.read_each(&reader, u64::MAX);
                    for number in 0..LOCKS_MAX {
                        if let Some(pair) = pairs.get(number) {
                            check(number, pair);
                        }
                    }
                }
                seen
            })
        })
        .collect();
    for round in 0..ROUNDS {
        let mut pair = locks.lock(round as usize % LOCKS_MAX);
        pair.0 += 1;
        pair.1 += 1;
    }
    ended.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().unwrap() > 0);
    }
    let changes = (0..LOCKS_MAX).map(|number| locks.lock(number).0).sum::<u64>();
    assert_eq!(changes, ROUNDS);
}

#[test]
fn a_writer_waits_for_a_reader_and_a_reader_does_not_wait_for_a_writer() {
    let locks = pairs();
    let reader = locks.reader();
    for is_announced in [false, true] {
        let pair = locks.try_read(&reader, 5).unwrap();
        let writer = thread::spawn({
            let locks = Arc::clone(&locks);
            move || locks.lock(5).0 += 1
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!writer.is_finished());
        assert_eq!(pair.0, u64::from(is_announced));
        drop(pair);
        writer.join().unwrap();
    }
    let guard = locks.lock(5);
    assert!(locks.try_read(&reader, 5).is_none() && locks.try_lock(5).is_none());
    assert!(locks.try_lock_until(5, Instant::now()).is_none());
    let pairs = locks.read_each(&reader, 0b11 << 4);
    assert!(pairs.get(5).is_none() && pairs.get(4).is_some() && pairs.get(6).is_none());
    drop((guard, pairs));
    assert_eq!(locks.try_read(&reader, 5).unwrap().0, 2);
}

#[test]
fn readers_do_not_keep_each_other_out_once_a_lock_is_open() {
    let locks = pairs();
    let readers = [locks.reader(), locks.reader(), locks.reader()];
    // The mutex is taken until the readers have paid for the next writer.
    let paid = locks.try_read(&readers[0], 0).unwrap();
    assert!(locks.try_read(&readers[1], 0).is_none());
    drop(paid);
    let opening = locks.try_read(&readers[1], 0).unwrap();
    let guards = [0, 2].map(|reader| locks.try_read(&readers[reader], 0).unwrap());
    drop((guards, opening));
    drop(locks.lock(0));
    let paid = locks.try_read(&readers[0], 0).unwrap();
    assert!(locks.try_read(&readers[1], 0).is_none());
    drop(paid);
}

#[test]
fn a_reader_of_all_locks_keeps_out_writers_only() {
    let locks = pairs();
    let readers = [locks.reader(), locks.reader(), locks.reader()];
    let all = locks.read_all(&readers[0], u64::MAX).unwrap();
    assert!(locks.read_all(&readers[0], u64::MAX).is_none(), "it is in use");
    let others = [1, 2].map(|reader| locks.read_all(&readers[reader], u64::MAX).unwrap());
    drop(others);
    assert!(locks.try_read(&readers[1], 63).is_some() && all.get(63).is_some());
    let writer = thread::spawn({
        let locks = Arc::clone(&locks);
        move || locks.lock(63).0 += 1
    });
    thread::sleep(Duration::from_millis(20));
    assert!(!writer.is_finished());
    drop(all);
    writer.join().unwrap();
    let guard = locks.lock(5);
    assert!(locks.read_all(&readers[0], u64::MAX).is_none());
    drop(guard);
    assert_eq!(locks.read_all(&readers[0], u64::MAX).unwrap().get(63).unwrap().0, 1);
}

#[test]
fn a_reader_that_is_in_use_takes_mutexes() {
    let locks = pairs();
    let reader = locks.reader();
    drop(locks.try_read(&reader, 0));
    let outer = locks.try_read(&reader, 0).unwrap();
    let inner = locks.try_read(&reader, 0).unwrap();
    assert!(locks.try_lock(0).is_none(), "the inner one holds the mutex");
    drop((inner, outer));
    assert!(locks.try_lock(0).is_some());
}

#[test]
fn guards_that_announce_nothing_leave_the_word_to_later_ones() {
    let locks = pairs();
    let reader = locks.reader();
    drop(locks.try_read(&reader, 5));
    let closed = locks.lock(3);
    for kind in 0..3 {
        let nothing = match kind {
            0 => locks.read_each(&reader, 1 << 3),
            1 => locks.read_each(&reader, 0),
            _ => locks.read_all(&reader, 0).unwrap(),
        };
        let guard = locks.try_read(&reader, 5).unwrap();
        drop(nothing);
        let writer = thread::spawn({
            let locks = Arc::clone(&locks);
            move || locks.lock(5).0 += 1
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!writer.is_finished());
        drop(guard);
        writer.join().unwrap();
        // Readers open it again.
        drop(locks.try_read(&reader, 5));
    }
    drop(closed);
}

#[test]
fn words_are_used_again_and_more_readers_take_mutexes() {
    let locks = pairs();
    for _ in 0..2 {
        let readers: Vec<_> = (0..READERS_MAX + 2).map(|_| locks.reader()).collect();
        for reader in &readers {
            assert!(locks.try_read(reader, 1).is_some());
        }
        let both = [0, 1].map(|reader| locks.try_read(&readers[reader], 1));
        assert!(both.iter().all(Option::is_some), "they have words");
    }
    drop(locks.lock(1));
    assert!(locks.try_read(&locks.reader(), 1).is_some());
}

#[test]
#[should_panic(expected = "a reader of other locks")]
fn a_reader_is_that_of_its_locks() {
    let (locks, others) = (pairs(), pairs());
    let _ = locks.try_read(&others.reader(), 0);
}
