//! A thread for what a reload reads: a disk that hangs must not stop the server.

use std::sync::mpsc::{Sender, channel};
use std::{io, thread};

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after the other, while callers go on.
#[derive(Clone)]
pub(crate) struct Background {
    jobs: Sender<Job>,
}

impl Background {
    /// Starts the thread, which ends with the last clone.
    pub(crate) fn start() -> io::Result<Background> {
        let (jobs, waiting) = channel::<Job>();
        let run = move || waiting.into_iter().for_each(|job| job());
        thread::Builder::new().name("reload".to_owned()).spawn(run)?;
        Ok(Background { jobs })
    }

    /// Runs a job, after those before it.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        // A thread that panicked has ended the process already.
        let _ = self.jobs.send(Box::new(job));
    }
}
