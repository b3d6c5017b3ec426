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
        let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
        let stops = raised.is_some();
        if stops {
            RAISED.set(raised);
        }
        stops
    }
}

/// The exception that a signal handler has raised in this thread; returned once.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}
