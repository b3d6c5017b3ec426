//! Work that may wait for the disk: done on a blocking thread, finished on the worker.

use super::session::{Session, SessionHandle};

/// Requests of one connection that may be under way at once; more are not read until some end.
pub(crate) const JOBS_MAX: usize = 1000;

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
        tokio::task::spawn_local(async move {
            let result = tokio::task::spawn_blocking(job).await;
            let mut session = handle.session.borrow_mut();
            session.jobs -= 1;
            match result {
                Ok(result) => done(&handle, &mut session, result),
                // A job is only lost when its thread panicked, which ends the process.
                Err(error) => tracing::error!(%error, "a job was lost"),
            }
            session.link.wake();
        });
    }
}
