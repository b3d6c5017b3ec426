//! Work that may wait for the disk: done on a blocking thread, finished on the worker.

use tokio::sync::oneshot;

use super::service::LocalServer;
use super::session::{Session, SessionHandle};

/// Requests of one connection that may be under way at once; more are not read until some end.
pub(crate) const JOBS_MAX: usize = 1000;

/// Who does the work that may wait for the disk.
pub trait Blocking: 'static {
    /// Takes a job over, and returns without having waited for it.
    fn run(&self, job: Box<dyn FnOnce() + Send>);
}

/// The blocking threads of the worker's runtime.
pub(crate) struct RuntimeThreads;

impl Blocking for RuntimeThreads {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        // Whoever waits for its result is told otherwise.
        drop(tokio::task::spawn_blocking(job));
    }
}

impl LocalServer {
    /// Runs `job` off the worker; its result. `None` when it was lost, which only happens when
    /// its thread panicked, and that ends the process.
    pub(crate) fn run_blocking<T, J>(&self, job: J) -> impl Future<Output = Option<T>> + use<T, J>
    where
        T: Send + 'static,
        J: FnOnce() -> T + Send + 'static,
    {
        let (sender, result) = oneshot::channel();
        self.blocking.run(Box::new(move || {
            // Nobody waits for some jobs.
            let _ = sender.send(job());
        }));
        async { result.await.ok() }
    }
}

impl SessionHandle {
    /// Runs `job` off the worker and `done` with its result on it, even when the connection has
    /// ended meanwhile (`done` can ask [`Session::is_closed`]).
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        session: &mut Session,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&SessionHandle, &mut Session, T) + 'static,
    ) {
        session.jobs += 1;
        let handle = self.clone();
        let result = session.local.run_blocking(job);
        tokio::task::spawn_local(async move {
            let result = result.await;
            let mut session = handle.session.borrow_mut();
            session.jobs -= 1;
            match result {
                Some(result) => done(&handle, &mut session, result),
                None => tracing::error!("a job was lost"),
            }
            session.link.wake();
        });
    }
}
