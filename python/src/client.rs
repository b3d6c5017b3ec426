//! The Python class `Client`: a native client for one storage.
//!
//! Key decision: the GIL is released for everything that may wait, for a server or for a lock whose
//! holder may be waiting for the GIL. Loads answered from the cache keep the GIL: if another thread
//! is computing, it gives the GIL back only after 5 ms.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyTuple};
use zodium_client::{Access, Client, ClientError, Options, Outcome, Revision};
use zodium_tls::{CertificateFiles, ClientFiles, Password, Trust};
use zodium_types::{Address, Oid};

use crate::error::raised;
use crate::ids::{OidArgument, TidArgument};
use crate::interrupt::PythonSignals;
use crate::logging;
use crate::outcome::NativeUnfinished;
use crate::reader::NativeLogReader;
use crate::transaction::{NativeTransaction, metadata};
use crate::value::{arguments, to_python};
use crate::watcher::PythonWatcher;

/// A client for a storage on a server.
#[pyclass(frozen, name = "Client", module = "zodium._native")]
pub(crate) struct NativeClient {
    client: Client,
}

/// The result of a load: data, serial, and the tid that ended the revision.
type Loaded<'py> = Option<Parts<'py>>;
type Parts<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// An object in an iteration over all objects: oid, tid, data, and the oid of the next one.
type NextObject<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

#[pymethods]
impl NativeClient {
    /// Starts to connect. `watcher` is called to get the storage that receives events, or None.
    #[new]
    #[pyo3(signature = (addresses, watcher, **options))]
    fn new(
        py: Python<'_>,
        addresses: Vec<Bound<'_, PyAny>>,
        watcher: Py<PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<NativeClient> {
        logging::begin();
        let addresses = addresses.iter().map(address).collect::<PyResult<Vec<_>>>()?;
        let first = addresses.first().cloned();
        let first = first.ok_or_else(|| PyValueError::new_err("no address of a server"))?;
        let mut made = Options::new(first);
        made.addresses = addresses;
        made.wait = false;
        made.watcher = Some(Arc::new(PythonWatcher::new(watcher)));
        made.interrupt = Some(Arc::new(PythonSignals));
        if let Some(given) = options {
            for (name, value) in given {
                set(&mut made, &name.extract::<String>()?, &value)?;
            }
        }
        let client = py.detach(|| Client::connect(made)).map_err(|error| raised(py, &error))?;
        Ok(NativeClient { client })
    }

    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.client.wait()).map_err(|error| raised(py, &error))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.client.close());
    }

    /// Reconnects to one of these servers.
    fn set_addresses(&self, py: Python<'_>, addresses: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let addresses = addresses.iter().map(address).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| self.client.set_addresses(addresses)).map_err(|error| raised(py, &error))
    }

    fn after_fork_in_child(&self, py: Python<'_>) -> PyResult<()> {
        self.client.after_fork_in_child().map_err(|error| raised(py, &error))
    }

    fn is_connected(&self) -> bool {
        self.client.is_connected()
    }

    fn is_read_only(&self) -> bool {
        self.client.is_read_only()
    }

    fn peer(&self) -> Option<String> {
        self.client.peer()
    }

    fn clear_cache(&self) {
        self.client.clear_cache();
    }

    fn last_tid<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.client.last_tid().to_bytes())
    }

    fn load_before<'py>(
        &self,
        py: Python<'py>,
        oid: OidArgument,
        before: TidArgument,
    ) -> PyResult<Loaded<'py>> {
        let loaded = match self.client.load_cached(oid.0, before.0) {
            Some(revision) => Ok(Some(revision)),
            None => py.detach(|| self.client.load_uncached(oid.0, before.0)),
        };
        let loaded = loaded.map_err(|error| raised(py, &error))?;
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
        py.detach(|| self.client.prefetch(&oids, before.0));
        Ok(())
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
        let loaded = py.detach(|| self.client.load_many(&oids, before.0));
        let loaded = loaded.map_err(|error| raised(py, &error))?.into_iter();
        let answers = loaded.map(|answer| match answer {
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
        let found = py.detach(|| self.client.next_object(next.map(|oid| oid.0)));
        let found = found.map_err(|error| raised(py, &error))?;
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
        let reader = py.detach(|| self.client.read_log(start, stop));
        let reader = reader.map_err(|error| raised(py, &error))?;
        Ok(NativeLogReader::new(reader, record))
    }

    fn new_oid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let oid = py.detach(|| self.client.new_oid()).map_err(|error| raised(py, &error))?;
        Ok(PyBytes::new(py, &oid.to_bytes()))
    }

    /// Finds out the outcome of a transaction whose finish was not answered: its tid, None if it
    /// was not committed, or False if that cannot be found out.
    fn outcome<'py>(
        &self,
        py: Python<'py>,
        unfinished: &NativeUnfinished,
    ) -> PyResult<Bound<'py, PyAny>> {
        let outcome = py.detach(|| self.client.outcome(&unfinished.0));
        match outcome.map_err(|error| raised(py, &error))? {
            Outcome::Committed(tid) => Ok(PyBytes::new(py, &tid.to_bytes()).into_any()),
            Outcome::NotCommitted => Ok(py.None().into_bound(py)),
            Outcome::Unknown => Ok(PyBool::new(py, false).to_owned().into_any()),
        }
    }

    /// Has the server send a blob, which is written to a new file.
    fn fetch_blob(
        &self,
        py: Python<'_>,
        oid: OidArgument,
        serial: TidArgument,
        path: PathBuf,
    ) -> PyResult<()> {
        py.detach(|| {
            let file = std::fs::File::create_new(&path).map_err(Failure::File)?;
            self.client.fetch_blob(oid.0, serial.0, file).map(drop).map_err(Failure::Client)
        })
        .map_err(|failure| match failure {
            Failure::File(error) => error.into(),
            Failure::Client(error) => raised(py, &error),
        })
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
        let answer = py.detach(|| self.client.call(method, &arguments));
        to_python(py, &answer.map_err(|error| raised(py, &error))?)
    }

    /// Calls a method without a reply.
    #[pyo3(signature = (method, *items))]
    fn cast(&self, py: Python<'_>, method: &str, items: &Bound<'_, PyTuple>) -> PyResult<()> {
        let items: Vec<_> = items.iter().collect();
        let arguments = arguments(&items)?;
        py.detach(|| self.client.cast(method, &arguments)).map_err(|error| raised(py, &error))
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
        let begun = py.detach(|| self.client.begin(&options));
        begun.map(NativeTransaction::new).map_err(|error| raised(py, &error))
    }
}

impl Drop for NativeClient {
    /// Releases the GIL: closing waits for a thread that may be calling Python.
    fn drop(&mut self) {
        let _ = Python::try_attach(|py| py.detach(|| self.client.close()));
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

/// Errors of fetching a blob.
enum Failure {
    File(std::io::Error),
    Client(ClientError),
}

/// Converts a path, or a host and a port.
fn address(given: &Bound<'_, PyAny>) -> PyResult<Address> {
    if let Ok((host, port)) = given.extract::<(String, u16)>() {
        return Ok(Address::Tcp { host, port });
    }
    Ok(Address::Unix(given.extract()?))
}

fn set(options: &mut Options, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match name {
        "storage" => options.storage = value.extract()?,
        "read_only" if value.is_truthy()? => options.access = Access::ReadOnly,
        "read_only_fallback" if value.is_truthy()? => options.access = Access::Fallback,
        "read_only" | "read_only_fallback" => {}
        "wait_seconds" => options.wait_timeout = seconds("wait_timeout", value)?,
        "silence_seconds" => options.silence_max = seconds("silence_timeout", value)?,
        "label" => options.label = value.extract()?,
        "cache_bytes" => options.cache_bytes = value.extract()?,
        "cache_path" => options.cache_path = value.extract()?,
        "tls" => options.tls = tls(value)?,
        name => return Err(PyValueError::new_err(format!("there is no option {name}"))),
    }
    Ok(())
}

fn seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds = Duration::try_from_secs_f64(value.extract()?);
    let above_zero = seconds.map_err(|error| error.to_string()).and_then(|seconds| {
        let is_some = !seconds.is_zero() || name == "wait_timeout";
        if is_some { Ok(seconds) } else { Err("that is no time".to_owned()) }
    });
    above_zero.map_err(|error| PyValueError::new_err(format!("{name} is {value}: {error}")))
}

fn tls(given: &Bound<'_, PyAny>) -> PyResult<Option<zodium_client::TlsOptions>> {
    if given.is_none() {
        return Ok(None);
    }
    let certificate: Option<PathBuf> = given.getattr("certificate")?.extract()?;
    let key = given.getattr("key")?.extract()?;
    let file: Option<PathBuf> = given.getattr("password_file")?.extract()?;
    let text: Option<Vec<u8>> = given.getattr("password")?.extract()?;
    let own = certificate.map(|certificate| CertificateFiles {
        certificate,
        key,
        key_password: text.map(Password::Text).or(file.map(Password::File)),
    });
    let listed = given.getattr("authenticate")?.extract()?;
    let trust = match given.getattr("check_hostname")?.is_truthy()? {
        true => Trust::Listed(listed),
        false => Trust::ListedUnderAnyName(listed),
    };
    let files = ClientFiles { own, trust };
    let server_name = given.getattr("server_name")?.extract()?;
    Ok(Some(zodium_client::TlsOptions { files, server_name }))
}
