//! The Python class `NeoClient`: a NEO cluster.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use zodium_neo_client::{Options, TlsFiles};
use zodium_types::Address;

use crate::backend::NeoBackend;
use crate::client::NativeClient;
use crate::interrupt::PythonSignals;
use crate::logging;
use crate::resolver::PythonResolver;
use crate::server_client::{address, seconds};
use crate::watcher::PythonWatcher;

/// A client of a NEO cluster.
#[pyclass(frozen, extends = NativeClient, name = "NeoClient", module = "zodium._native")]
pub(crate) struct NeoClient;

#[pymethods]
impl NeoClient {
    /// Does not connect yet. `watcher` is called to get the storage that receives events, or None;
    /// `resolve` merges conflicting records.
    #[new]
    #[pyo3(signature = (masters, name, watcher, resolve, **options))]
    fn new(
        masters: Vec<Bound<'_, PyAny>>,
        name: String,
        watcher: Py<PyAny>,
        resolve: Py<PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<NeoClient>> {
        logging::begin();
        let masters = masters.iter().map(address).collect::<PyResult<Vec<Address>>>()?;
        if masters.is_empty() || name.is_empty() {
            let text = "a NEO cluster is named by master_nodes and name, and one of them is empty";
            return Err(PyValueError::new_err(text));
        }
        let mut made = Options::new(name, masters);
        if let Some(given) = options {
            for (name, value) in given {
                set(&mut made, &name.extract::<String>()?, &value)?;
            }
        }
        let backend = NeoBackend::new(
            made,
            Arc::new(PythonWatcher::new(watcher)),
            Arc::new(PythonSignals),
            Arc::new(PythonResolver::new(resolve)),
        );
        let common = NativeClient::new(Arc::new(backend));
        Ok(PyClassInitializer::from(common).add_subclass(NeoClient))
    }
}

fn set(options: &mut Options, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match name {
        "read_only" => options.read_only = value.is_truthy()?,
        "compress" => options.compress = value.is_truthy()?,
        "wait_seconds" => options.wait = seconds("wait_timeout", value)?,
        "cache_bytes" => options.cache_bytes = value.extract()?,
        "tls" => options.tls = tls(value)?,
        name => return Err(PyValueError::new_err(format!("there is no option {name}"))),
    }
    Ok(())
}

/// The files of the authority, the certificate and the key.
fn tls(given: &Bound<'_, PyAny>) -> PyResult<Option<TlsFiles>> {
    if given.is_none() {
        return Ok(None);
    }
    let (authority, certificate, key): (PathBuf, PathBuf, PathBuf) = given.extract()?;
    Ok(Some(TlsFiles { authority, certificate, key }))
}
