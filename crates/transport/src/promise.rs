//! A reply that is still to come, and the threads waiting for it.

use std::thread::{self, Thread};

use parking_lot::Mutex;

/// One reply, shared by all threads that requested the same thing.
#[derive(Debug)]
pub struct Promise<A> {
    state: Mutex<State<A>>,
}

#[derive(Debug)]
struct State<A> {
    answer: Option<A>,
    waiting: Vec<Thread>,
}

impl<A> Default for Promise<A> {
    fn default() -> Promise<A> {
        Promise { state: Mutex::new(State { answer: None, waiting: Vec::new() }) }
    }
}

impl<A> Promise<A> {
    /// Sets the reply, unless it is set already, and wakes all waiting threads.
    pub fn complete(&self, answer: A) {
        let mut state = self.state.lock();
        if state.answer.is_some() {
            return;
        }
        state.answer = Some(answer);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.iter().for_each(Thread::unpark);
    }

    /// Whether the reply is there.
    pub fn is_complete(&self) -> bool {
        self.state.lock().answer.is_some()
    }

    /// Registers the calling thread to be woken on completion; `false` if it is complete already.
    pub fn wake_on_completion(&self) -> bool {
        let mut state = self.state.lock();
        let waits = state.answer.is_none();
        if waits {
            state.waiting.push(thread::current());
        }
        waits
    }

    /// Takes the reply, for a single waiter.
    pub fn take(&self) -> Option<A> {
        self.state.lock().answer.take()
    }
}

impl<A: Clone> Promise<A> {
    /// A clone of the reply, for one of several waiters.
    pub fn answer(&self) -> Option<A> {
        self.state.lock().answer.clone()
    }
}
