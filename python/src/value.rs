//! Converts values of the protocol to Python objects and back.
//!
//! Key decision: plain data only. A class named by a server is never looked up, so nothing that it
//! sends is imported or called.

use std::borrow::Cow;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet,
    PyString, PyTuple,
};
use zodium_pickle::{Construction, Global, Object, Value};

/// Deepest nesting of arguments, as in servers; a list that contains itself exceeds it.
const DEPTH_MAX: usize = 100;

/// Module and class of the only instance that stock clients send: a path prefix in the
/// specification of `undoInfo`.
const PREFIX: (&str, &str) = ("ZopeUndo.Prefix", "Prefix");

/// Converts a value from a server; fails for anything but plain data.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::None => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::BigInt(bytes) => {
            let options = PyDict::new(py);
            options.set_item(intern!(py, "signed"), true)?;
            let arguments = (PyBytes::new(py, bytes), intern!(py, "little"));
            py.get_type::<PyInt>().call_method("from_bytes", arguments, Some(&options))?
        }
        Value::Float(number) => PyFloat::new(py, *number).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Str(text) => PyString::new(py, text).into_any(),
        Value::List(items) => PyList::new(py, all_to_python(py, items)?)?.into_any(),
        Value::Tuple(items) => PyTuple::new(py, all_to_python(py, items)?)?.into_any(),
        Value::Dict(entries) => {
            let dict = PyDict::new(py);
            for (key, value) in entries {
                dict.set_item(to_python(py, key)?, to_python(py, value)?)?;
            }
            dict.into_any()
        }
        Value::Global(_) | Value::Object(_) | Value::Persistent(_) => {
            let text = format!("the server sent a {}, which is no plain data", value.kind());
            return Err(PyTypeError::new_err(text));
        }
    })
}

fn all_to_python<'py>(py: Python<'py>, items: &[Value<'_>]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    items.iter().map(|item| to_python(py, item)).collect()
}

/// Converts the arguments of a call. Top-level bytes are borrowed, since they may be large; bytes
/// inside of lists and dicts are copied.
pub(crate) fn arguments<'a>(items: &'a [Bound<'_, PyAny>]) -> PyResult<Value<'a>> {
    let values: PyResult<Vec<_>> = items.iter().map(argument).collect();
    Ok(Value::Tuple(values?))
}

fn argument<'a>(item: &'a Bound<'_, PyAny>) -> PyResult<Value<'a>> {
    match item.cast::<PyBytes>() {
        Ok(bytes) => Ok(Value::Bytes(Cow::Borrowed(bytes.as_bytes()))),
        Err(_) => from_python(item, 0),
    }
}

/// Converts an argument to an owned value.
pub(crate) fn owned(item: &Bound<'_, PyAny>) -> PyResult<Value<'static>> {
    from_python(item, 0)
}

fn from_python(item: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value<'static>> {
    if depth == DEPTH_MAX {
        return Err(PyValueError::new_err("cannot send what is nested deeper than 100"));
    }
    if item.is_none() {
        Ok(Value::None)
    } else if let Ok(truth) = item.cast::<PyBool>() {
        Ok(Value::Bool(truth.is_true()))
    } else if let Ok(number) = item.cast::<PyInt>() {
        integer(number)
    } else if let Ok(number) = item.cast::<PyFloat>() {
        Ok(Value::Float(number.value()))
    } else if let Ok(bytes) = item.cast::<PyBytes>() {
        Ok(Value::Bytes(Cow::Owned(bytes.as_bytes().to_vec())))
    } else if let Ok(text) = item.cast::<PyString>() {
        Ok(Value::Str(Cow::Owned(text.to_cow()?.into_owned())))
    } else if let Ok(items) = item.cast::<PyTuple>() {
        Ok(Value::Tuple(all_from_python(items.iter(), depth)?))
    } else if let Ok(items) = item.cast::<PyList>() {
        Ok(Value::List(all_from_python(items.iter(), depth)?))
    } else if let Ok(entries) = item.cast::<PyDict>() {
        dict(entries, depth)
    } else if let Ok(items) = item.cast::<PySet>() {
        called("set", vec![Value::List(all_from_python(items.iter(), depth)?)], item)
    } else if let Ok(items) = item.cast::<PyFrozenSet>() {
        called("frozenset", vec![Value::List(all_from_python(items.iter(), depth)?)], item)
    } else if let Ok(bytes) = item.cast::<PyByteArray>() {
        called("bytearray", vec![Value::Bytes(Cow::Owned(bytes.to_vec()))], item)
    } else if let Ok(number) = item.cast::<PyComplex>() {
        called("complex", vec![Value::Float(number.real()), Value::Float(number.imag())], item)
    } else {
        instance(item, depth)
    }
}

fn all_from_python<'py>(
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    depth: usize,
) -> PyResult<Vec<Value<'static>>> {
    items.map(|item| from_python(&item, depth + 1)).collect()
}

fn integer(number: &Bound<'_, PyInt>) -> PyResult<Value<'static>> {
    if let Ok(number) = number.extract::<i128>() {
        return Ok(Value::Int(number));
    }
    let py = number.py();
    let bits: usize = number.call_method0(intern!(py, "bit_length"))?.extract()?;
    let options = PyDict::new(py);
    options.set_item(intern!(py, "signed"), true)?;
    let arguments = (bits / 8 + 1, intern!(py, "little"));
    let bytes = number.call_method(intern!(py, "to_bytes"), arguments, Some(&options))?;
    Ok(Value::BigInt(Cow::Owned(bytes.extract()?)))
}

fn dict(entries: &Bound<'_, PyDict>, depth: usize) -> PyResult<Value<'static>> {
    let entries = entries
        .iter()
        .map(|(key, value)| Ok((from_python(&key, depth + 1)?, from_python(&value, depth + 1)?)));
    Ok(Value::Dict(entries.collect::<PyResult<_>>()?))
}

/// What a builtin class makes of arguments, as Python pickles it.
fn called(
    class: &'static str,
    arguments: Vec<Value<'static>>,
    item: &Bound<'_, PyAny>,
) -> PyResult<Value<'static>> {
    let Some(global) = Global::new("builtins", class) else { return refused(item) };
    Ok(Value::Object(Box::new(Object {
        construction: Construction::Call,
        callable: Value::Global(global),
        arguments: Value::Tuple(arguments),
        items: Vec::new(),
        entries: Vec::new(),
        state: None,
    })))
}

/// Converts a path prefix; servers know no other instances.
fn instance(item: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value<'static>> {
    let class = item.get_type();
    let (module, name) = PREFIX;
    let is_prefix = class.module()?.to_cow()? == module && class.name()?.to_cow()? == name;
    let global = Global::new(module, name).filter(|_| is_prefix);
    let Some(global) = global else { return refused(item) };
    let state = item.getattr(intern!(item.py(), "__dict__"))?;
    Ok(Value::Object(Box::new(Object {
        construction: Construction::New,
        callable: Value::Global(global),
        arguments: Value::Tuple(Vec::new()),
        items: Vec::new(),
        entries: Vec::new(),
        state: Some(from_python(&state, depth + 1)?),
    })))
}

fn refused<T>(item: &Bound<'_, PyAny>) -> PyResult<T> {
    let text = format!(
        "cannot send a {}: only None, numbers, bytes, texts, and lists, tuples, dicts and sets of \
         them can be sent",
        item.get_type().fully_qualified_name()?
    );
    Err(PyTypeError::new_err(text))
}
