//! Forwards the events of a client to a Python storage.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zodium_client::{ClientError, Watcher};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::attach::attached;
use crate::interrupt::{aside, keep_for_call, run_handlers};
use crate::logging::report;
use crate::value::to_python;

/// How often something is told that must not be missed.
const ATTEMPTS: usize = 10;

/// Tells something that must not be missed. Tries again when a signal handler raises meanwhile.
pub(crate) fn insist(told: impl Fn() -> bool) -> Result<(), ClientError> {
    if (0..ATTEMPTS).any(|_| told()) { Ok(()) } else { Err(ClientError::NotTold) }
}

/// Calls the methods of a storage, on the thread that reads from the server.
pub(crate) struct PythonWatcher {
    /// Returns the storage, or None if it no longer exists: a strong reference would be a cycle.
    storage: Py<PyAny>,
}

impl PythonWatcher {
    pub(crate) fn new(storage: Py<PyAny>) -> PythonWatcher {
        PythonWatcher { storage }
    }

    /// Calls a function with the storage, unless it or the interpreter no longer exists. Exceptions
    /// of signal handlers are kept for the call that this thread makes, others are logged.
    /// `false` after an exception.
    fn tell(
        &self,
        with: impl for<'py> FnOnce(Python<'py>, &Bound<'py, PyAny>) -> PyResult<()>,
    ) -> bool {
        let told = attached(|py| {
            // Otherwise Python runs them within the call, and their exceptions end it.
            run_handlers(py);
            let told = aside(py, || {
                let storage = self.storage.bind(py).call0()?;
                if storage.is_none() { Ok(()) } else { with(py, &storage) }
            });
            let Err(error) = told else { return true };
            if let Err(error) = keep_for_call(py, error) {
                report(py, "the storage failed at news of its server", error);
            }
            false
        });
        // Without an interpreter there is no storage.
        told.unwrap_or(true)
    }

    /// Has the storage drop what it keeps. It cannot if, for example, this thread has nearly
    /// reached Python's limit of recursion.
    fn drop_all(&self) -> Result<(), ClientError> {
        insist(|| self.tell(|_, storage| storage.call_method0("invalidateCache").map(drop)))
    }
}

impl Watcher for PythonWatcher {
    fn invalidated(&self, tid: Tid, oids: &[Oid]) -> Result<(), ClientError> {
        let is_told = self.tell(|py, storage| {
            let tid = PyBytes::new(py, &tid.to_bytes());
            let oids: Vec<_> = oids.iter().map(|oid| PyBytes::new(py, &oid.to_bytes())).collect();
            storage.call_method1("invalidateTransaction", (tid, oids)).map(drop)
        });
        // Some of the connections may have missed the commit. Told before the client counts it.
        if is_told { Ok(()) } else { self.drop_all() }
    }

    fn all_invalidated(&self) -> Result<(), ClientError> {
        self.drop_all()
    }

    fn connected(&self, info: &Value<'_>) -> Result<(), ClientError> {
        let is_told = self.tell(|py, storage| {
            storage.call_method1("notify_connected", (to_python(py, info)?,)).map(drop)
        });
        // A subclass may fail for reasons of its own.
        if is_told { Ok(()) } else { self.drop_all() }
    }

    fn disconnected(&self) {
        self.tell(|_, storage| storage.call_method0("notify_disconnected").map(drop));
    }

    fn info(&self, info: &Value<'_>) {
        self.tell(|py, storage| storage.call_method1("info", (to_python(py, info)?,)).map(drop));
    }
}
