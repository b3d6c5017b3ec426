//! Signals: Python handles them in its main thread, which may be waiting for the server here.

use std::cell::RefCell;

use pyo3::prelude::*;
use rustix::process::getpid;
use rustix::thread::gettid;
use zodium_client::Interrupt;

thread_local! {
    /// The exception of a signal handler, for the call that it interrupts.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs pending signal handlers; a call is interrupted if one of them raises.
pub(crate) struct PythonSignals;

impl Interrupt for PythonSignals {
    /// Whether this is Python's main thread: the first one of the process, also after a fork. Other
    /// threads need not ask the interpreter.
    fn may_stop(&self) -> bool {
        gettid() == getpid()
    }

    fn stops(&self) -> bool {
        Python::try_attach(run_handlers);
        RAISED.with_borrow(Option::is_some)
    }
}

/// Runs pending signal handlers, if this is Python's main thread. The exception of one of them ends
/// the wait of this thread, at its next look.
pub(crate) fn run_handlers(py: Python<'_>) {
    if let Err(raised) = py.check_signals() {
        RAISED.set(Some(raised));
    }
}

/// The exception that a signal handler has raised in this thread; returned once.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}
