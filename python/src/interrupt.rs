//! Signals: Python handles them in its main thread, which may be waiting for the server in here.

use std::cell::RefCell;

use pyo3::prelude::*;
use rustix::process::getpid;
use rustix::thread::gettid;
use zodium_client::Interrupt;

thread_local! {
    /// What a handler has raised, for the call that stops waiting because of it.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs the handlers of signals that have come; callers stop waiting when one raises.
pub(crate) struct PythonSignals;

impl Interrupt for PythonSignals {
    /// The thread that a process begins with, and goes on with after a fork: Python's main thread.
    /// Others need not ask the interpreter.
    fn may_stop(&self) -> bool {
        gettid() == getpid()
    }

    fn stops(&self) -> bool {
        let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
        let stops = raised.is_some();
        if stops {
            RAISED.set(raised);
        }
        stops
    }
}

/// What a handler has raised in this thread, once.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}
