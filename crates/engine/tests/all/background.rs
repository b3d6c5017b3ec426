//! The thread for background work, and the end of a storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Session, start};
use zodium_disk::MemoryDisk;
use zodium_storage::Upkeep;

const PATIENCE: Duration = Duration::from_secs(20);

/// Counts its steps, and asks for a pause between two.
struct Steps(Arc<AtomicUsize>, Duration);

impl Upkeep for Steps {
    fn step(&mut self) -> Duration {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1
    }
}

fn wait_for(counter: &AtomicUsize, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while counter.load(Ordering::Relaxed) < count {
        assert!(Instant::now() < deadline, "no {count} steps");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn background_work_goes_on_until_the_storage_is_closed() {
    let storage = start(MemoryDisk::volatile());
    let steps = Arc::new(AtomicUsize::new(0));
    storage.keep_up(Box::new(Steps(Arc::clone(&steps), Duration::from_millis(1))));
    wait_for(&steps, 5);
    assert!(!storage.is_closing());
    storage.close().unwrap();
    assert!(storage.is_closing());
    let done = steps.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(steps.load(Ordering::Relaxed), done);
}

#[test]
fn background_work_pauses_as_long_as_it_says_and_a_closing_storage_does_not_wait_for_it() {
    let storage = start(MemoryDisk::volatile());
    let steps = Arc::new(AtomicUsize::new(0));
    storage.keep_up(Box::new(Steps(Arc::clone(&steps), Duration::from_secs(3600))));
    wait_for(&steps, 1);
    std::thread::sleep(Duration::from_millis(20));
    let started = Instant::now();
    storage.close().unwrap();
    assert!(started.elapsed() < PATIENCE);
    assert_eq!(steps.load(Ordering::Relaxed), 1);
}

#[test]
fn the_last_posted_tid_is_that_of_the_last_commit() {
    let storage = start(MemoryDisk::volatile());
    let mut session = Session::new(&storage);
    for data in ["a", "b"] {
        let tid = session.store(&[(1, data)]);
        assert_eq!(storage.subscribers().posted_tid(), tid);
    }
    storage.close().unwrap();
}
