//! Work that may wait for the disk: done on a blocking thread, finished on the worker.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

use super::service::LocalServer;
use super::session::{Session, SessionHandle};

/// Requests of one connection that may be under way at once; more are not read until some end.
pub(crate) const JOBS_MAX: usize = 1000;

/// Of these, so many may be making answers at once that can be large (loads from the disk,
/// histories): each holds its answer.
pub(crate) const ANSWERING_MAX: usize = 64;

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
        self.spawn_after(session, async {}, job, done);
    }

    /// As [`SessionHandle::spawn`], for what is answered with data: it begins when the client
    /// has taken most of what it was answered before, and few others are under way.
    pub(crate) fn spawn_answer<T: Send + 'static>(
        &self,
        session: &mut Session,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&SessionHandle, &mut Session, T) + 'static,
    ) {
        let (answering, link) = (Arc::clone(&session.answering), session.link.clone());
        let before = async move {
            let place = answering.acquire_owned().await;
            // The end of the link is found out by `done`.
            link.uncongested().await;
            place
        };
        self.spawn_after(session, before, job, done);
    }

    /// As [`SessionHandle::spawn`], for what may go through a whole file: one of the `places` has
    /// to be free.
    pub(crate) fn spawn_search<T: Send + 'static>(
        &self,
        session: &mut Session,
        places: Arc<Semaphore>,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&SessionHandle, &mut Session, T) + 'static,
    ) {
        self.spawn_after(session, places.acquire_owned(), job, done);
    }

    /// Runs the job when `before` is done, whose result (a place, say) is kept until its end.
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
