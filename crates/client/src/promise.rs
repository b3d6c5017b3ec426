//! A reply that is still to come, and the threads waiting for it.

use std::thread::{self, Thread};

use parking_lot::Mutex;

use crate::ClientError;

/// One reply, shared by all threads that requested the same thing.
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

    /// Sets the reply, unless it is set already, and wakes all waiting threads.
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

    /// Registers the calling thread to be woken on completion; `false` if it is complete already.
    pub(crate) fn wake_on_completion(&self) -> bool {
        let mut state = self.state.lock();
        let waits = state.answer.is_none();
        if waits {
            state.waiting.push(thread::current());
        }
        waits
    }

    /// Takes the reply, for a single waiter.
    pub(crate) fn take(&self) -> Option<Result<T, ClientError>> {
        self.state.lock().answer.take()
    }
}

impl<T: Clone> Promise<T> {
    /// A clone of the reply, for one of several waiters.
    pub(crate) fn answer(&self) -> Option<Result<T, ClientError>> {
        self.state.lock().answer.clone()
    }
}
