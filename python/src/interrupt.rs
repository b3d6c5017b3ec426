//! Signals: Python handles them in its main thread, which may be waiting for the server here.
//!
//! Key decision: what a handler raises is kept until the native call of its thread ends, and is
//! raised by that call, whatever else came of it. A wait that sees it ends early, but a reply may
//! come first; no later call may raise it instead.

use std::cell::RefCell;

use pyo3::exceptions::PyException;
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
    if let Err(raised) = aside(py, || py.check_signals()) {
        keep(py, raised);
    }
}

/// Calls Python within a native call. What signal handlers have raised so far is for that call: the
/// native calls that `run` makes do not raise it.
pub(crate) fn aside<T>(py: Python<'_>, run: impl FnOnce() -> T) -> T {
    let before = RAISED.take();
    let done = run();
    if let Some(before) = before {
        let later = RAISED.replace(Some(before));
        later.into_iter().for_each(|later| keep(py, later));
    }
    done
}

/// Keeps an exception of Python code within a native call for the end of that call, if it is meant
/// for the thread: that of a signal handler, or one that is no `Exception`. Gives others back.
pub(crate) fn keep_for_call(py: Python<'_>, error: PyErr) -> Result<(), PyErr> {
    if PythonSignals.may_stop() && is_for_thread(py, &error) {
        keep(py, error);
        return Ok(());
    }
    Err(error)
}

fn is_for_thread(py: Python<'_>, error: &PyErr) -> bool {
    if !error.is_instance_of::<PyException>(py) {
        return true;
    }
    let traceback = error.traceback(py);
    let asked = py
        .import("zodium._signals")
        .and_then(|module| module.call_method1("is_from_handler", (traceback,))?.is_truthy());
    asked.unwrap_or_else(|raised| {
        // A handler may raise while that is asked.
        keep(py, raised);
        false
    })
}

fn keep(py: Python<'_>, raised: PyErr) {
    let before = RAISED.take();
    if before.is_some() {
        raised.set_context(py, before);
    }
    RAISED.set(Some(raised));
}

/// The exception that a signal handler has raised in this thread; returned once. None in a thread
/// that is ending: uWSGI ends the interpreter, and so closes storages, after the thread's data.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.try_with(RefCell::take).ok().flatten()
}
