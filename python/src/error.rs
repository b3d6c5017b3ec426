//! Errors of the client as Python's exceptions.

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zodium_client::ClientError;

use crate::value::to_python;

/// The exception that says what an error says.
pub(crate) fn raised(py: Python<'_>, error: &ClientError) -> PyErr {
    exception(py, error).unwrap_or_else(|failure| failure)
}

fn exception(py: Python<'_>, error: &ClientError) -> PyResult<PyErr> {
    let ours = |name| made(py, "zodium.exceptions", name, &error.to_string());
    match error {
        ClientError::Raised(exception) => {
            let payload = to_python(py, &exception.payload)?;
            remote(py, &exception.name, payload)
        }
        ClientError::NoObject(oid) => {
            let arguments = (PyBytes::new(py, &oid.to_bytes()),).into_pyobject(py)?;
            remote(py, "ZODB.POSException.POSKeyError", arguments.into_any())
        }
        ClientError::ReadOnly => {
            let none = ().into_pyobject(py)?;
            remote(py, "ZODB.POSException.ReadOnlyError", none.into_any())
        }
        ClientError::Disconnected(_) | ClientError::Unreachable { .. } | ClientError::Closed => {
            ours("ClientDisconnected")
        }
        ClientError::OutcomeUnknown { .. } => ours("OutcomeUnknown"),
        ClientError::Message(_) | ClientError::Unexpected { .. } => ours("ProtocolError"),
        ClientError::Options(text) => Ok(PyValueError::new_err(text.to_string())),
        ClientError::File { .. } => Ok(PyOSError::new_err(error.to_string())),
        error => Ok(PyRuntimeError::new_err(error.to_string())),
    }
}

/// What a server raised, by its name.
fn remote(py: Python<'_>, name: &str, payload: Bound<'_, PyAny>) -> PyResult<PyErr> {
    let module = py.import("zodium._remote")?;
    Ok(PyErr::from_value(module.call_method1("exception", (name, payload))?))
}

fn made(py: Python<'_>, module: &str, class: &str, text: &str) -> PyResult<PyErr> {
    Ok(PyErr::from_value(py.import(module)?.call_method1(class, (text,))?))
}
