//! The Python class `ServerClient`: a storage on a ZEO server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use zodium_client::{Access, Client, ClientError, Options, TIMEOUT_MAX, WarmUpList};
use zodium_tls::{CertificateFiles, ClientFiles, Password, Trust};
use zodium_types::Address;

use crate::call::{ended, released};
use crate::client::NativeClient;
use crate::error::raised;
use crate::ids::{OidArgument, TidArgument};
use crate::interrupt::PythonSignals;
use crate::logging;
use crate::value::arguments;
use crate::watcher::PythonWatcher;

/// A client for a storage on a server.
#[pyclass(frozen, extends = NativeClient, name = "ServerClient", module = "zodium._native")]
pub(crate) struct ServerClient {
    client: Arc<Client>,
}

#[pymethods]
impl ServerClient {
    /// Starts to connect. `watcher` is called to get the storage that receives events, or None.
    #[new]
    #[pyo3(signature = (addresses, watcher, **options))]
    fn new(
        py: Python<'_>,
        addresses: Vec<Bound<'_, PyAny>>,
        watcher: Py<PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<ServerClient>> {
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
        let client = Arc::new(released(py, || Client::connect(made))?);
        let common = NativeClient::new(Arc::<Client>::clone(&client));
        Ok(PyClassInitializer::from(common).add_subclass(ServerClient { client }))
    }

    /// Reconnects to one of these servers.
    fn set_addresses(
        this: PyRef<'_, Self>,
        py: Python<'_>,
        addresses: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let client = ServerClient::here(&this, py)?;
        let addresses = addresses.iter().map(address).collect::<PyResult<Vec<_>>>()?;
        released(py, || client.set_addresses(addresses))
    }

    fn peer(this: PyRef<'_, Self>, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(ServerClient::here(&this, py)?.peer())
    }

    /// Has the server send a blob, which is written to a new file.
    fn fetch_blob(
        this: PyRef<'_, Self>,
        py: Python<'_>,
        oid: OidArgument,
        serial: TidArgument,
        path: PathBuf,
    ) -> PyResult<()> {
        let client = ServerClient::here(&this, py)?;
        let fetched = py.detach(|| {
            let file = std::fs::File::create_new(&path).map_err(Failure::File)?;
            client.fetch_blob(oid.0, serial.0, file).map(drop).map_err(Failure::Client)
        });
        let fetched = fetched.map_err(|failure| match failure {
            Failure::File(error) => error.into(),
            // The client knows the file, and not its path.
            Failure::Client(ClientError::File { reason, code: Some(code), .. }) => {
                PyOSError::new_err((code, reason.to_string(), path))
            }
            Failure::Client(error) => raised(py, &error),
        });
        ended(py, fetched)
    }

    /// Calls a method without a reply.
    #[pyo3(signature = (method, *items))]
    fn cast(
        this: PyRef<'_, Self>,
        py: Python<'_>,
        method: &str,
        items: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let client = ServerClient::here(&this, py)?;
        let items: Vec<_> = items.iter().collect();
        let arguments = arguments(&items)?;
        released(py, || client.cast(method, &arguments))
    }
}

impl ServerClient {
    /// The client, for this process.
    fn here<'a>(this: &'a PyRef<'_, Self>, py: Python<'_>) -> PyResult<&'a Client> {
        this.as_super().here(py)?;
        Ok(&this.client)
    }
}

/// Errors of fetching a blob.
enum Failure {
    File(std::io::Error),
    Client(ClientError),
}

/// Converts a path, or a host and a port.
pub(crate) fn address(given: &Bound<'_, PyAny>) -> PyResult<Address> {
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
        "warm_up" => options.warm_up = warm_up(value)?,
        "tls" => options.tls = tls(value)?,
        name => return Err(PyValueError::new_err(format!("there is no option {name}"))),
    }
    Ok(())
}

pub(crate) fn seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds = Duration::try_from_secs_f64(value.extract()?);
    let above_zero = seconds.map_err(|error| error.to_string()).and_then(|seconds| {
        let is_some = !seconds.is_zero() || name == "wait_timeout";
        if is_some { Ok(seconds.min(TIMEOUT_MAX)) } else { Err("that is no time".to_owned()) }
    });
    above_zero.map_err(|error| PyValueError::new_err(format!("{name} is {value}: {error}")))
}

/// A path; None for the place beside the cache, and False for no list.
fn warm_up(given: &Bound<'_, PyAny>) -> PyResult<WarmUpList> {
    if given.is_none() {
        return Ok(WarmUpList::BesideCache);
    }
    if let Ok(false) = given.extract::<bool>() {
        return Ok(WarmUpList::Off);
    }
    Ok(WarmUpList::File(given.extract()?))
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
