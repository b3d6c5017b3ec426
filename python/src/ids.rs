//! Oids and tids as arguments: 8 bytes.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zodium_types::{Oid, Tid};

/// An oid that Python gives.
#[derive(Clone, Copy)]
pub(crate) struct OidArgument(pub(crate) Oid);

/// A tid that Python gives.
#[derive(Clone, Copy)]
pub(crate) struct TidArgument(pub(crate) Tid);

impl<'a, 'py> FromPyObject<'a, 'py> for OidArgument {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<OidArgument> {
        Ok(OidArgument(Oid(number(&given, "an oid")?)))
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for TidArgument {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<TidArgument> {
        Ok(TidArgument(Tid(number(&given, "a tid")?)))
    }
}

fn number(given: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    let bytes = given.cast::<PyBytes>().ok().and_then(|bytes| bytes.as_bytes().try_into().ok());
    bytes.map(u64::from_be_bytes).ok_or_else(|| {
        PyTypeError::new_err(format!("{what} has 8 bytes, this is {}", shown(given)))
    })
}

fn shown(given: &Bound<'_, PyAny>) -> String {
    given.repr().map_or_else(|_| "something else".to_owned(), |text| text.to_string())
}
