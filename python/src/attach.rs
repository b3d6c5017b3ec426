//! Attaching native threads to Python, but not in the moment of a fork.
//!
//! Key decision: a native thread has a thread state only while it calls Python. Before 3.12, Python
//! makes one under a lock of the interpreter without the GIL, and a child that is forked in that
//! moment waits for the lock for ever. So a fork waits until no thread makes one, and others wait
//! for the fork. Both waits are limited: hooks of the application may wait for such a thread.
//!
//! Nor do they attach when the interpreter ends: a thread that waits for the GIL then is ended
//! within our code, which aborts the process.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Longest wait for a fork, and of a fork.
const PATIENCE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_micros(100);
/// Longest wait of the end of the interpreter for threads that call Python.
const PATIENCE_AT_EXIT: Duration = Duration::from_secs(60);

/// Forks under way, and threads that are making a thread state. Each side adds to its own count
/// before it reads the other's, with SeqCst: so one of them sees the other.
static FORKS: AtomicUsize = AtomicUsize::new(0);
static MAKING: AtomicUsize = AtomicUsize::new(0);

/// Whether the interpreter ends, and the threads that call Python; as above, each side writes its
/// own before it reads the other.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
static CALLING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread is in a call of [`attached`], and so has a thread state.
    static HAS_STATE: Cell<bool> = const { Cell::new(false) };
}

/// Calls Python from any thread; `None` without an interpreter.
pub(crate) fn attached<T>(call: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    if HAS_STATE.get() {
        return Python::try_attach(call);
    }
    let _calling = Calling::begin();
    if IS_ENDING.load(Ordering::SeqCst) {
        return None;
    }
    let making = Making::begin();
    Python::try_attach(|py| {
        drop(making);
        let _state = State::begin();
        call(py)
    })
}

/// Counts a thread that calls Python.
struct Calling;

impl Calling {
    fn begin() -> Calling {
        CALLING.fetch_add(1, Ordering::SeqCst);
        Calling
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        CALLING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts a thread that is making a thread state.
struct Making;

impl Making {
    fn begin() -> Making {
        let begun = Instant::now();
        loop {
            MAKING.fetch_add(1, Ordering::SeqCst);
            if FORKS.load(Ordering::SeqCst) == 0 || begun.elapsed() >= PATIENCE {
                return Making;
            }
            MAKING.fetch_sub(1, Ordering::SeqCst);
            thread::sleep(POLL);
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        MAKING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Sets [`HAS_STATE`] as long as it lives.
struct State;

impl State {
    fn begin() -> State {
        HAS_STATE.set(true);
        State
    }
}

impl Drop for State {
    fn drop(&mut self) {
        HAS_STATE.set(false);
    }
}

/// Waits until no thread is making a thread state, and lets none begin. Without the GIL, which such
/// a thread takes next.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) {
    FORKS.fetch_add(1, Ordering::SeqCst);
    py.detach(|| {
        let begun = Instant::now();
        while MAKING.load(Ordering::SeqCst) != 0 && begun.elapsed() < PATIENCE {
            thread::sleep(POLL);
        }
    });
}

#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

/// Lets no thread call Python any more, and waits for those that do.
#[pyfunction]
pub(crate) fn before_exit(py: Python<'_>) {
    IS_ENDING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let begun = Instant::now();
        while CALLING.load(Ordering::SeqCst) != 0 && begun.elapsed() < PATIENCE_AT_EXIT {
            thread::sleep(POLL);
        }
    });
}

/// Forgets the parent's other threads.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    FORKS.store(0, Ordering::SeqCst);
    CALLING.store(0, Ordering::SeqCst);
    MAKING.store(0, Ordering::SeqCst);
}
