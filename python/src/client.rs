//! The Python class `Client`: what all kinds of storage have in common.
//!
//! Key decision: the GIL is released for everything that may wait, for a server or for a lock whose
//! holder may be waiting for the GIL. Loads answered from the cache keep the GIL: if another thread
//! is computing, it gives the GIL back only after 5 ms.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyTuple};
use zodium_client::{ClientError, Outcome, Revision};
use zodium_types::Oid;

use crate::backend::Backend;
use crate::call::{ended, released, released_in_drop};
use crate::error::{disconnected, raised};
use crate::ids::{OidArgument, TidArgument};
use crate::outcome::NativeUnfinished;
use crate::reader::NativeLogReader;
use crate::transaction::{NativeTransaction, metadata};
use crate::value::{arguments, to_python};

/// No process has this id.
const NO_PROCESS: u32 = 0;

/// A storage, wherever it is.
#[pyclass(frozen, subclass, name = "Client", module = "zodium._native")]
pub(crate) struct NativeClient {
    backend: Arc<dyn Backend>,
    /// The process that the backend is for; none when it was closed, so that it stays closed in
    /// children. Relaxed: it is used with the GIL held.
    process: AtomicU32,
}

/// The result of a load: data, serial, and the tid that ended the revision.
type Loaded<'py> = Option<Parts<'py>>;
type Parts<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// An object in an iteration over all objects: oid, tid, data, and the oid of the next one.
type NextObject<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

#[pymethods]
impl NativeClient {
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let backend = self.here(py)?;
        released(py, || backend.wait())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let backend = self.here(py)?;
        py.detach(|| backend.close());
        self.process.store(NO_PROCESS, Ordering::Relaxed);
        ended(py, Ok(()))
    }

    fn after_fork_in_child(&self, py: Python<'_>) -> PyResult<()> {
        self.backend.after_fork_in_child().map_err(|error| raised(py, &error))?;
        self.process.store(process::id(), Ordering::Relaxed);
        Ok(())
    }

    fn is_connected(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.here(py)?.is_connected())
    }

    fn is_read_only(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.here(py)?.is_read_only())
    }

    fn clear_cache(&self, py: Python<'_>) -> PyResult<()> {
        self.here(py)?.clear_cache();
        Ok(())
    }

    fn last_tid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let backend = self.here(py)?;
        let last_tid = match backend.last_tid_at_once() {
            Some(last_tid) => last_tid,
            None => released(py, || backend.last_tid())?,
        };
        Ok(PyBytes::new(py, &last_tid.to_bytes()))
    }

    fn load_before<'py>(
        &self,
        py: Python<'py>,
        oid: OidArgument,
        before: TidArgument,
    ) -> PyResult<Loaded<'py>> {
        let loaded = match self.backend.load_cached(oid.0, before.0) {
            Some(revision) => Some(revision),
            None => {
                let backend = self.here(py)?;
                released(py, || backend.load_uncached(oid.0, before.0))?
            }
        };
        Ok(loaded.map(|revision| revision_parts(py, &revision)))
    }

    /// Starts loading objects. `oids` is any iterable of oids.
    fn prefetch(
        &self,
        py: Python<'_>,
        oids: &Bound<'_, PyAny>,
        before: TidArgument,
    ) -> PyResult<()> {
        let oids = oids_of(oids)?;
        let backend = self.here(py)?;
        py.detach(|| backend.prefetch(&oids, before.0));
        ended(py, Ok(()))
    }

    /// Loads many objects with one request; the result is None for an object that did not exist
    /// before `before`, or no longer exists.
    fn load_many<'py>(
        &self,
        py: Python<'py>,
        oids: &Bound<'_, PyAny>,
        before: TidArgument,
    ) -> PyResult<Vec<Loaded<'py>>> {
        let oids = oids_of(oids)?;
        let backend = self.here(py)?;
        let loaded = released(py, || backend.load_many(&oids, before.0))?;
        let answers = loaded.into_iter().map(|answer| match answer {
            Ok(revision) => Ok(revision.map(|revision| revision_parts(py, &revision))),
            Err(ClientError::NoObject(_)) => Ok(None),
            Err(error) => Err(raised(py, &error)),
        });
        answers.collect()
    }

    /// The first object from an oid on: oid, tid, data, and the oid of the next one.
    #[pyo3(signature = (next = None))]
    fn next_object<'py>(
        &self,
        py: Python<'py>,
        next: Option<OidArgument>,
    ) -> PyResult<NextObject<'py>> {
        let backend = self.here(py)?;
        let found = released(py, || backend.next_object(next.map(|oid| oid.0)))?;
        Ok((
            PyBytes::new(py, &found.oid.to_bytes()),
            PyBytes::new(py, &found.serial.to_bytes()),
            PyBytes::new(py, &found.data),
            found.following.map(|oid| PyBytes::new(py, &oid.to_bytes())),
        ))
    }

    /// Reads the log. `record` constructs a record from oid, tid, data and the tid of the data.
    fn read_log(
        &self,
        py: Python<'_>,
        start: Option<TidArgument>,
        stop: Option<TidArgument>,
        record: Py<PyAny>,
    ) -> PyResult<NativeLogReader> {
        let (start, stop) = (start.map(|tid| tid.0), stop.map(|tid| tid.0));
        let backend = self.here(py)?;
        let reader = py.detach(|| backend.read_log(start, stop));
        let reader = reader.map(|reader| NativeLogReader::new(reader, record));
        ended(py, reader.map_err(|error| raised(py, &error)))
    }

    fn new_oid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let backend = self.here(py)?;
        let oid = released(py, || backend.new_oid())?;
        Ok(PyBytes::new(py, &oid.to_bytes()))
    }

    /// Finds out the outcome of a transaction whose finish was not answered: its tid, None if it
    /// was not committed, or False if that cannot be found out.
    fn outcome<'py>(
        &self,
        py: Python<'py>,
        unfinished: &NativeUnfinished,
    ) -> PyResult<Bound<'py, PyAny>> {
        if unfinished.is_parents() {
            return Err(disconnected(py, "this transaction is the parent process's: ask it there"));
        }
        let backend = self.here(py)?;
        match released(py, || backend.outcome(&unfinished.transaction))? {
            Outcome::Committed(tid) => Ok(PyBytes::new(py, &tid.to_bytes()).into_any()),
            Outcome::NotCommitted => Ok(py.None().into_bound(py)),
            Outcome::Unknown => Ok(PyBool::new(py, false).to_owned().into_any()),
        }
    }

    #[pyo3(signature = (method, *items))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        items: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let items: Vec<_> = items.iter().collect();
        let arguments = arguments(&items)?;
        let backend = self.here(py)?;
        to_python(py, &released(py, || backend.call(method, arguments))?)
    }

    /// Begins a transaction; waits until no other one is open.
    fn begin(
        &self,
        py: Python<'_>,
        user: &Bound<'_, PyAny>,
        description: &Bound<'_, PyAny>,
        extension: &Bound<'_, PyAny>,
        tid: Option<TidArgument>,
        status: char,
    ) -> PyResult<NativeTransaction> {
        let options = metadata(user, description, extension, tid.map(|tid| tid.0), status)?;
        let backend = self.here(py)?;
        let begun = py.detach(|| backend.begin(&options)).map(NativeTransaction::new);
        ended(py, begun.map_err(|error| raised(py, &error)))
    }
}

impl NativeClient {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> NativeClient {
        NativeClient { backend, process: AtomicU32::new(process::id()) }
    }

    /// The storage, for this process. C code forks without telling Python, as uWSGI does by
    /// default: the child would share its parent's connection, and wait for a thread that it does
    /// not have.
    pub(crate) fn here(&self, py: Python<'_>) -> PyResult<&dyn Backend> {
        if self.is_parents() {
            self.after_fork_in_child(py)?;
        }
        Ok(&*self.backend)
    }

    /// Whether the open backend is another process's.
    fn is_parents(&self) -> bool {
        ![process::id(), NO_PROCESS].contains(&self.process.load(Ordering::Relaxed))
    }
}

impl Drop for NativeClient {
    /// Releases the GIL: closing waits for a thread that may be calling Python. A forked child that
    /// has not begun anew leaves the backend alone: its connection is the parent's.
    fn drop(&mut self) {
        if self.is_parents() {
            std::mem::forget(Arc::clone(&self.backend));
            return;
        }
        let _ = Python::try_attach(|py| released_in_drop(py, || self.backend.close()));
    }
}

fn revision_parts<'py>(py: Python<'py>, revision: &Revision) -> Parts<'py> {
    (
        PyBytes::new(py, &revision.data),
        PyBytes::new(py, &revision.serial.to_bytes()),
        revision.end.map(|end| PyBytes::new(py, &end.to_bytes())),
    )
}

/// The oids in an iterable.
fn oids_of(given: &Bound<'_, PyAny>) -> PyResult<Vec<Oid>> {
    given.try_iter()?.map(|oid| oid?.extract().map(|OidArgument(oid)| oid)).collect()
}
