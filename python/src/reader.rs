//! Reads the log of a storage for Python's iterators.
//!
//! Key decision: many records are passed at once, so that the GIL is taken, and Python's iterator
//! called, once for all of them.

use std::cell::RefCell;
use std::process;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use zodium_client::{ClientError, CommittedRecord, Extension, Interrupt};
use zodium_types::Tid;

use crate::backend::Log;
use crate::call::{ended, released_in_drop};
use crate::error::{disconnected, raised};
use crate::ids::TidArgument;
use crate::interrupt::PythonSignals;
use crate::value::to_python;

/// Most records passed at once.
const RECORDS_MAX: usize = 256;
/// Interval of signal checks while another thread reads.
const SIGNALS_INTERVAL: Duration = Duration::from_millis(100);

/// A reader of the log.
#[pyclass(frozen, name = "LogReader", module = "zodium._native")]
pub(crate) struct NativeLogReader {
    /// Borrowed during a wait for the server. A signal handler that uses it then, in the same
    /// thread, gets an error; other threads wait.
    reader: ReentrantMutex<Place>,
    /// The process that created it: a forked child must not use its connection.
    process: u32,
    /// Constructs a record from its four parts.
    record: Py<PyAny>,
}

/// The reader; `None` when it was given up.
type Place = RefCell<Option<Box<dyn Log>>>;

/// Metadata of a transaction: tid, status, user, description, and the extension as a pickle or a
/// dict.
type Head<'py> =
    (Bound<'py, PyBytes>, char, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyAny>);

/// Why the reader cannot be used.
enum Refusal {
    /// The call would interrupt another one of its own thread.
    InUse,
    GivenUp,
    Client(ClientError),
}

impl Refusal {
    fn into_exception(self, py: Python<'_>) -> PyErr {
        match self {
            Refusal::InUse => PyRuntimeError::new_err(
                "this iterator is already in use by the call that a signal's handler interrupts: \
                 begin another iterator in the handler",
            ),
            Refusal::GivenUp => disconnected(py, "this iterator was given up"),
            Refusal::Client(error) => raised(py, &error),
        }
    }
}

impl NativeLogReader {
    pub(crate) fn new(reader: Box<dyn Log>, record: Py<PyAny>) -> NativeLogReader {
        let reader = ReentrantMutex::new(RefCell::new(Some(reader)));
        NativeLogReader { reader, process: process::id(), record }
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut dyn Log) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        if process::id() != self.process {
            return Err(disconnected(py, "this iterator is the parent process's: begin a new one"));
        }
        let result = py.detach(|| {
            let reader = self.locked()?;
            let mut reader = reader.try_borrow_mut().map_err(|_| Refusal::InUse)?;
            reader
                .as_mut()
                .map(|reader| run(reader.as_mut()))
                .ok_or(Refusal::GivenUp)?
                .map_err(Refusal::Client)
        });
        ended(py, result.map_err(|refusal| refusal.into_exception(py)))
    }

    /// Locks the reader, waiting while another thread reads. Runs signal handlers meanwhile, which
    /// may end the wait.
    fn locked(&self) -> Result<ReentrantMutexGuard<'_, Place>, Refusal> {
        loop {
            if let Some(reader) = self.reader.try_lock_for(SIGNALS_INTERVAL) {
                return Ok(reader);
            }
            if PythonSignals.may_stop() && PythonSignals.stops() {
                return Err(Refusal::Client(ClientError::Interrupted));
            }
        }
    }
}

#[pymethods]
impl NativeLogReader {
    /// The server's id of the iterator.
    #[getter]
    fn number(&self, py: Python<'_>) -> PyResult<i128> {
        self.with(py, |reader| Ok(reader.number()))
    }

    /// The next transaction; None at the end.
    fn next_transaction<'py>(&self, py: Python<'py>) -> PyResult<Option<Head<'py>>> {
        let Some(head) = self.with(py, |reader| reader.next_transaction())? else {
            return Ok(None);
        };
        let extension = match head.extension {
            Extension::Pickle(pickle) => PyBytes::new(py, &pickle).into_any(),
            Extension::Dict(dict) => to_python(py, &dict)?,
        };
        Ok(Some((
            PyBytes::new(py, &head.tid.to_bytes()),
            head.status,
            PyBytes::new(py, &head.user),
            PyBytes::new(py, &head.description),
            extension,
        )))
    }

    /// Some records of a transaction after the first `taken`, at most up to record `upto`; empty at
    /// the end of the transaction. None if the reader is at another transaction or position.
    #[pyo3(signature = (tid, taken, upto = usize::MAX))]
    fn records<'py>(
        &self,
        py: Python<'py>,
        tid: TidArgument,
        taken: usize,
        upto: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let records = self.with(py, |reader| match reader.position() {
            Some(position) if position == (tid.0, taken) => {
                reader.next_records(RECORDS_MAX.min(upto.saturating_sub(taken))).map(Some)
            }
            _ => Ok(None),
        })?;
        let Some(records) = records else { return Ok(None) };
        let tid = PyBytes::new(py, &tid.0.to_bytes());
        let class = self.record.bind(py);
        let made = records.into_iter().map(|record| made(py, class, &tid, record));
        PyList::new(py, made.collect::<PyResult<Vec<_>>>()?).map(Some)
    }
}

fn made<'py>(
    py: Python<'py>,
    class: &Bound<'py, PyAny>,
    tid: &Bound<'py, PyBytes>,
    record: CommittedRecord,
) -> PyResult<Bound<'py, PyAny>> {
    let data = record.data.map(|data| PyBytes::new(py, &data));
    let data_tid = record.data_tid.map(|tid: Tid| PyBytes::new(py, &tid.to_bytes()));
    class.call1((PyBytes::new(py, &record.oid.to_bytes()), tid, data, data_tid))
}

impl Drop for NativeLogReader {
    /// Releases the server's iterator, but only in the process that has the connection.
    fn drop(&mut self) {
        let reader = self.reader.get_mut().get_mut().take();
        if process::id() != self.process {
            std::mem::forget(reader);
            return;
        }
        let _ = Python::try_attach(|py| released_in_drop(py, || drop(reader)));
    }
}

/// Decodes a transaction's extension: a pickled dict of plain data.
#[pyfunction]
pub(crate) fn plain_extension<'py>(
    py: Python<'py>,
    pickle: &Bound<'py, PyBytes>,
) -> PyResult<Bound<'py, PyAny>> {
    let pickle = Bytes::copy_from_slice(pickle.as_bytes());
    let dict = Extension::Pickle(pickle).into_dict();
    let dict = dict.map_err(|error| PyTypeError::new_err(error.to_string()))?;
    to_python(py, &dict)
}
