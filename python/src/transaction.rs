//! The Python class `Transaction`.

use std::cell::RefCell;
use std::fs::File;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, ReentrantMutex};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use zodium_client::{ClientError, TransactionOptions};
use zodium_pickle::Value;
use zodium_types::Tid;

use crate::attach::attached;
use crate::backend::OpenTransaction;
use crate::call::{ended, released_in_drop};
use crate::error::{disconnected, raised};
use crate::ids::{DataArgument, OidArgument, TidArgument};
use crate::interrupt::{aside, keep_for_call, take_raised};
use crate::logging::report;
use crate::value::owned;
use crate::watcher::insist;

/// An open transaction; dropping it aborts it.
#[pyclass(frozen, name = "Transaction", module = "zodium._native")]
pub(crate) struct NativeTransaction {
    /// `None` when the transaction is over. Borrowed during a wait: a signal handler that uses it
    /// then, in the same thread, gets an error.
    open: ReentrantMutex<RefCell<Option<Box<dyn OpenTransaction>>>>,
    /// The process that began it: a forked child must not use its connection.
    process: u32,
}

/// The result of a vote: oids whose data the server has changed, and conflicts as oid, committed
/// serial, base serial and data.
type Voted<'py> = (Vec<Bound<'py, PyBytes>>, Vec<[Bound<'py, PyBytes>; 4]>);

/// The result of a finish: the tid, the exception of the function that was called with it, and that
/// of a signal handler that ran meanwhile.
type Finished<'py> = (Bound<'py, PyBytes>, Option<PyErr>, Option<PyErr>);

impl NativeTransaction {
    pub(crate) fn new(transaction: Box<dyn OpenTransaction>) -> NativeTransaction {
        let open = ReentrantMutex::new(RefCell::new(Some(transaction)));
        NativeTransaction { open, process: process::id() }
    }

    /// Fails in a forked child, where another thread's lock of the transaction stays locked, too.
    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if process::id() == self.process {
            return Ok(());
        }
        let text = "this transaction is the parent process's: begin a new one";
        Err(disconnected(py, text))
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut dyn OpenTransaction) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        self.check_process(py)?;
        let outcome = py.detach(|| {
            let open = self.open.lock();
            let mut open = open.try_borrow_mut().map_err(|_| is_busy())?;
            open.as_mut().map(|open| run(open.as_mut())).ok_or_else(is_over)
        });
        ended(py, outcome.and_then(|outcome| outcome.map_err(|error| raised(py, &error))))
    }

    /// Takes the transaction, to end it.
    fn take(&self) -> PyResult<Option<Box<dyn OpenTransaction>>> {
        let open = self.open.lock();
        let mut open = open.try_borrow_mut().map_err(|_| is_busy())?;
        Ok(open.take())
    }
}

#[pymethods]
impl NativeTransaction {
    fn store(
        &self,
        py: Python<'_>,
        oid: OidArgument,
        serial: Option<TidArgument>,
        data: DataArgument<'_>,
    ) -> PyResult<()> {
        let data = &data.0;
        self.with(py, |open| open.store(oid.0, upon(serial), Bytes::copy_from_slice(data)))
    }

    /// Stores an object with a blob, whose content is read from a file.
    fn store_blob(
        &self,
        py: Python<'_>,
        oid: OidArgument,
        serial: Option<TidArgument>,
        data: DataArgument<'_>,
        path: PathBuf,
    ) -> PyResult<()> {
        let data = &data.0;
        let mut file = py.detach(|| File::open(path))?;
        self.with(py, |open| {
            open.store_blob(oid.0, upon(serial), Bytes::copy_from_slice(data), &mut file)
        })
    }

    /// Stores an object with a blob in the directory shared by client and server.
    fn store_shared_blob(
        &self,
        py: Python<'_>,
        oid: OidArgument,
        serial: Option<TidArgument>,
        data: DataArgument<'_>,
        name: &str,
    ) -> PyResult<()> {
        let data = &data.0;
        self.with(py, |open| {
            open.store_shared_blob(oid.0, upon(serial), Bytes::copy_from_slice(data), name)
        })
    }

    fn delete(&self, py: Python<'_>, oid: OidArgument, serial: TidArgument) -> PyResult<()> {
        self.with(py, |open| open.delete(oid.0, serial.0))
    }

    fn check_current(&self, py: Python<'_>, oid: OidArgument, serial: TidArgument) -> PyResult<()> {
        self.with(py, |open| open.check_current(oid.0, serial.0))
    }

    fn undo(&self, py: Python<'_>, undo_id: &[u8]) -> PyResult<()> {
        self.with(py, |open| open.undo(undo_id))
    }

    fn restore(
        &self,
        py: Python<'_>,
        oid: OidArgument,
        serial: TidArgument,
        data: Option<&[u8]>,
        previous: Option<TidArgument>,
    ) -> PyResult<()> {
        let previous = previous.map(|tid| tid.0);
        self.with(py, |open| open.restore(oid.0, serial.0, data, previous))
    }

    fn vote<'py>(&self, py: Python<'py>) -> PyResult<Voted<'py>> {
        let voted = self.with(py, |open| open.vote())?;
        let changed = voted.changed.iter().map(|oid| PyBytes::new(py, &oid.to_bytes()));
        let conflicts = voted.conflicts.iter().map(|conflict| {
            [
                PyBytes::new(py, &conflict.oid.to_bytes()),
                PyBytes::new(py, &conflict.committed.to_bytes()),
                PyBytes::new(py, &conflict.stored_upon.to_bytes()),
                PyBytes::new(py, &conflict.data),
            ]
        });
        Ok((changed.collect(), conflicts.collect()))
    }

    /// Commits; returns the tid, the exception that `then` raised, and that of a signal handler.
    /// `then` is called with the tid before any later transaction is reported, and `otherwise` if
    /// it raises. An error means that the server has not confirmed the commit.
    fn finish<'py>(
        &self,
        py: Python<'py>,
        then: Py<PyAny>,
        otherwise: Py<PyAny>,
    ) -> PyResult<Finished<'py>> {
        self.check_process(py)?;
        let failure = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&failure);
        let called = move |tid: Tid| {
            let told = attached(|py| {
                let tid = PyBytes::new(py, &tid.to_bytes());
                let Err(error) = aside(py, || then.call1(py, (tid,))) else { return Ok(()) };
                *noted.lock() = keep_for_call(py, error).err();
                insist(|| repaired(py, &otherwise))
            });
            // Without an interpreter there is no application.
            told.unwrap_or(Ok(()))
        };
        let finished = py.detach(|| {
            let open = self.take()?.ok_or_else(is_over)?;
            Ok::<_, PyErr>(open.finish(Box::new(called)))
        });
        let tid = match finished.and_then(|done| done.map_err(|error| raised(py, &error))) {
            Ok(tid) => PyBytes::new(py, &tid.to_bytes()),
            Err(error) => return ended(py, Err(error)),
        };
        // Whatever a signal handler has raised, the transaction is committed.
        Ok((tid, failure.lock().take(), take_raised()))
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process(py)?;
        let aborted = py.detach(|| {
            let open = self.take()?;
            Ok::<_, PyErr>(open.map_or(Ok(()), |open| open.abort()))
        });
        ended(py, aborted.and_then(|aborted| aborted.map_err(|error| raised(py, &error))))
    }
}

impl Drop for NativeTransaction {
    /// Aborting an open transaction writes to the server. A forked child leaves it alone.
    fn drop(&mut self) {
        let open = self.open.get_mut().get_mut().take();
        if process::id() != self.process {
            std::mem::forget(open);
            return;
        }
        let _ = Python::try_attach(|py| released_in_drop(py, || drop(open)));
    }
}

/// Calls the function that makes up for one that has failed to tell of a commit.
fn repaired(py: Python<'_>, otherwise: &Py<PyAny>) -> bool {
    let Err(error) = aside(py, || otherwise.call0(py)) else { return true };
    if let Err(error) = keep_for_call(py, error) {
        report(py, "the connections could not be told of a commit", error);
    }
    false
}

/// The base serial of a store: none, or 0, for a new object.
fn upon(serial: Option<TidArgument>) -> Tid {
    serial.map_or(Tid::ZERO, |serial| serial.0)
}

fn is_over() -> PyErr {
    PyRuntimeError::new_err("the transaction is over")
}

fn is_busy() -> PyErr {
    PyRuntimeError::new_err("the transaction waits for the server, under the caller of this")
}

/// Builds the metadata of a transaction.
pub(crate) fn metadata(
    user: &Bound<'_, PyAny>,
    description: &Bound<'_, PyAny>,
    extension: &Bound<'_, PyAny>,
    tid: Option<Tid>,
    status: char,
) -> PyResult<TransactionOptions> {
    let extension = match owned(extension)? {
        Value::None => Value::Dict(Vec::new()),
        // A dict, or one that is pickled already.
        extension => extension,
    };
    let (user, description) = (text(user)?, text(description)?);
    Ok(TransactionOptions { user, description, extension, tid, status })
}

fn text(given: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match given.cast::<PyString>() {
        Ok(text) => Ok(text.to_cow()?.as_bytes().to_vec()),
        Err(_) => given.extract(),
    }
}
