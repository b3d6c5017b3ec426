//! The thread that writes to the database.
//!
//! All jobs that wait when the one before is committed are one transaction: the votes of many
//! clients share one sync.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

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
    while let Ok((first, mut is_durable)) = waiting.recv() {
        let mut jobs = vec![first];
        while jobs.len() < JOBS_MAX
            && let Ok((job, durable)) = waiting.try_recv()
        {
            jobs.push(job);
            is_durable |= durable;
        }
        let result = store.write(is_durable, jobs);
        let has_failed = result.is_err();
        done.send(result);
        if has_failed {
            return;
        }
    }
}
