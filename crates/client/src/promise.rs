//! Where an answer is put, and who waits for it.

use std::thread::{self, Thread};

use parking_lot::Mutex;

use crate::ClientError;

/// One answer, for as many threads as asked the same.
pub(crate) struct Promise<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    answer: Option<Result<T, ClientError>>,
    waiting: Vec<Thread>,
}

impl<T> Promise<T> {
    pub(crate) fn new() -> Promise<T> {
        Promise { state: Mutex::new(State { answer: None, waiting: Vec::new() }) }
    }

    /// The first answer counts. Wakes all who wait.
    pub(crate) fn complete(&self, answer: Result<T, ClientError>) {
        let mut state = self.state.lock();
        if state.answer.is_some() {
            return;
        }
        state.answer = Some(answer);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.iter().for_each(Thread::unpark);
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.state.lock().answer.is_some()
    }

    /// Has the calling thread woken when the answer is there; `false`: it is there already.
    pub(crate) fn wake_on_completion(&self) -> bool {
        let mut state = self.state.lock();
        let waits = state.answer.is_none();
        if waits {
            state.waiting.push(thread::current());
        }
        waits
    }

    /// The answer, for the only one who asked.
    pub(crate) fn take(&self) -> Option<Result<T, ClientError>> {
        self.state.lock().answer.take()
    }
}

impl<T: Clone> Promise<T> {
    /// The answer, for each of those who asked.
    pub(crate) fn answer(&self) -> Option<Result<T, ClientError>> {
        self.state.lock().answer.clone()
    }
}
