//! The thread that writes to the database.
//!
//! All jobs that wait when the one before is committed are one transaction: the votes of many
//! clients share one sync.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::{io, iter};

use zodium_neo_storage::{Completion, ReadResult, Store, WriteJob};
use zodium_net::InboxSender;

/// Most jobs of one transaction, so that the first ones do not wait long.
const JOBS_MAX: usize = 1000;

/// The outcome of jobs, on its way to the node.
pub(crate) type Done = ReadResult<Vec<Completion>>;

/// The thread, and the way to it.
pub(crate) struct Writer {
    jobs: Sender<(WriteJob, bool)>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Starts the thread. It ends after a failure.
    pub(crate) fn start(store: Arc<dyn Store>, done: InboxSender<Done>) -> io::Result<Writer> {
        let (jobs, waiting) = channel();
        let thread = std::thread::Builder::new().name("database".to_owned());
        let thread = thread.spawn(move || write(&*store, &waiting, &done))?;
        Ok(Writer { jobs, thread })
    }

    /// Adds a job.
    pub(crate) fn push(&self, job: WriteJob, is_durable: bool) {
        // After a failure, which the driver is told, the node ends.
        let _ = self.jobs.send((job, is_durable));
    }

    /// Waits until all jobs are done.
    pub(crate) fn finish(self) {
        drop(self.jobs);
        // A panic would have ended the process.
        let _ = self.thread.join();
    }
}

fn write(store: &dyn Store, waiting: &Receiver<(WriteJob, bool)>, done: &InboxSender<Done>) {
    while let Ok(first) = waiting.recv() {
        let (jobs, durable): (_, Vec<bool>) = together(first, waiting).unzip();
        let result = store.write(durable.contains(&true), jobs);
        let has_failed = result.is_err();
        done.send(result);
        if has_failed {
            return;
        }
    }
}

/// A job, and those that wait after it: one transaction.
fn together<T>(first: T, waiting: &Receiver<T>) -> impl Iterator<Item = T> {
    iter::once(first).chain(waiting.try_iter()).take(JOBS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_jobs_that_wait_are_one_transaction_up_to_a_limit() {
        let (jobs, waiting) = channel();
        (0..2 * JOBS_MAX + 5).for_each(|job| jobs.send(job).unwrap());
        drop(jobs);
        let next = || together(waiting.recv().unwrap(), &waiting).collect::<Vec<_>>();
        let sizes = [next(), next(), next()].map(|jobs| (jobs[0], jobs.len()));
        assert_eq!(sizes, [(0, JOBS_MAX), (JOBS_MAX, JOBS_MAX), (2 * JOBS_MAX, 5)]);
    }
}
