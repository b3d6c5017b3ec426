//! Converts errors of the client to Python exceptions.

use std::borrow::Cow;
use std::sync::Arc;

use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zodium_client::ClientError;
use zodium_pickle::{Object, Value};

use crate::interrupt::take_raised;
use crate::outcome::NativeUnfinished;
use crate::value::to_python;

/// The exception for an error.
pub(crate) fn raised(py: Python<'_>, error: &ClientError) -> PyErr {
    exception(py, error).unwrap_or_else(|failure| failure)
}

/// The exception for a lost connection.
pub(crate) fn disconnected(py: Python<'_>, text: &str) -> PyErr {
    made(py, "zodium.exceptions", "ClientDisconnected", text).unwrap_or_else(|failure| failure)
}

fn exception(py: Python<'_>, error: &ClientError) -> PyResult<PyErr> {
    let ours = |name| made(py, "zodium.exceptions", name, &error.to_string());
    match error {
        ClientError::Raised(exception) => {
            let payload = to_python(py, &plain(&exception.payload))?;
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
        ClientError::NotVoted(_) => {
            let arguments = (error.to_string(),).into_pyobject(py)?;
            remote(py, "ZODB.POSException.StorageTransactionError", arguments.into_any())
        }
        ClientError::Disconnected(_)
        | ClientError::Unreachable { .. }
        | ClientError::NotTold
        | ClientError::Closed => ours("ClientDisconnected"),
        ClientError::Interrupted => match take_raised() {
            Some(raised) => Ok(raised),
            None => Ok(PyKeyboardInterrupt::new_err(())),
        },
        ClientError::OutcomeUnknown { transaction, .. } => {
            let unknown = ours("OutcomeUnknown")?;
            let unfinished = NativeUnfinished::new(Arc::clone(transaction));
            unknown.value(py).setattr("unfinished", Py::new(py, unfinished)?)?;
            Ok(unknown)
        }
        ClientError::Message(_) | ClientError::Unexpected { .. } => ours("ProtocolError"),
        ClientError::Options(text) => Ok(PyValueError::new_err(text.to_string())),
        ClientError::File { .. } => Ok(PyOSError::new_err(error.to_string())),
        error => Ok(PyRuntimeError::new_err(error.to_string())),
    }
}

/// An exception's arguments as plain data. Stock servers pickle exceptions among them, which become
/// their name and arguments, as in msgpack.
fn plain<'a>(value: &Value<'a>) -> Value<'a> {
    let all = |items: &[Value<'a>]| items.iter().map(plain).collect();
    match value {
        Value::List(items) => Value::List(all(items)),
        Value::Tuple(items) => Value::Tuple(all(items)),
        Value::Dict(entries) => {
            Value::Dict(entries.iter().map(|(key, value)| (plain(key), plain(value))).collect())
        }
        Value::Object(object) => described(object).unwrap_or_else(|| value.clone()),
        _ => value.clone(),
    }
}

/// An exception's name, and its attributes or arguments. ZODB's are constructed by a function from
/// class and attributes, others by their class.
fn described<'a>(exception: &Object<'a>) -> Option<Value<'a>> {
    let Value::Global(made_by) = &exception.callable else { return None };
    let (class, given) = match &exception.arguments {
        Value::Tuple(items) => match items.as_slice() {
            [Value::Global(class), attributes] => (class, attributes),
            _ => (made_by, &exception.arguments),
        },
        other => (made_by, other),
    };
    let said = exception.state.as_ref().unwrap_or(given);
    let name = format!("{}.{}", class.module(), class.name());
    Some(Value::Tuple(vec![Value::Str(Cow::Owned(name)), plain(said)]))
}

/// The exception for a name sent by a server.
fn remote(py: Python<'_>, name: &str, payload: Bound<'_, PyAny>) -> PyResult<PyErr> {
    let module = py.import("zodium._remote")?;
    Ok(PyErr::from_value(module.call_method1("exception", (name, payload))?))
}

fn made(py: Python<'_>, module: &str, class: &str, text: &str) -> PyResult<PyErr> {
    Ok(PyErr::from_value(py.import(module)?.call_method1(class, (text,))?))
}
