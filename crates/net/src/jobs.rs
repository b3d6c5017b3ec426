//! Jobs: work that may wait for the disk, done on a blocking thread and finished on the worker.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Semaphore, oneshot};
use zodium_disk::ColdBytes;

use crate::{Link, Ring, Together};

/// Most requests of a connection in progress at once; no more are read until some end.
pub const JOBS_MAX: usize = 1000;

/// Most of them that may produce large answers at once (loads from the disk, histories), since each
/// holds its answer.
const ANSWERING_MAX: usize = 64;

/// Most times that an answer is attempted: it reads all again that it has read before.
const FETCHES_MAX: usize = 8;

/// Executes jobs.
pub trait Blocking: 'static {
    /// Executes a job, without waiting for its end.
    fn run(&self, job: Box<dyn FnOnce() + Send>);

    /// What reads files instead of a job, if there is something.
    fn ring(&self) -> Option<&Ring> {
        None
    }
}

/// The blocking threads of the worker's runtime.
#[derive(Default)]
pub struct RuntimeThreads {
    ring: Option<Ring>,
}

impl RuntimeThreads {
    /// The threads, and a ring for what needs none of them.
    pub fn with_ring(ring: Ring) -> RuntimeThreads {
        RuntimeThreads { ring: Some(ring) }
    }
}

impl Blocking for RuntimeThreads {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        // The job sends its result over a channel of its own.
        drop(tokio::task::spawn_blocking(job));
    }

    fn ring(&self) -> Option<&Ring> {
        self.ring.as_ref()
    }
}

/// The jobs of one connection; all clones are the same.
#[derive(Clone)]
pub struct Jobs {
    shared: Rc<Shared>,
}

struct Shared {
    link: Link,
    blocking: Rc<dyn Blocking>,
    /// Runs before the result of a job is used.
    before_done: Box<dyn Fn()>,
    /// Requests in progress on blocking threads.
    running: Cell<usize>,
    /// Whether a job is in progress during which no requests are read.
    is_paused: Cell<bool>,
    /// Places for requests whose answers may be large.
    answering: Arc<Semaphore>,
    gone: Arc<AtomicBool>,
}

impl Jobs {
    /// Creates the jobs of a connection. `before_done` runs before each job is finished, and `gone`
    /// says when the connection has ended.
    pub fn new(
        link: Link,
        blocking: Rc<dyn Blocking>,
        before_done: Box<dyn Fn()>,
        gone: Arc<AtomicBool>,
    ) -> Jobs {
        let answering = Arc::new(Semaphore::new(ANSWERING_MAX));
        let (running, is_paused) = (Cell::new(0), Cell::new(false));
        let shared = Shared { link, blocking, before_done, running, is_paused, answering, gone };
        Jobs { shared: Rc::new(shared) }
    }

    /// The number of requests in progress.
    pub fn running(&self) -> usize {
        self.shared.running.get()
    }

    /// Whether a job is in progress during which no requests are read.
    pub fn is_paused(&self) -> bool {
        self.shared.is_paused.get()
    }

    /// Whether the connection has ended.
    pub fn is_gone(&self) -> bool {
        self.shared.gone.load(Ordering::Relaxed)
    }

    /// As [`Jobs::is_gone`], for jobs. Relaxed: it only lets them end earlier.
    pub fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.gone)
    }

    /// Counts a request that is answered by several jobs, until [`Jobs::end`].
    pub fn begin(&self) {
        self.shared.running.set(self.running() + 1);
    }

    /// Ends a request that [`Jobs::begin`] counted.
    pub fn end(&self) {
        self.shared.running.set(self.running() - 1);
    }

    /// Runs `job` on a blocking thread and gives its result. `None` if the thread panicked, which
    /// ends the process anyway.
    pub fn run_blocking<T, J>(&self, job: J) -> impl Future<Output = Option<T>> + use<T, J>
    where
        T: Send + 'static,
        J: FnOnce() -> T + Send + 'static,
    {
        run_blocking(&*self.shared.blocking, job)
    }

    /// Runs `job` on a blocking thread, and then `done` with its result on the worker.
    ///
    /// `done` runs even if the connection has ended meanwhile; see [`Jobs::is_gone`].
    pub fn spawn<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(T) + 'static,
    ) {
        self.spawn_after(async {}, job, done);
    }

    /// As [`Jobs::spawn`]; no requests are read until the job has ended.
    pub fn spawn_pausing<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(T) + 'static,
    ) {
        self.shared.is_paused.set(true);
        let jobs = self.clone();
        self.spawn(job, move |result| {
            jobs.shared.is_paused.set(false);
            done(result);
        });
    }

    /// As [`Jobs::spawn`], for jobs with large answers. It begins when the client has read most of
    /// its earlier answers, and few such jobs are in progress.
    pub fn spawn_answer<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(T) + 'static,
    ) {
        self.spawn_after(self.place_for_answer(), job, done);
    }

    /// As [`Jobs::spawn_answer`], for a question that is answered together with others.
    pub fn spawn_together<Q: Send + 'static, A: Send + 'static>(
        &self,
        together: &Rc<Together<Q, A>>,
        question: Q,
        done: impl FnOnce(A) + 'static,
    ) {
        self.begin();
        let (jobs, together, place) = (self.clone(), Rc::clone(together), self.place_for_answer());
        tokio::task::spawn_local(async move {
            let place = place.await;
            let finish = move |answer| {
                jobs.finish(answer, done);
                drop(place);
            };
            together.ask(question, Box::new(finish)).await;
        });
    }

    /// As [`Jobs::spawn_answer`], for an answer that needs no thread once some bytes are in memory.
    ///
    /// `attempt` gives the answer, or says which bytes it misses, if it knows. `job` is for all
    /// that the worker's ring does not bring about.
    pub fn spawn_fetching<T: Send + 'static>(
        &self,
        attempt: impl FnMut() -> Result<T, Option<ColdBytes>> + 'static,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(T) + 'static,
    ) {
        self.begin();
        let (jobs, place) = (self.clone(), self.place_for_answer());
        tokio::task::spawn_local(async move {
            let _place = place.await;
            let result = match jobs.fetch(attempt).await {
                Some(answer) => Some(answer),
                None => jobs.run_blocking(job).await,
            };
            jobs.finish(result, done);
        });
    }

    /// Has the ring read what `attempt` misses, until it succeeds; `None` if a thread is needed.
    async fn fetch<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Option<ColdBytes>>,
    ) -> Option<T> {
        let ring = self.shared.blocking.ring()?;
        let mut fetched = None;
        for _ in 0..FETCHES_MAX {
            let missed = match attempt() {
                Ok(answer) => return Some(answer),
                Err(missed) => missed?,
            };
            if fetched.as_ref() == Some(&missed) {
                // They have not stayed in memory, or the file system does not tell that they have.
                return None;
            }
            ring.fetch(&missed).await.ok()?;
            fetched = Some(missed);
        }
        None
    }

    /// Waits until the client may get another large answer; to be kept until it is there.
    fn place_for_answer(&self) -> impl Future<Output = impl Sized + use<>> + use<> {
        let (answering, link) = (Arc::clone(&self.shared.answering), self.shared.link.clone());
        async move {
            let place = answering.acquire_owned().await;
            // `done` notices the end of the link.
            link.uncongested().await;
            place
        }
    }

    /// As [`Jobs::spawn_answer`], for jobs that may read a whole file. It begins when one of the
    /// `places` is free too.
    pub fn spawn_search<T: Send + 'static>(
        &self,
        places: Arc<Semaphore>,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(T) + 'static,
    ) {
        let (answer, link) = (self.place_for_answer(), self.shared.link.clone());
        let before = async move {
            let answer = answer.await;
            let mut is_open = true;
            loop {
                let place = Arc::clone(&places).acquire_owned().await;
                if !is_open || !link.is_congested() {
                    return (answer, place);
                }
                // Other answers have come. Others may search until the client has read them.
                drop(place);
                is_open = link.uncongested().await;
            }
        };
        self.spawn_after(before, job, done);
    }

    /// Runs the job after `before`, whose result (such as a place) is kept until the job's end.
    fn spawn_after<T: Send + 'static>(
        &self,
        before: impl Future + 'static,
        job: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(T) + 'static,
    ) {
        self.begin();
        let jobs = self.clone();
        tokio::task::spawn_local(async move {
            let _place = before.await;
            let result = jobs.run_blocking(job).await;
            jobs.finish(result, done);
        });
    }

    /// Ends a request with the result of its job.
    fn finish<T>(&self, result: Option<T>, done: impl FnOnce(T)) {
        (self.shared.before_done)();
        self.end();
        match result {
            Some(result) => done(result),
            None => tracing::error!("a job was lost"),
        }
        self.shared.link.wake();
    }
}

/// As [`Jobs::run_blocking`], of no connection.
pub(crate) fn run_blocking<T, J>(
    blocking: &dyn Blocking,
    job: J,
) -> impl Future<Output = Option<T>> + use<T, J>
where
    T: Send + 'static,
    J: FnOnce() -> T + Send + 'static,
{
    let (sender, result) = oneshot::channel();
    blocking.run(Box::new(move || {
        // The receiver may be gone: the results of some jobs are not needed.
        let _ = sender.send(job());
    }));
    async { result.await.ok() }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tokio::task::LocalSet;

    use super::*;
    use crate::peer_log::PeerLog;
    use crate::{CloseReason, Limits, Protocol};

    type Job = Box<dyn FnOnce() + Send>;

    /// Jobs that run when a test says so.
    #[derive(Clone, Default)]
    struct Queued(Rc<RefCell<VecDeque<Job>>>);

    impl Queued {
        /// Runs the next job; false if there is none.
        fn run_next(&self) -> bool {
            let job = self.0.borrow_mut().pop_front();
            job.map(|job| job()).is_some()
        }
    }

    impl Blocking for Queued {
        fn run(&self, job: Job) {
            self.0.borrow_mut().push_back(job);
        }
    }

    fn new_link() -> Link {
        let (protocol, limits) = (Protocol::default(), Limits::default());
        Link::new("a client".to_owned(), protocol, None, limits, Arc::default(), PeerLog::default())
    }

    /// Runs a test with the jobs of a connection.
    fn run(test: impl AsyncFnOnce(Jobs, Queued)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let queued = Queued::default();
            let link = new_link();
            let blocking = Rc::new(queued.clone());
            let jobs = Jobs::new(link, blocking, Box::new(|| ()), Arc::default());
            test(jobs, queued).await;
        });
    }

    /// Lets all other tasks of the worker run.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn no_requests_are_read_during_a_pausing_job() {
        run(async |jobs, queued| {
            jobs.spawn_pausing(|| (), |()| ());
            jobs.spawn(|| (), |()| ());
            settle().await;
            assert!(jobs.is_paused());
            assert_eq!(jobs.running(), 2);
            assert!(queued.run_next());
            settle().await;
            assert!(!jobs.is_paused());
            assert_eq!(jobs.running(), 1);
        });
    }

    #[test]
    fn what_is_asked_in_one_turn_is_answered_by_one_job() {
        run(async |jobs, queued| {
            let sizes = Arc::new(Mutex::new(Vec::new()));
            let counted = Arc::clone(&sizes);
            let together = Together::new(Rc::new(queued.clone()), 3, move |numbers: Vec<usize>| {
                counted.lock().unwrap().push(numbers.len());
                numbers.into_iter().map(|number| number * 10).collect()
            });
            let (together, done) = (Rc::new(together), Rc::<RefCell<Vec<usize>>>::default());
            let ask = |number| {
                let done = Rc::clone(&done);
                jobs.spawn_together(&together, number, move |answer| {
                    done.borrow_mut().push(answer)
                });
            };
            (0..7).for_each(ask);
            settle().await;
            // Later ones wait for none of these.
            ask(7);
            settle().await;
            assert_eq!(jobs.running(), 8);
            while queued.run_next() {}
            settle().await;
            done.borrow_mut().sort_unstable();
            assert_eq!(*done.borrow(), [0, 10, 20, 30, 40, 50, 60, 70]);
            assert_eq!(jobs.running(), 0);
            sizes.lock().unwrap().sort_unstable();
            assert_eq!(*sizes.lock().unwrap(), [1, 1, 3, 3]);
        });
    }

    /// How often an answer is attempted that misses these bytes of a file, each time others, and
    /// whether it is there in the end.
    async fn attempts(jobs: &Jobs, misses: impl Fn(usize) -> Option<ColdBytes>) -> (usize, bool) {
        let count = Cell::new(0);
        let attempt = || {
            count.set(count.get() + 1);
            if count.get() == 5 { Ok(()) } else { Err(misses(count.get())) }
        };
        let answer = jobs.fetch(attempt).await;
        (count.get(), answer.is_some())
    }

    #[test]
    fn an_answer_is_attempted_as_long_as_the_ring_brings_it_further() {
        if let Err(error) = Ring::probe() {
            eprintln!("not tested: no io_uring: {error}");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let threads = RuntimeThreads::with_ring(Ring::new().unwrap());
            let link = new_link();
            let jobs = Jobs::new(link, Rc::new(threads), Box::new(|| ()), Arc::default());
            let file = Arc::new(tempfile::tempfile().unwrap());
            file.set_len(10_000).unwrap();
            let bytes = |position| Some(ColdBytes::new(Arc::clone(&file), position, 100));
            assert_eq!(attempts(&jobs, |number| bytes(number as u64)).await, (5, true));
            // The same bytes again; none; behind the end.
            assert_eq!(attempts(&jobs, |_| bytes(0)).await, (2, false));
            assert_eq!(attempts(&jobs, |_| None).await, (1, false));
            assert_eq!(attempts(&jobs, |_| bytes(10_000)).await, (1, false));
        });
    }

    #[test]
    fn so_many_answers_at_once_are_produced_and_the_others_wait() {
        run(async |jobs, queued| {
            let done = Rc::<RefCell<Vec<usize>>>::default();
            for number in 0..ANSWERING_MAX + 1 {
                let done = Rc::clone(&done);
                jobs.spawn_answer(move || number, move |number| done.borrow_mut().push(number));
            }
            settle().await;
            assert_eq!(jobs.running(), ANSWERING_MAX + 1);
            let mut ran = 0;
            while queued.run_next() {
                ran += 1;
            }
            assert_eq!(ran, ANSWERING_MAX);
            settle().await;
            assert!(queued.run_next());
            settle().await;
            assert!(done.borrow().iter().copied().eq(0..ANSWERING_MAX + 1));
            assert_eq!(jobs.running(), 0);
        });
    }

    #[test]
    fn a_search_begins_when_one_of_its_places_is_free() {
        run(async |jobs, queued| {
            let places = Arc::new(Semaphore::new(2));
            (0..5).for_each(|_| jobs.spawn_search(Arc::clone(&places), || (), |()| ()));
            for begun in [2, 2, 1, 0] {
                settle().await;
                assert_eq!((0..5).filter(|_| queued.run_next()).count(), begun);
            }
            assert_eq!(jobs.running(), 0);
        });
    }
    #[test]
    fn a_search_takes_no_place_before_the_client_has_read_earlier_answers() {
        run(async |jobs, queued| {
            let places = Arc::new(Semaphore::new(1));
            let link = jobs.shared.link.clone();
            for _ in 0..2 {
                let link = link.clone();
                let large = move |()| link.output().push(vec![0; 64 << 20].into());
                jobs.spawn_search(Arc::clone(&places), || (), large);
            }
            settle().await;
            assert!(queued.run_next());
            settle().await;
            assert!(link.is_congested());
            assert!(!queued.run_next());
            assert_eq!(places.available_permits(), 1);
            // Without a client there is nothing to wait for.
            link.close(CloseReason::Done);
            settle().await;
            assert!(queued.run_next());
            settle().await;
            assert_eq!(jobs.running(), 0);
        });
    }
}
