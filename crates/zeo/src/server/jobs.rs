//! Jobs: work that may wait for the disk, done on a blocking thread and finished on the worker.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

use super::service::LocalServer;
use super::session::{Session, SessionHandle};

/// Most requests of a connection in progress at once; no more are read until some end.
pub(crate) const JOBS_MAX: usize = 1000;

/// Most of them that may produce large answers at once (loads from the disk, histories), since each
/// holds its answer.
pub(crate) const ANSWERING_MAX: usize = 64;

/// Executes jobs.
pub trait Blocking: 'static {
    /// Executes a job, without waiting for its end.
    fn run(&self, job: Box<dyn FnOnce() + Send>);
}

/// The blocking threads of the worker's runtime.
pub(crate) struct RuntimeThreads;

impl Blocking for RuntimeThreads {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        // The job sends its result over a channel of its own.
        drop(tokio::task::spawn_blocking(job));
    }
}

impl LocalServer {
    /// Runs `job` on a blocking thread and gives its result. `None` if the thread panicked, which
    /// ends the process anyway.
    pub(crate) fn run_blocking<T, J>(&self, job: J) -> impl Future<Output = Option<T>> + use<T, J>
    where
        T: Send + 'static,
        J: FnOnce() -> T + Send + 'static,
    {
        let (sender, result) = oneshot::channel();
        self.blocking.run(Box::new(move || {
            // The receiver may be gone: the results of some jobs are not needed.
            let _ = sender.send(job());
        }));
        async { result.await.ok() }
    }
}

impl SessionHandle {
    /// Runs `job` on a blocking thread, and then `done` with its result on the worker.
    ///
    /// `done` runs even if the connection has ended meanwhile; see [`Session::is_closed`].
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        session: &mut Session,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&SessionHandle, &mut Session, T) + 'static,
    ) {
        self.spawn_after(session, async {}, job, done);
    }

    /// As [`SessionHandle::spawn`], for jobs with large answers. It begins when the client has read
    /// most of its earlier answers, and few such jobs are in progress.
    pub(crate) fn spawn_answer<T: Send + 'static>(
        &self,
        session: &mut Session,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&SessionHandle, &mut Session, T) + 'static,
    ) {
        let (answering, link) = (Arc::clone(&session.answering), session.link.clone());
        let before = async move {
            let place = answering.acquire_owned().await;
            // `done` notices the end of the link.
            link.uncongested().await;
            place
        };
        self.spawn_after(session, before, job, done);
    }

    /// As [`SessionHandle::spawn`], for jobs that may read a whole file. It begins when one of the
    /// `places` is free.
    pub(crate) fn spawn_search<T: Send + 'static>(
        &self,
        session: &mut Session,
        places: Arc<Semaphore>,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&SessionHandle, &mut Session, T) + 'static,
    ) {
        self.spawn_after(session, places.acquire_owned(), job, done);
    }

    /// Runs the job after `before`, whose result (such as a place) is kept until the job's end.
    fn spawn_after<T: Send + 'static>(
        &self,
        session: &mut Session,
        before: impl Future + 'static,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&SessionHandle, &mut Session, T) + 'static,
    ) {
        session.jobs += 1;
        let handle = self.clone();
        let local = Rc::clone(&session.local);
        tokio::task::spawn_local(async move {
            let _place = before.await;
            let result = local.run_blocking(job).await;
            let subscriber = handle.session.borrow().subscriber().cloned();
            if let Some(subscriber) = subscriber {
                subscriber.drain_inbox();
            }
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
