//! A worker's ring (io_uring), which reads cold bytes without a thread that waits for them.
//!
//! Key decision: what is read is thrown away. It is in memory then, so that the load that wanted it
//! is tried again and finds it. Loads need no second way to read, to verify and to fail.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use compio_driver::op::ReadAt;
use compio_driver::{Key, Proactor, PushEntry};
use rustix::event::{EventfdFlags, eventfd};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{Notify, Semaphore};
use zodium_disk::ColdBytes;

/// Most reads in progress, which is the size of the ring; others wait for their turn.
const READS_MAX: usize = 256;
/// Time until a ring that the system cannot serve now is tried again.
const BUSY_WAIT: Duration = Duration::from_millis(1);

/// Reads bytes of files for one worker. Clones are the same ring, which belongs to one thread.
#[derive(Clone)]
pub struct Ring {
    driver: Rc<Driver>,
    places: Rc<Semaphore>,
    /// There are reads that were not handed to the system.
    pushed: Rc<Notify>,
}

type Read = ReadAt<Vec<u8>, Arc<File>>;
type ReadKey = Key<Read>;

impl Ring {
    /// Makes a ring; fails where the system has none, or forbids it. Within a worker's runtime.
    pub fn new() -> io::Result<Ring> {
        let done = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let driver = Rc::new(Driver::new(done.as_fd())?);
        // The runtime watches it as it watches pipes.
        let done = Receiver::from_owned_fd_unchecked(done)?;
        tokio::task::spawn_local(collect_all(Rc::clone(&driver), done));
        let (places, pushed) = (Rc::new(Semaphore::new(READS_MAX)), Rc::default());
        tokio::task::spawn_local(flush_all(Rc::clone(&driver), Rc::clone(&pushed)));
        Ok(Ring { driver, places, pushed })
    }

    /// Fails if this process cannot have rings, and says why.
    pub fn probe() -> io::Result<()> {
        let done = eventfd(0, EventfdFlags::CLOEXEC)?;
        Driver::new(done.as_fd()).map(drop)
    }

    /// Reads bytes, so that they are in memory afterwards. Fails if the file has none there.
    pub async fn fetch(&self, bytes: &ColdBytes) -> io::Result<()> {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let buffer = Vec::with_capacity(bytes.length());
        let read = ReadAt::new(Arc::clone(bytes.file()), bytes.position(), buffer);
        let driver = &self.driver;
        let count = match driver.push(read) {
            PushEntry::Ready(count) => count,
            PushEntry::Pending(key) => {
                self.pushed.notify_one();
                let mut key = Some(key);
                poll_fn(|context| driver.poll_read(&mut key, context.waker())).await
            }
        };
        match count? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Hands reads to the system, with one call those of all tasks that were ready; never ends.
async fn flush_all(driver: Rc<Driver>, pushed: Rc<Notify>) {
    loop {
        pushed.notified().await;
        while !driver.flush() {
            tokio::time::sleep(BUSY_WAIT).await;
        }
    }
}

/// Tells tasks that their reads are done, each time that the system signals it; never ends.
async fn collect_all(driver: Rc<Driver>, mut done: Receiver) {
    // One signal is eight bytes: with room for more, the runtime need not try again.
    let mut signal = [0; 16];
    // An error is the end of the runtime.
    while done.read(&mut signal).await.is_ok() {
        while let Err(error) = driver.collect() {
            tracing::debug!(%error, "a ring is busy");
            tokio::time::sleep(BUSY_WAIT).await;
        }
    }
}

/// The ring of the system.
struct Driver {
    proactor: Rc<RefCell<Proactor>>,
    /// Reads that may not be done.
    reading: Cell<usize>,
}

impl Driver {
    /// Makes one that adds to the event counter `done` for each read that is done.
    fn new(done: BorrowedFd<'_>) -> io::Result<Driver> {
        let mut builder = Proactor::builder();
        builder.capacity(READS_MAX as u32).register_eventfd(done.as_raw_fd());
        Ok(Driver { proactor: Rc::new(RefCell::new(builder.build()?)), reading: Cell::new(0) })
    }

    /// Notes a read for the next [`Driver::flush`].
    fn push(&self, read: Read) -> PushEntry<ReadKey, io::Result<usize>> {
        self.reading.set(self.reading.get() + 1);
        self.proactor.borrow_mut().push(read).map_ready(|done| self.done(done.0))
    }

    /// Hands new reads to the system; false if it must be tried again.
    fn flush(&self) -> bool {
        !self.proactor.borrow_mut().flush()
    }

    /// Wakes the tasks whose reads are done. After an error it must be tried again.
    fn collect(&self) -> io::Result<()> {
        match self.proactor.borrow_mut().poll(Some(Duration::ZERO)) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(()),
            result => result,
        }
    }

    /// The result of a read, whose key it takes. While there is none, `waker` waits for it.
    fn poll_read(&self, key: &mut Option<ReadKey>, waker: &Waker) -> Poll<io::Result<usize>> {
        let Some(pending) = key.take() else { return Poll::Pending };
        let mut proactor = self.proactor.borrow_mut();
        match proactor.pop(pending) {
            PushEntry::Ready(done) => Poll::Ready(self.done(done.0)),
            PushEntry::Pending(pending) => {
                proactor.update_waker(&pending, waker);
                *key = Some(pending);
                Poll::Pending
            }
        }
    }

    fn done(&self, count: io::Result<usize>) -> io::Result<usize> {
        self.reading.set(self.reading.get() - 1);
        count
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The system may write into the buffers of such reads after its ring was closed, and the
        // library would free them then. The end of a worker is mostly that of the process.
        if self.reading.get() > 0 {
            std::mem::forget(Rc::clone(&self.proactor));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;
    use zodium_disk::{Disk, DiskFile, OpenMode, RealDisk};

    use super::*;

    const BYTES: usize = 4 << 20;

    /// Runs a test with a ring and a file; not where the system forbids rings.
    fn run(test: impl AsyncFnOnce(Ring, Arc<dyn DiskFile>)) {
        if let Err(error) = Ring::probe() {
            eprintln!("not tested: no io_uring: {error}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = RealDisk.open(&folder.path().join("file"), OpenMode::CreateNew).unwrap();
        file.write_all_at(&vec![7; BYTES], 0).unwrap();
        file.sync().unwrap();
        file.forget_cached(0).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async { test(Ring::new().unwrap(), file).await });
    }

    fn is_resident(file: &dyn DiskFile, position: u64) -> bool {
        file.read_resident_at(&mut [0; 1], position).unwrap() == Some(1)
    }

    #[test]
    fn what_was_fetched_is_in_memory() {
        run(async |ring, file| {
            file.read_exact_at(&mut [0; 1], 0).unwrap();
            if !is_resident(&*file, 0) {
                eprintln!("not tested: the file system does not tell what is in memory");
                return;
            }
            let position = 1 << 20;
            let was_resident = is_resident(&*file, position);
            ring.fetch(&file.cold_bytes(position, 10_000).unwrap()).await.unwrap();
            assert!(is_resident(&*file, position) && is_resident(&*file, position + 9_999));
            // Some file systems keep all files in memory.
            eprintln!("it was resident before: {was_resident}");
            assert_eq!(ring.driver.reading.get(), 0);
        });
    }

    #[test]
    fn there_is_nothing_to_fetch_behind_the_end() {
        run(async |ring, file| {
            let end = file.cold_bytes(BYTES as u64 - 1, 10).unwrap();
            ring.fetch(&end).await.unwrap();
            let behind = file.cold_bytes(BYTES as u64, 10).unwrap();
            let error = ring.fetch(&behind).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        });
    }

    #[test]
    fn more_reads_than_it_takes_at_once_are_all_done() {
        run(async |ring, file| {
            let fetch = |number: usize| {
                let bytes = file.cold_bytes((number * 1_000) as u64, 1_000).unwrap();
                let ring = ring.clone();
                tokio::task::spawn_local(async move { ring.fetch(&bytes).await })
            };
            let fetches: Vec<_> = (0..4 * READS_MAX).map(fetch).collect();
            for fetch in fetches {
                fetch.await.unwrap().unwrap();
            }
            assert_eq!(ring.driver.reading.get(), 0);
        });
    }

    #[test]
    fn a_ring_that_ends_during_a_read_keeps_its_memory() {
        run(async |_, file| {
            let bytes = file.cold_bytes(0, 100_000).unwrap();
            let done = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            for reads in [0, 1] {
                let driver = Driver::new(done.as_fd()).unwrap();
                let proactor = Rc::downgrade(&driver.proactor);
                for _ in 0..reads {
                    let buffer = Vec::with_capacity(bytes.length());
                    let read = ReadAt::new(Arc::clone(bytes.file()), bytes.position(), buffer);
                    drop(driver.push(read));
                    assert!(driver.flush());
                }
                drop(driver);
                assert_eq!(proactor.strong_count(), reads);
            }
        });
    }

    #[test]
    fn reads_whose_tasks_are_gone_harm_no_others() {
        run(async |ring, file| {
            for number in 0..100 {
                let bytes = file.cold_bytes(number * 40_000, 40_000).unwrap();
                let reading = ring.clone();
                let fetch = tokio::task::spawn_local(async move { reading.fetch(&bytes).await });
                // It is about to hand its read over.
                tokio::task::yield_now().await;
                fetch.abort();
                assert!(fetch.await.unwrap_err().is_cancelled());
            }
            ring.fetch(&file.cold_bytes(0, 10).unwrap()).await.unwrap();
        });
    }
}
